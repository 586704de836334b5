# SPDX-License-Identifier: BSD-3-Clause
"""Machines for tests: network namespaces, joined by a bridge in a namespace of its own.

    with machines(2) as (left, right):
        left.must("ping", "-c", "1", right.ipv4)
        left.cable(plugged=False)

Each has eth0 with 192.0.2.N and 2001:db8::N, N from 1, a /sys and a host name of its own.  With a
second cable each, to another bridge, it has eth1 with 198.51.100.N.  No root is needed where user
namespaces are allowed.  All that runs in them ends with the block.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from nupa.base.process import Process, of_pid
from nupa.programs.pair import Program, ProgramOutcome, run
from tests.programs.needs import needs

DEADLINE_S = 40.0
#: A holder that a killed test leaves behind ends by itself.  /sys/class/net, where UCX looks, shows
#: the namespace in which sysfs was mounted.
_HOLD = ("sh", "-c", "mount -t sysfs sysfs /sys && hostname $0 && exec sleep 3600")
_HOLDER = "sleep"
_TICK_S = 0.01
_NETWORKS = ("192.0.2", "198.51.100")  #: of each cable
ETHERNET_MTU_BYTES = 1500


@dataclass(frozen=True)
class Namespace:
    """A machine.  *hub*: in the namespace of the bridge."""

    number: int
    holder: Program
    hub: Program

    @property
    def ipv4(self) -> str:
        return f"{_NETWORKS[0]}.{self.number}"

    @property
    def ipv6(self) -> str:
        return f"2001:db8::{self.number}"

    @property
    def link(self) -> str:
        """Returns the bridge's end of its first cable, in the hub."""
        return self.link_of(0)

    def link_of(self, cable: int) -> str:
        return f"cable{self.number}.{cable}"

    def argv(self, *command: str) -> list[str]:
        """Returns the command line that runs *command* in it."""
        return [*_enter(self.holder.pid), *command]

    def hub_argv(self, *command: str) -> list[str]:
        """Returns the command line that runs *command* at the bridge."""
        return [*_enter(self.hub.pid), *command]

    def start(self, *command: str, env: Mapping[str, str] | None = None) -> Program:
        return Program(self.argv(*command), env=env)

    def run(
        self, *command: str, env: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S
    ) -> ProgramOutcome:
        """Runs *command* to its end; that it fails is in what is returned."""
        return run(self.argv(*command), env=env, deadline_s=deadline_s)

    def must(self, *command: str, env: Mapping[str, str] | None = None) -> str:
        """Runs a command that must succeed; returns its standard output."""
        return self.run(*command, env=env).check().stdout

    def cable(self, at: int = 0, *, plugged: bool) -> None:
        """Plugs a cable in or out, at the bridge; eth0, or eth1, loses its carrier."""
        command = ["ip", "link", "set", self.link_of(at), "up" if plugged else "down"]
        run(self.hub_argv(*command), deadline_s=DEADLINE_S).check()

    def processes(self) -> list[Process]:
        """Lists the processes in it, its holder last."""
        own = _netns(self.holder.pid)
        found = [process for process in _all() if _netns(process.pid) == own]
        return sorted(found, key=lambda process: process.pid == self.holder.pid)

    def kill_all(self) -> None:
        """Kills all that runs in it but its holder, as a power failure does."""
        deadline_s = time.monotonic() + DEADLINE_S
        while found := [each for each in self.processes() if each.pid != self.holder.pid]:
            for process in found:
                with suppress(ProcessLookupError):
                    if process.alive:
                        os.kill(process.pid, signal.SIGKILL)
            assert time.monotonic() < deadline_s, f"{found} do not end"
            time.sleep(_TICK_S)  # until they are gone: nothing tells it of others' children


@contextmanager
def machines(
    count: int, *, mtu_bytes: int = ETHERNET_MTU_BYTES, cables: int = 1
) -> Iterator[tuple[Namespace, ...]]:
    """Makes *count* machines; skips where no network namespace can be made."""
    ip = needs("ip", "iproute2")
    with ExitStack() as stack:
        hub = stack.enter_context(Program([*_unshare(None), *_HOLD, "hub"]))
        _await_exec(hub)
        holders = [
            stack.enter_context(Program([*_unshare(hub.pid), *_HOLD, f"machine{number}"]))
            for number in range(1, count + 1)
        ]
        made = tuple(
            Namespace(number, holder, hub) for number, holder in enumerate(holders, start=1)
        )
        for holder in holders:
            _await_exec(holder)
        for cable in range(cables):
            _run_all(_enter(hub.pid), _bridge(ip, made, cable, mtu_bytes))
            for each in made:
                _run_all(_enter(each.holder.pid), _addresses(ip, each, cable))
        try:
            yield made
        finally:
            for each in made:
                each.kill_all()


def _bridge(ip: str, made: Sequence[Namespace], cable: int, mtu_bytes: int) -> list[list[str]]:
    bridge, mtu = f"bridge{cable}", ["mtu", str(mtu_bytes)]
    # A bridge that snoops sends IGMP itself (RFC 4286), into captures that are compared.
    commands = [
        [ip, "link", "add", bridge, "type", "bridge", "mcast_snooping", "0"],
        [ip, "link", "set", bridge, "up"],
    ]
    for each in made:
        link = each.link_of(cable)
        there = ["peer", "name", f"eth{cable}", *mtu, "netns", str(each.holder.pid)]
        commands += [
            [ip, "link", "add", link, *mtu, "type", "veth", *there],
            [ip, "link", "set", link, "master", bridge, "up"],
        ]
    return commands


def _addresses(ip: str, each: Namespace, cable: int) -> list[list[str]]:
    device = f"eth{cable}"
    found = [[ip, "addr", "add", f"{_NETWORKS[cable]}.{each.number}/24", "dev", device]]
    if cable == 0:
        found += [
            [ip, "link", "set", "lo", "up"],
            [ip, "addr", "add", f"{each.ipv6}/64", "dev", device, "nodad"],
        ]
    return [*found, [ip, "link", "set", device, "up"]]


def _run_all(prefix: Sequence[str], commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        run([*prefix, *command], deadline_s=DEADLINE_S).check()


def _unshare(beside: int | None) -> list[str]:
    """Returns the command line prefix of a new namespace, in the user namespace of *beside*."""
    own = ["unshare", "--net", "--mount", "--uts", "--"]
    if os.geteuid() == 0:
        return own
    if beside is None:
        return ["unshare", "--user", "--map-root-user", "--net", "--mount", "--uts", "--"]
    return ["nsenter", "-t", str(beside), "--user", "--preserve-credentials", "--", *own]


def _enter(pid: int) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    return ["nsenter", "-t", str(pid), *user, "--mount", "--net", "--uts", "--wd=.", "--"]


def _await_exec(holder: Program) -> None:
    """Waits until it holds: unshare(1) has become the program that sleeps."""
    deadline_s = time.monotonic() + DEADLINE_S
    comm = Path(f"/proc/{holder.pid}/comm")
    while holder.running and comm.read_text().strip() != _HOLDER:
        assert time.monotonic() < deadline_s, "unshare does not start its program"
        time.sleep(_TICK_S)
    if not holder.running:
        pytest.skip(f"no network namespaces here: {holder.outcome().reason}")


def _netns(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return 0


def _all() -> list[Process]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [process for pid in pids if (process := of_pid(pid)) is not None]
