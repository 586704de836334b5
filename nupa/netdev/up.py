# SPDX-License-Identifier: BSD-3-Clause
"""`net up`: makes or repairs namespaces, interfaces and pumps for the hosts of a fabric.

All of it stays, or none.  Until the state is written, the keeper and the pumps wait for us to
confirm, and interfaces end with their descriptors.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from nupa.base.errors import FabricError, LocalError
from nupa.base.process import end, signals_held
from nupa.fabric import Fabric, default_topology
from nupa.netdev import address, down, interface, namespace, state
from nupa.netdev.keeper import Keeper
from nupa.netdev.namespace import Netns
from nupa.netdev.start import PumpPort, StartedPump
from nupa.netdev.state import HostNet, State
from nupa.netdev.wish import Wish, check, check_kernels, of_this_machine
from nupa.trunk.here import check_own, own_hosts

if TYPE_CHECKING:
    from nupa.core.segment import HostInfo

DEFAULT_MTU_BYTES = address.MTU_MAX_BYTES
_RELEASE_S = 5.0
_TICK_S = 0.005


class UpReport(NamedTuple):
    """The result.  made: new hosts; up: all hosts that are up now.

    healed: by host, what was wrong, in words; lost: by host, why it stays broken.
    lifeline: a writer of the lifeline of lent interfaces that are new, else -1; the caller's.
    kernels: the interface is this kernel's own, and nothing was done.
    """

    fabric: str
    made_fabric: bool
    made: list[HostNet]
    healed: dict[str, list[str]]
    lost: dict[str, str]
    up: list[HostNet]
    lifeline: int
    kernels: bool = False


class _HostTask(NamedTuple):
    """A host in progress.

    before: the state's entry for it; moved: it has another namespace now; served: a living pump has
    its interface.
    """

    host: HostInfo
    before: HostNet | None
    moved: bool
    netns: Netns
    spec: interface.InterfaceConfig
    served: bool


class _Outcome(NamedTuple):
    job: _HostTask
    ensured: interface.Ensured
    fds: list[int]


def up(name: str | None, wish: Wish) -> UpReport:
    """Makes what *wish* asks for, repairs what is broken, and leaves all else alone.

    name None: as for Fabric.open(); if none is up, a default one is made, which goes with
    `net down`.  LocalError, FabricError: nothing was made.
    """
    check(wish)
    kernels = interface.is_of_the_kernel()
    if not kernels:
        interface.check_device()
    with ExitStack() as always, ExitStack() as undo:
        with signals_held():
            fabric, made_fabric = Fabric.open_or_create(name, default_topology)
            always.callback(fabric.close)
            if made_fabric:
                undo.callback(Fabric.remove, fabric.name)
                undo.callback(fabric.close)
        wish = of_this_machine(fabric, wish)
        if kernels and wish.is_here:
            check_kernels(wish)
            return UpReport(fabric.name, False, [], {}, {}, [], -1, kernels=True)
        with state.lock(fabric.name):
            return up_locked(fabric, made_fabric, wish, undo)


def up_locked(fabric: Fabric, made_fabric: bool, wish: Wish, undo: ExitStack) -> UpReport:
    """Does the same of an open fabric; the caller holds the lock, and leaves *undo* after it."""
    before = state.load(fabric.name)
    if before is not None and before.generation != fabric.generation:
        # It is of a fabric that is gone.
        down.take_away(before)
        before = None
    if before is None:
        down.end_strays(fabric.name)
        undo.callback(state.forget, fabric.name)
    known = dict(before.hosts) if before else {}
    hosts = _hosts(fabric, wish)
    # Once, before the children that need it are forked: it takes 0.1 s.
    import pyroute2  # noqa: F401

    with ExitStack() as always:
        jobs, keeper, lost = _jobs(fabric, hosts, known, wish, always)
        outcomes = [_ensure(job, always) for job in jobs]
        pumps = _start_pumps(fabric, outcomes, always)
        new = {
            o.job.host.name: _host_net(
                o, pumps.get(o.job.host.name), _lifeline(o.job, keeper, wish.lent)
            )
            for o in outcomes
        }
        made_fabric = made_fabric or bool(before and before.made_fabric)
        # Hosts that are up and not asked for stay as they are, in the fabric's order.
        merged = {
            host.name: new.get(host.name) or known[host.name]
            for host in fabric.hosts
            if host.name in new or host.name in known
        }
        after = State(
            fabric.name,
            os.path.abspath(fabric.path),  # noqa: PTH100
            fabric.generation,
            made_fabric,
            merged,
        )
        with signals_held():
            lifeline = _commit(after, outcomes, keeper, set(pumps.values()), wish.lent)
            undo.pop_all()
    healed = {
        outcome.job.host.name: words
        for outcome in outcomes
        if outcome.job.before and (words := _healed(outcome))
    }
    made = [new[job.host.name] for job in jobs if job.before is None]
    return UpReport(fabric.name, made_fabric, made, healed, lost, list(merged.values()), lifeline)


def _hosts(fabric: Fabric, wish: Wish) -> list[HostInfo]:
    """Returns the hosts of a wish: those that it names, else all of this machine that are ready.

    LocalError: one that it names is not ready (EHOSTDOWN) or another machine's, or none is.
    """
    hosts: list[HostInfo] = [fabric.host(which) for which in wish.hosts]
    for host in hosts:
        check_own(fabric, host.name)
    if not hosts:
        own = own_hosts(fabric)
        here = [host for host in fabric.hosts if not own or host.name in own]
        hosts = [host for host in here if fabric.is_ready(host)] or here[:1]
    for host in hosts:
        fabric.check_ready(host)
    return hosts


def _jobs(
    fabric: Fabric,
    hosts: Iterable[HostInfo],
    known: dict[str, HostNet],
    wish: Wish,
    always: ExitStack,
) -> tuple[list[_HostTask], Keeper | None, dict[str, str]]:
    """Returns the jobs, the keeper of new namespaces, and what cannot be done."""
    asked = namespace.find(wish.netns) if wish.netns is not None else None
    lost: dict[str, str] = {}
    places: list[tuple[HostInfo, Netns | None]] = []
    for host in hosts:
        before = known.get(host.name)
        try:
            places.append((host, _place(before, asked)))
        except LocalError as error:
            lost[host.name] = str(error)
        if before is not None:
            _refuse_other(before, wish, asked)
    homeless = [host for host, netns in places if netns is None]
    keeper = None
    if homeless:
        beside = next((h.netns for h in known.values() if h.netns.own and h.netns.alive), None)
        with signals_held():
            keeper = Keeper(os.path.abspath(fabric.path), len(homeless), beside)  # noqa: PTH100
            always.callback(keeper.close)
    new = iter(keeper.netns if keeper else ())
    served = {(slot.pid, slot.host) for slot in fabric.processes() if slot.net_queue}
    jobs = []
    for host, netns in places:
        netns = netns or next(new)
        before = known.get(host.name)
        # Inodes are reused: the inode alone does not identify it.
        moved = before is not None and before.netns != netns
        spec = interface.InterfaceConfig(
            mac=host.mac,
            ipv4=host.ipv4,
            mtu_bytes=before.mtu_bytes if before else wish.mtu_bytes or DEFAULT_MTU_BYTES,
            queues=before.queues if before else wish.queues or 1,
        )
        has_pump = (
            before is not None
            and not moved
            and before.pump.alive
            and (before.pump.pid, host.index) in served
        )
        jobs.append(_HostTask(host, before, moved, netns, spec, has_pump))
    return jobs, keeper, lost


def _place(before: HostNet | None, asked: Netns | None) -> Netns | None:
    """Returns the namespace of the interface; None: a new one.

    LocalError: the namespace is gone, and we cannot make it.
    """
    if asked is not None:
        same = before is not None and before.netns.inode == asked.inode and before.netns.alive
        return before.netns if before is not None and same else asked
    if before is None:
        return None
    if before.netns.alive:
        return before.netns
    if before.netns.own:
        return None
    if before.netns.holder is None:
        # It may have been made again.
        try:
            return namespace.find(before.netns.path)
        except LocalError:
            pass
    raise LocalError(
        f"its network namespace {before.netns.path} is gone: "
        f"`nupa net up --host {before.name} --netns PATH|PID` moves it to another one",
        errno.ENOENT,
    )


def _refuse_other(before: HostNet, wish: Wish, asked: Netns | None) -> None:
    """Raises LocalError if the wish would change an interface that is up."""
    now, wanted = "", ""
    if wish.mtu_bytes not in (None, before.mtu_bytes):
        now, wanted = f"an MTU of {before.mtu_bytes}", f"{wish.mtu_bytes}"
    elif wish.queues not in (None, before.queues):
        now, wanted = f"queues: {before.queues}", f"{wish.queues}"
    elif asked is not None and asked.inode != before.netns.inode and before.netns.alive:
        now, wanted = f"the namespace {before.netns.path}", asked.path
    if wanted:
        raise LocalError(
            f"{interface.NAME} of {before.name} is up with {now}, not {wanted}: "
            f"`nupa net down` first",
            errno.EEXIST,
        )


def _ensure(job: _HostTask, always: ExitStack) -> _Outcome:
    if job.before is not None and job.moved:
        # Its fabric is gone.
        end(job.before.pump)
    work = partial(
        interface.ensure,
        job.spec,
        own=job.netns.own,
        known=job.before is not None and not job.moved,
        attach=not job.served,
    )
    try:
        ensured, fds = namespace.run_in(job.netns, work)
    except LocalError as error:
        raise LocalError(f"{job.host.name}: {error}", error.errno) from error
    for fd in fds:
        always.callback(os.close, fd)
    return _Outcome(job, ensured, fds)


def _start_pumps(
    fabric: Fabric, outcomes: list[_Outcome], always: ExitStack
) -> dict[str, StartedPump]:
    """Starts a pump for each holder of namespaces, so that they end together; by host."""
    groups: dict[object, list[_Outcome]] = {}
    for outcome in outcomes:
        netns = outcome.job.netns
        if outcome.fds:
            groups.setdefault(netns.holder or netns.path, []).append(outcome)
    pumps: dict[str, StartedPump] = {}
    for group in groups.values():
        ports = [PumpPort(o.job.host.index, o.job.spec.mtu_bytes, o.fds) for o in group]
        for outcome in group:
            _await_release(fabric, outcome.job)
        with signals_held():
            pump = StartedPump(fabric, ports, group[0].job.netns)
            always.callback(pump.close)
        pumps |= {outcome.job.host.name: pump for outcome in group}
    # All are started before the first wait, so that they start at the same time.
    for pump in set(pumps.values()):
        pump.wait()
    return pumps


def _await_release(fabric: Fabric, job: _HostTask) -> None:
    """Waits until no former pump serves the host, since its interface is gone.  FabricError."""
    end_s = time.monotonic() + _RELEASE_S
    while pumps := {
        slot.pid for slot in fabric.processes() if slot.net_queue and slot.host == job.host.index
    }:
        if time.monotonic() > end_s:
            raise FabricError(
                f"another pump (pid {', '.join(map(str, pumps))}) serves {job.host.name} and has "
                f"not seen that its interface is gone: `nupa net down`, then up",
                errno.EBUSY,
            )
        time.sleep(_TICK_S)


def _lifeline(job: _HostTask, keeper: Keeper | None, lent: bool) -> str:
    if not lent:
        return ""
    if job.before is not None and not job.moved:
        return job.before.lifeline
    return keeper.lifeline if keeper is not None else ""


def _host_net(outcome: _Outcome, pump: StartedPump | None, lifeline: str) -> HostNet:
    job = outcome.job
    process = pump.process if pump else job.before.pump if job.before else None
    assert process is not None, "a host that had no pump was given one"
    return HostNet(
        name=job.host.name,
        number=job.host.index,
        mac=job.spec.mac,
        ipv4=job.spec.ipv4,
        addresses=tuple(outcome.ensured.addresses),
        mtu_bytes=job.spec.mtu_bytes,
        queues=job.spec.queues,
        netns=job.netns,
        pump=process,
        lifeline=lifeline,
    )


def _commit(
    after: State,
    outcomes: list[_Outcome],
    keeper: Keeper | None,
    pumps: set[StartedPump],
    lent: bool,
) -> int:
    """Makes all of it permanent, or *lent*; returns a writer of the keeper's lifeline, or -1."""
    new = [outcome.fds[0] for outcome in outcomes if outcome.ensured.made]
    before = [outcome.job.before for outcome in outcomes if not outcome.job.moved]
    lifeline = -1
    try:
        for fd in new:
            interface.persist(fd)
        state.store(after)
        if keeper is not None and lent:
            lifeline = keeper.lend()
        elif keeper is not None:
            keeper.keep()
        for path in {host.lifeline for host in before if host and host.lifeline and not lent}:
            Keeper.let_stay(path)
        for pump in pumps:
            pump.go()
    except BaseException:
        for fd in new:
            interface.persist(fd, False)
        raise
    return lifeline


def _healed(outcome: _Outcome) -> list[str]:
    job = outcome.job
    words = ["a new namespace: the former one was gone"] if job.moved else []
    words += outcome.ensured.done
    if outcome.fds and not job.moved:
        words.append("a new pump")
    return words
