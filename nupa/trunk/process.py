# SPDX-License-Identifier: BSD-3-Clause
"""The trunk's process: `python -m nupa.trunk.process`, started by nupa/trunk/start.py.

usage: python -m nupa.trunk.process --folder NUPA_DIR --fabric NAME --segment PATH --generation HEX
       --machine NAME --machines JSON --library PATH --parent FD [--attached]

It carries messages between this machine's part of the fabric and the others', in C.  A signal ends
it, and so does the loss of its segment.

It tells the parent "ready" and the engine, or "error" and why, and continues when the parent
answers with a byte.  If the parent is gone instead, it exits.  With --attached it also ends when
the parent is gone later, and takes this machine's part away.

Exit code: 0: a signal, or the segment is gone; 1: it could not begin, or failed.  Messages go to
stderr, which is the log.
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from nupa.base.errors import FabricError, LocalError, NupaError
from nupa.base.state_file import record
from nupa.core.trunk import Trunk
from nupa.fabric import Fabric
from nupa.trunk import library
from nupa.trunk.cluster import Machine

EXIT_ENDED = 0
EXIT_FAILED = 1
_LOOK_MS = 1000
_OUR_LIBRARIES = Path(__file__).resolve().parent.parent / "lib"


class Runner:
    """A trunk that runs in a thread of its own.  *ended*: readable when it has."""

    def __init__(self, trunk: Trunk) -> None:
        self._trunk = trunk
        self.ended = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="nupa-trunk")

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self._trunk.run()
        except NupaError as error:
            say(str(error))
        os.eventfd_write(self.ended, 1)

    def close(self) -> None:
        """Ends it, and the trunk."""
        self._trunk.stop()
        if self._thread.ident is not None:
            self._thread.join()
        self._trunk.close()
        os.close(self.ended)


def say(line: str) -> None:
    """Writes a line to the log."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"{stamp} trunk {os.getpid()}: {line}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    faulthandler.enable()
    args = _parser().parse_args(argv)
    os.chdir("/")  # keep no other file system busy
    # The name in ps.
    Path("/proc/self/comm").write_text("nupa-trunk")
    wake, _woken = _signals()
    with socket.socket(fileno=args.parent) as parent:
        try:
            code, leave = _trunk(args, wake, parent)
        except NupaError as error:
            say(str(error))
            with suppress(OSError):
                parent.sendall(f"error {error}".encode())
            return EXIT_FAILED
    if leave:
        from nupa.trunk.down import take_away

        take_away(args.fabric, args.generation, by=os.getpid())
    return code


def _trunk(args: argparse.Namespace, wake: int, parent: socket.socket) -> tuple[int, bool]:
    """Serves until the end; returns the exit code, and whether to take the part away."""
    with Fabric.open(args.segment) as fabric:
        if fabric.generation != args.generation:
            raise LocalError(f"the fabric {args.fabric!r} was replaced by another", errno.ESTALE)
        places = [(resolved(machine.address), machine.port) for machine in args.machines]
        own = [machine.name for machine in args.machines].index(args.machine)
        trunk = library.first_of(
            args.library, lambda found: Trunk(fabric, places[own], places, found)
        )
        with closing(Runner(trunk)) as runner:
            _check_libraries()
            say(f"{args.machine} listens at {places[own][0]} port {places[own][1]}: {trunk.engine}")
            runner.start()
            parent.sendall(f"ready {trunk.engine}".encode())
            if not _told_to_go_on(parent, wake):
                return EXIT_FAILED, False
            return _serve(args, runner, wake, parent)


def resolved(address: str) -> str:
    """Returns the first address of a name.  LocalError: it is not known here."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LocalError(
            f"the address {address!r} is not known here: {why}", errno.ENOENT
        ) from None
    return str(found[0][4][0])


def _check_libraries() -> None:
    """Raises FabricError if a library of `nupa run` stands in the place of a real one."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        paths = {line.rstrip("\n").partition("/")[2] for line in maps}
    for path in sorted(paths):
        if path and Path(f"/{path}").parent == _OUR_LIBRARIES:
            raise FabricError(
                f"UCX has loaded /{path}, a library of NUPA: take it out of the loader's "
                f"configuration, /etc/ld.so.conf and /etc/ld.so.preload",
                errno.EINVAL,
            )


def _told_to_go_on(parent: socket.socket, wake: int) -> bool:
    ready, _, _ = select.select([parent.fileno(), wake], [], [])
    return wake not in ready and bool(parent.recv(1))


def _serve(
    args: argparse.Namespace, runner: Runner, wake: int, parent: socket.socket
) -> tuple[int, bool]:
    poll = select.poll()
    for fd in (wake, runner.ended):
        poll.register(fd, select.POLLIN)
    if args.attached:
        poll.register(parent, select.POLLIN)
    inode = os.stat(args.segment).st_ino  # noqa: PTH116
    while True:
        ready = {fd for fd, _ in poll.poll(_LOOK_MS)}
        if runner.ended in ready:
            return EXIT_FAILED, args.attached
        if wake in ready:
            say(f"ends by {signal.Signals(os.read(wake, 1)[0]).name}")
            return EXIT_ENDED, False
        if args.attached and parent.fileno() in ready:
            say("its command has ended: ends")
            return EXIT_ENDED, True
        if _is_gone(args.segment, inode):
            say("the fabric is gone: ends")
            return EXIT_ENDED, args.attached


def _is_gone(path: str, inode: int) -> bool:
    try:
        return os.stat(path).st_ino != inode  # noqa: PTH116
    except OSError:
        return True


def _signals() -> tuple[int, socket.socket]:
    """Returns a descriptor from which the numbers of SIGTERM and SIGINT can be read."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return ours.detach(), theirs


def _machines(said: str) -> Sequence[Machine]:
    return [record(Machine, value) for value in json.loads(said)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nupa.trunk.process")
    parser.add_argument("--folder", required=True, metavar="NUPA_DIR")
    parser.add_argument("--fabric", required=True, metavar="NAME")
    parser.add_argument("--segment", required=True, metavar="PATH")
    parser.add_argument("--generation", required=True, metavar="HEX")
    parser.add_argument("--machine", required=True, metavar="NAME", help="this one")
    parser.add_argument("--machines", required=True, type=_machines, metavar="JSON")
    parser.add_argument("--library", required=True, metavar="PATH", help="libucp; empty: any")
    parser.add_argument("--parent", type=int, required=True, metavar="FD", help="a socket")
    parser.add_argument("--attached", action="store_true", help="end with the parent")
    return parser


if __name__ == "__main__":
    sys.exit(main())
