# SPDX-License-Identifier: BSD-3-Clause
"""The kernel's modules in a guest: run there as `kernel.py ROLE [ARGUMENT]...`."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

#: Deadlines are so many times longer: a kernel that looks for defects is slow.
PATIENCE = float(os.environ.get("NUPA_TEST_PATIENCE", "1"))
_DEADLINE_S = 30.0 * PATIENCE
_DELETE_MODULE, _FINIT_MODULE = 176, 313  # of x86-64
_PARAMETERS = Path("/sys/module/nupa_core/parameters")
_MODULES = "/run/nupa"  # those that the guest booted with: csrc/guest/init_attach.c
_KINDS = ("pd", "cq", "qp", "mr", "srq")
_SHOW = ("rdma", "resource", "show")
_IDLE_S = 10.0


def load(*names: str) -> None:
    """Puts modules of the guest in, with those that they need."""
    for name in names:
        subprocess.run(["/sbin/modprobe", name], check=True)


def _call(number: int, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments):
        raise OSError(ctypes.get_errno(), f"system call {number} of {arguments}")


def unload(*names: str) -> None:
    """Takes modules out, users first."""
    for name in names:
        _call(_DELETE_MODULE, name.encode(), os.O_NONBLOCK)


def insert(name: str, words: str) -> None:
    """Puts a module of NUPA in, with its parameters."""
    with Path(_MODULES, f"{name}.ko").open("rb") as file:
        _call(_FINIT_MODULE, file.fileno(), words.encode(), 0)


def _until(what: Callable[[], object], message: str) -> None:
    until = time.monotonic() + _DEADLINE_S
    while not what():
        assert time.monotonic() < until, f"after {_DEADLINE_S:g} s: {message}"
        os.sched_yield()


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _talk_to_itself() -> None:
    command = ["ibv_rc_pingpong", "-g", "1", "-n", "5", "-c"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        _until(lambda: _output("ss", "-Hnlt", "sport = :18515").strip(), "no server")
        subprocess.run([*command, "localhost"], check=True, stdout=subprocess.DEVNULL)
        assert server.wait(_DEADLINE_S) == 0


def cycle(times: str) -> None:
    """Unloads the modules and loads them, with traffic after each load."""
    words = [f"{name}={(_PARAMETERS / name).read_text().strip()}" for name in ("base", "bytes")]
    words.append(f"host={(_PARAMETERS / 'host').read_text().strip()}")
    address = _output("ip", "-4", "-o", "addr", "show", "nupa_net0").split()[3]
    for _ in range(int(times)):
        unload("nupa_rdma", "nupa_net", "nupa_core")
        insert("nupa_core", " ".join(words))
        insert("nupa_net", "")
        insert("nupa_rdma", "netdev=nupa_net0")
        subprocess.run(["ip", "addr", "add", address, "dev", "nupa_net0"], check=True)
        subprocess.run(["ip", "link", "set", "nupa_net0", "up"], check=True)
        _until(lambda: "state ACTIVE" in _output("rdma", "link"), "no link is active")
        _talk_to_itself()


def resources(pid: str, gone: str = "") -> None:
    """Prints the kinds of objects that a process has; *gone*: once it has none.

    The name that iproute2 6.1 shows of an SRQ's process is its list of QPs.
    """

    def kinds() -> list[str]:
        return [kind for kind in _KINDS if f" pid {pid} " in _output(*_SHOW, kind)]

    if gone:
        _until(lambda: not kinds(), f"objects of process {pid} are left")
    print(" ".join(kinds()))


def idle() -> None:
    """Prints how much of a processor the port's thread takes."""
    (thread,) = (
        path.parent
        for path in Path("/proc").glob("[0-9]*/comm")
        if path.read_text() == "nupa-port\n"
    )

    def ran_ns() -> int:
        return int((thread / "schedstat").read_text().split()[0])

    before_ns, begun_s = ran_ns(), time.monotonic()
    time.sleep(_IDLE_S)
    print((ran_ns() - before_ns) / 1e9 / (time.monotonic() - begun_s))


_ROLES: dict[str, Callable[..., None]] = {
    "unload": unload,
    "load": load,
    "cycle": cycle,
    "resources": resources,
    "idle": idle,
}

if __name__ == "__main__":
    _ROLES[sys.argv[1]](*sys.argv[2:])
