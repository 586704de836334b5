# SPDX-License-Identifier: BSD-3-Clause
"""Pairs of network namespaces, connected by nupa_net0 or by a reference.

Each link is made when it is first needed and stays until the end; it is idle while others are
measured.  The process that holds a reference's namespaces ends with this one.
"""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nupa.measure import raw
from nupa.netdev import state
from nupa.programs.pair import NUPA, ProgramError

Kind = Literal[
    "nupa_net0", "TAP loop", "TAP loop, plain", "veth", "veth, MTU 9000", "veth, MTU 65535"
]

_START_S = 10.0
NEEDS = (
    "benchmarks of the network need root, or user namespaces (sysctl user.max_user_namespaces > 0, "
    "kernel.unprivileged_userns_clone = 1, kernel.apparmor_restrict_unprivileged_userns = 0), "
    "and /dev/net/tun"
)


@dataclass(frozen=True)
class Link:
    """Two ends that reach each other."""

    addresses: tuple[str, str]
    enter: tuple[tuple[str, ...], tuple[str, ...]]  #: the words before a command, at each end
    pids: tuple[int, ...]  #: the processes that move its frames and hold it

    def command(self, end: int, argv: Sequence[str]) -> list[str]:
        return [*self.enter[end], *argv]

    def cpu_ns(self) -> int:
        """Returns the run time of all threads of its processes (proc schedstat: ns, not ticks)."""
        return sum(int((task / "schedstat").read_text().split()[0]) for task in self._tasks())

    @contextmanager
    def pinned(self, cpu: int) -> Iterator[None]:
        """Pins all threads of its processes to one CPU while the block runs."""
        tasks = [int(task.name) for task in self._tasks()]
        before = [os.sched_getaffinity(task) for task in tasks]
        try:
            for task in tasks:
                os.sched_setaffinity(task, {cpu})
            yield
        finally:
            for task, cpus in zip(tasks, before, strict=True):
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(task, cpus)

    def _tasks(self) -> list[Path]:
        return [task for pid in self.pids for task in Path(f"/proc/{pid}/task").iterdir()]


class Links:
    """The links made so far; a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._links: dict[Kind, Link] = {}

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Takes all links down."""
        self._links.clear()
        self._stack.close()

    def get(self, kind: Kind, fabric: str) -> Link:
        """Returns a link; nupa_net0 is that of *fabric*.  ProgramError: it cannot be made."""
        if kind not in self._links:
            self._links[kind] = _MAKERS[kind](self._stack, fabric)
        return self._links[kind]


def _held(stack: ExitStack, argv: Sequence[str]) -> Link:
    """Starts a process that holds a link and prints `ADDRESS: COMMAND...` for each end.

    It ends with its standard input, and so with this process.
    """
    stderr = stack.enter_context(tempfile.TemporaryFile())
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        bufsize=0,  # for select
        start_new_session=True,
    )
    stack.callback(_end, process)
    assert process.stdout is not None
    lines: list[tuple[str, tuple[str, ...]]] = []
    while len(lines) < 2:
        ready, _, _ = select.select([process.stdout], [], [], _START_S)
        line = process.stdout.readline().decode() if ready else ""
        if not line:
            stderr.seek(0)
            said = stderr.read().decode(errors="replace").strip() or "it said nothing"
            raise ProgramError(f"`{shlex.join(argv)}` made no network: {said}\n{NEEDS}")
        address, _, command = line.partition(": ")
        lines.append((address, tuple(shlex.split(command))))
    (first, enter_first), (second, enter_second) = lines
    return Link((first, second), (enter_first, enter_second), (process.pid,))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _tap(*options: str) -> Callable[[ExitStack, str], Link]:
    return lambda stack, _: _held(stack, [raw.path("raw_tap"), *options])


def _veth(mtu_bytes: int) -> Callable[[ExitStack, str], Link]:
    argv = [sys.executable, "-m", "benchmarks.veth", str(mtu_bytes)]
    return lambda stack, _: _held(stack, [*_unshare(), *argv])


def _nupa(stack: ExitStack, fabric: str) -> Link:
    """Makes nupa_net0, entered as the references are, so that both sides start alike."""
    stack.callback(_nupa_down, fabric)  # first, because `up` may be interrupted
    _nupa_net("up", fabric)
    hosts = list(state.load_up(fabric).hosts.values())[:2]
    pids = {host.pump.pid for host in hosts}
    enter = []
    for host in hosts:
        assert host.netns.holder is not None, "`net up` made the namespace, so it has a keeper"
        keeper = Path(f"/proc/{host.netns.holder.pid}")
        pids.add(host.netns.holder.pid)
        command = ["nsenter", f"--net={host.netns.path}"]
        if (keeper / "ns/user").readlink() != Path("/proc/self/ns/user").readlink():
            command[1:1] = ["--preserve-credentials", f"--user={keeper}/ns/user"]
        enter.append(tuple(command))
    return Link((hosts[0].ipv4, hosts[1].ipv4), (enter[0], enter[1]), tuple(sorted(pids)))


def _nupa_down(fabric: str) -> None:
    if Path(state.path_of(fabric)).exists():
        _nupa_net("down", fabric)


def _nupa_net(verb: str, fabric: str) -> None:
    argv = [*NUPA, "net", verb, "--fabric", fabric]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise ProgramError(f"`{shlex.join(argv)}`: {done.stderr.strip()}\n{NEEDS}")


def _unshare() -> list[str]:
    """Returns unshare(1) as this user may use it: with a user namespace if needed."""
    plain = ["unshare", "--net"]
    if subprocess.run([*plain, "true"], stderr=subprocess.DEVNULL).returncode == 0:
        return plain
    return ["unshare", "--user", "--map-root-user", "--net"]


_MAKERS: dict[Kind, Callable[[ExitStack, str], Link]] = {
    "nupa_net0": _nupa,
    "TAP loop": _tap(),
    "TAP loop, plain": _tap("--plain"),
    "veth": _veth(1500),
    "veth, MTU 9000": _veth(9000),
    "veth, MTU 65535": _veth(65535),
}
