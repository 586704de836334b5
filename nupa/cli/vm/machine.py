# SPDX-License-Identifier: BSD-3-Clause
"""`nupa vm up`, `ls`, `log` and `down`."""

from __future__ import annotations

import argparse
import errno
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from nupa.base.errors import LocalError
from nupa.base.ownership import open_own
from nupa.base.quantity import say_bytes
from nupa.cli.common.text import table
from nupa.vm.boot import boot
from nupa.vm.files import nic, state
from nupa.vm.files.place import MachineFolder, default_name, meant_name, place_of
from nupa.vm.files.topology import MachineTopology, changed, load
from nupa.vm.machine import machine
from nupa.vm.machine.launch import printable

_FOLLOW_MS = 200


def say(line: str) -> None:
    """Prints a step on stderr, because stdout is for the result."""
    print(line, file=sys.stderr, flush=True)


def boot_up(args: argparse.Namespace) -> str:
    """Makes a machine as the command line says; returns a line about it."""
    topology = changed(
        load(Path(args.topology)) if args.topology else MachineTopology(),
        kind=args.kind,
        memory_bytes=args.mem,
        coherence=args.coherence,
        guests=args.guests,
        doorbell=args.doorbell,
        nics=[nic.parse(text) for text in args.nic],
    )
    if args.modules and topology.coherence == "software":
        raise LocalError(
            "kernel modules need coherent memory: leave out --modules or --coherence software",
            errno.EINVAL,
        )
    up = machine.up(
        args.fabric or default_name(),
        topology,
        lambda: boot.prepare(args.qemu, say, nupa_modules=args.modules),
        say,
        timeout_s=args.timeout,
    )
    guests = up.guests[0].name if len(up.guests) == 1 else f"host0 to {up.guests[-1].name}"
    return (
        f"{up.name} is up: {guests} share {say_bytes(up.memory_bytes)} ({up.kind}); this machine "
        f"is {up.machine_host} of the fabric {up.name!r}"
    )


def take_down(name: str, force: bool) -> str:
    """Takes a machine down; returns a line about it."""
    done = machine.down(name, force=force)
    if not done.was_up:
        return f"no machine is named {name!r}: nothing to do"
    ended = {0: "no guest ran", 1: "1 guest ended"}.get(done.ended, f"{done.ended} guests ended")
    return f"{name} is down: {ended}{', its fabric is removed' if done.segment else ''}"


def listed(machines: list[dict[str, Any]]) -> str:
    """Returns a table of machines and guests."""
    if not machines:
        return "no machine is up: `nupa vm up` makes one"
    rows = [row for found in machines for row in _rows(found)]
    head = ["MACHINE", "HOST", "STATE", "PID", "KIND", "MEMORY", "QEMU", "UPTIME"]
    return table(head, rows)


def _rows(found: dict[str, Any]) -> list[list[str]]:
    if found["error"]:
        return [[found["name"], "-", found["error"], "-", "-", "-", "-", "-"]]
    kind = found["kind"] + (", software" if found["coherence"] == "software" else "")
    kind += ", doorbell" if found["wakeup"] == "doorbell" else ""
    shared = [kind, say_bytes(found["memory_bytes"]), found["qemu"]]
    rows = [
        [
            found["name"],
            guest["name"],
            guest["state"],
            str(guest["pid"] or "-"),
            *shared,
            _duration(guest["uptime_s"]),
        ]
        for guest in found["guests"]
    ]
    here = [found["name"], found["machine_host"], "this machine", "-"]
    return [*rows, [*here, *shared, _duration(found["uptime_s"])]]


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min"
        if hours
        else f"{minutes} min {rest} s"
        if minutes
        else f"{rest} s"
    )


def print_logs(name: str | None, host: str | None, follow: bool) -> int:
    """Prints consoles; *follow*: as they grow, until all of these guests have ended."""
    place = place_of(name or meant_name())
    up = state.load_up(place)
    guests = [up.guest(host)] if host is not None else list(up.guests)
    consoles = [_Console(place, guest.name, "" if host else f"{guest.name} | ") for guest in guests]
    poll = select.poll()
    living = {}
    for guest in guests:
        fd = guest.process.open() if guest.process else None
        if fd is not None:
            living[fd] = guest
            poll.register(fd, select.POLLIN)
    try:
        while follow and living:
            for console in consoles:
                console.show()
            for fd, _ in poll.poll(_FOLLOW_MS):
                poll.unregister(fd)
                os.close(fd)
                del living[fd]
        for console in consoles:
            console.show(to_the_end=True)
    except KeyboardInterrupt:
        return 0
    finally:
        for fd in living:
            os.close(fd)
        for console in consoles:
            console.close()
    return 0


class _Console:
    """A console's log, printed line by line as it grows."""

    def __init__(self, place: MachineFolder, host: str, before: str) -> None:
        self._before = before
        self._rest = b""
        self._file: IO[bytes] | None = None
        with suppress(FileNotFoundError):
            self._file = os.fdopen(open_own(place.log(host), os.O_RDONLY), "rb")

    def show(self, *, to_the_end: bool = False) -> None:
        """Prints complete lines; *to_the_end*: also a last one without a newline."""
        data = self._rest + (self._file.read() if self._file else b"")
        *lines, self._rest = data.split(b"\n")
        if to_the_end and self._rest:
            lines.append(self._rest)
        for line in lines:
            print(f"{self._before}{printable(line.decode(errors='replace'))}")
        sys.stdout.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
