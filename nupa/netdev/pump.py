# SPDX-License-Identifier: BSD-3-Clause
"""The pump's process: `python -m nupa.netdev.pump`, started by `net up` with the queues it serves.

usage: python -m nupa.netdev.pump --folder NUPA_DIR --fabric NAME --segment PATH
       --generation HEX --parent FD [--holder FD] [--netns INODE PATH] HOST:MTU:FD[,FD...] ...

The pump attaches to each HOST (a number) and moves frames, in C.  A signal ends it, and so
does the loss of its namespaces or of its last interface.

It tells the parent "ready", or "error" and why, and continues when the parent answers with a byte.
If the parent is gone instead, it exits.

Exit code: 0: a signal, or the namespaces are gone; 1: it could not begin; 3: no interface is left.
Messages go to stderr, which is the log.
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from nupa.core.attachment import NetQueue
from nupa.fabric import Fabric, LocalError, NupaError
from nupa.netdev.start import PumpPort

EXIT_ENDED = 0
EXIT_FAILED = 1
EXIT_NO_INTERFACE = 3


class Pump:
    """All queues of the interfaces, with a thread for each queue number."""

    def __init__(self, fabric: Fabric, ports: Sequence[PumpPort]) -> None:
        """Attaches to all hosts.

        FabricError: no slot or no room; LocalError: another process serves one of them.
        """
        self._names = {port.host: fabric.host(port.host).name for port in ports}
        self._threads: list[threading.Thread] = []
        self._queues: list[NetQueue] = []
        #: Readable: "e": no interface is left; "s": others declared this process dead.
        self.ended, self._end = os.pipe()
        try:
            for queue in range(max(len(port.fds) for port in ports)):
                self._add_queue(fabric, queue, [port for port in ports if queue < len(port.fds)])
        except BaseException:
            self.close()
            raise

    def _add_queue(self, fabric: Fabric, queue: int, ports: Sequence[PumpPort]) -> None:
        served = NetQueue(fabric, queue)
        self._queues.append(served)
        for port in ports:
            served.attach(port.host, port.fds[queue], port.mtu_bytes)
        run = threading.Thread(
            target=self._run, args=(served, len(ports)), name=f"nupa-pump/{queue}"
        )
        self._threads.append(run)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends the threads and detaches from all hosts."""
        for queue in self._queues:
            queue.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for queue in self._queues:
            queue.close()
        os.close(self.ended)
        os.close(self._end)

    def _run(self, queue: NetQueue, interfaces: int) -> None:
        try:
            while interfaces:
                gone = queue.run()
                if gone is None:
                    return
                say(f"the interface of {self._names[gone]} is gone")
                interfaces -= 1
        except NupaError as error:
            if error.errno == errno.ESTALE:
                os.write(self._end, b"s")
                return
            say(str(error))
        os.write(self._end, b"e")


def say(line: str) -> None:
    """Writes a line to the log."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"{stamp} pump {os.getpid()}: {line}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    faulthandler.enable()
    args = _parser().parse_args(argv)
    os.environ["NUPA_DIR"] = args.folder
    os.chdir("/")  # keep no other file system busy
    # The name in ps and `nupa show`.
    Path("/proc/self/comm").write_text("nupa-pump")
    wake, _woken = _signals()
    with socket.socket(fileno=args.parent) as parent:
        try:
            code = _pump(args, wake, parent)
        except NupaError as error:
            say(str(error))
            parent.sendall(f"error {error}".encode())
            return EXIT_FAILED
    try:
        while code is None:
            say("was stopped for so long that others declared it dead: attaches again")
            code = _pump(args, wake, None)
    except NupaError as error:
        say(str(error))
        return EXIT_FAILED
    return code


def _pump(args: argparse.Namespace, wake: int, parent: socket.socket | None) -> int | None:
    """Attaches and serves; returns the exit code, or None if others declared this process dead."""
    with Fabric.open(args.segment) as fabric:
        if fabric.generation != args.generation:
            raise LocalError(f"the fabric {args.fabric!r} was replaced by another", errno.ESTALE)
        with closing(Pump(fabric, args.ports)) as pump:
            pump.start()
            if parent is not None:
                parent.sendall(b"ready")
                if not _told_to_go_on(parent, wake):
                    return EXIT_FAILED
                parent.close()
            return _serve(pump, wake, args)


def _told_to_go_on(parent: socket.socket, wake: int) -> bool:
    ready, _, _ = select.select([parent.fileno(), wake], [], [])
    return wake not in ready and bool(parent.recv(1))


def _serve(pump: Pump, wake: int, args: argparse.Namespace) -> int | None:
    """Serves until an event ends it; None: others declared this process dead."""
    poll = select.poll()
    for fd in (wake, pump.ended, *args.holder):
        poll.register(fd, select.POLLIN)
    with Path("/proc/self/mounts").open("rb") as mounts:
        # proc_pid_mounts(5): readable by POLLPRI when a mount came or went.
        if args.netns:
            poll.register(mounts, select.POLLPRI)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if pump.ended in ready:
                if os.read(pump.ended, 1) == b"s":
                    return None
                say("no interface is left: ends")
                return EXIT_NO_INTERFACE
            if wake in ready:
                say(f"ends by {signal.Signals(os.read(wake, 1)[0]).name}")
            elif ready & set(args.holder) or any(map(_is_gone, args.netns)):
                say("the namespaces are gone: ends")
            else:
                continue
            return EXIT_ENDED


def _is_gone(netns: list[str]) -> bool:
    inode, path = netns
    try:
        return os.stat(path).st_ino != int(inode)  # noqa: PTH116
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nupa.netdev.pump")
    parser.add_argument("--folder", required=True, metavar="NUPA_DIR")
    parser.add_argument("--fabric", required=True, metavar="NAME")
    parser.add_argument("--segment", required=True, metavar="PATH")
    parser.add_argument("--generation", required=True, metavar="HEX")
    parser.add_argument("--parent", type=int, required=True, metavar="FD", help="a socket")
    parser.add_argument(
        "--holder", type=int, action="append", default=[], metavar="FD", help="a pidfd"
    )
    parser.add_argument("--netns", nargs=2, action="append", default=[], metavar=("INODE", "PATH"))
    parser.add_argument("ports", nargs="+", type=PumpPort.parse, metavar="HOST:MTU:FD[,FD...]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
