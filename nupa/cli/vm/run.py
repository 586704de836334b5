# SPDX-License-Identifier: BSD-3-Clause
"""A command in a guest, for `nupa vm run` and `nupa vm shell`: its environment and exit code."""

from __future__ import annotations

import errno
import os
import sys

from nupa.cli.common.command import fail
from nupa.cli.run.program import EXIT_CANNOT_RUN, EXIT_NOT_FOUND, environment, run_on
from nupa.fabric import Fabric, LocalError, RemoteError, default_topology
from nupa.vm.agent import agent
from nupa.vm.agent.frames import Ended, RunRequest
from nupa.vm.agent.relay import Files, Relay, Signals
from nupa.vm.files import state
from nupa.vm.files.place import MachineFolder, meant_name, place_of
from nupa.vm.files.state import Guest, MachineState

#: The fabric in a guest (csrc/guest).
DEVICE = "/dev/nupa0"
_BELL = "/run/nupa/bell"  # csrc/segment/bell_guest.h
_KILLED = 128  # + the signal, as shells have it

# Variables for commands in guests: about the user and the program, not about this machine.
_PASSED = {
    *("COLORTERM", "EDITOR", "HOME", "LANG", "LANGUAGE", "LOGNAME", "PAGER", "PATH", "SHELL"),
    *("TERM", "TZ", "USER", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"),
}
_PASSED_PREFIXES = (
    *("LC_", "NUPA_", "PYTHON", "IBV_", "RDMAV_", "UCX_", "OMP_"),
    *("ASAN_", "LSAN_", "TSAN_", "UBSAN_"),
)
_KEPT_BACK = {"NUPA_DIR", "NUPA_UID", "NUPA_VM_CACHE"}
# Commands in a guest run as root; a user's PATH may lack root's folders.
_ROOTS_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def guest_environment(guest: Guest, mover: str | None) -> dict[str, str]:
    """Returns the environment of a command in a guest: that of `nupa run`, with its own fabric."""
    env = {
        key: value
        for key, value in environment(DEVICE, guest.name, mover).items()
        if (key in _PASSED or key.startswith(_PASSED_PREFIXES)) and key not in _KEPT_BACK
    }
    if env.pop("NUPA_BELL", None) != "" and guest.bell:
        env["NUPA_BELL"] = _BELL
    path = env.get("PATH", os.defpath).split(":")
    env["PATH"] = ":".join([*path, *(folder for folder in _ROOTS_PATH if folder not in path)])
    return env


def run_in_guest(name: str | None, host: str, command: list[str], *, mover: str | None) -> int:
    """Runs *command* in a guest, or on this machine, if that is the host; returns its exit code."""
    place, up = _machine(name)
    if up.is_machine_host(host):
        fabric, leased = Fabric.lease(place.name, up.machine_host, default_topology)
        return run_on(fabric, command, environment(fabric.path, leased.name, mover))
    guest = _living(place, up, host)
    order = RunRequest(command, guest_environment(guest, mover), _folder())
    with agent.connect(place, guest.name) as link, Signals() as signals:
        ended = Relay(link, Files(), signals).run(order)
    return _exit_code(ended)


def shell_in_guest(name: str | None, host: str, command: list[str], *, mover: str | None) -> int:
    """Does the same on our terminal.  LocalError: stdin is not a terminal (ENOTTY)."""
    from nupa.vm.agent.terminal import Terminal

    place, up = _machine(name)
    command = command or [os.environ.get("SHELL") or "/bin/sh"]
    if up.is_machine_host(host):
        return run_in_guest(place.name, host, command, mover=mover)
    guest = _living(place, up, host)
    if not sys.stdin.isatty():
        raise LocalError(
            f"a shell needs a terminal: `nupa vm run {guest.name} -- sh` can read from a pipe",
            errno.ENOTTY,
        )
    terminal = Terminal(sys.stdin.fileno())
    env = guest_environment(guest, mover)
    with agent.connect(place, guest.name) as link, Signals(terminal=True) as signals, terminal:
        order = RunRequest(command, env, _folder(), terminal.window())
        ended = Relay(link, Files(sys.stdin.fileno()), signals, terminal).run(order)
    return _exit_code(ended)


def _machine(name: str | None) -> tuple[MachineFolder, MachineState]:
    place = place_of(name or meant_name())
    return place, state.load_up(place)


def _living(place: MachineFolder, up: MachineState, host: str) -> Guest:
    """Returns a guest.  RemoteError: it is dead."""
    guest = up.guest(host)
    if guest.state == "dead":
        raise RemoteError(
            f"{guest.name} is dead: `nupa vm log {guest.name} --fabric {place.name}` shows its "
            f"console, `nupa vm start {guest.name} --fabric {place.name}` starts it again",
            errno.EHOSTDOWN,
        )
    return guest


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return "/"


def _exit_code(ended: Ended) -> int:
    if ended.errno:
        why = ended.why or f"cannot run it in the guest: {os.strerror(ended.errno)}"
        return fail(why, EXIT_NOT_FOUND if ended.errno == errno.ENOENT else EXIT_CANNOT_RUN)
    code = os.waitstatus_to_exitcode(ended.status)
    return code if code >= 0 else _KILLED - code
