# SPDX-License-Identifier: BSD-3-Clause
"""The keeper's process: `python -m nupa.fabric.wires.process`, started for the first wire behind a
local address.

usage: python -m nupa.fabric.wires.process --folder NUPA_DIR --fabric NAME --generation HEX
       --listen ADDRESS --parent FD --wire JSON

It tells the parent, in JSON, that the wire stands, or why not.  Commands ask for further wires at
the sockets of those that stand, in JSON: {"op": "add", "host": …, "address": …, "medium": …} or
{"op": "remove", "host": …}.  It ends with its last wire, its fabric, or a signal.

Exit code: 0: its wires or its fabric are gone, or a signal; 1: it could not begin; 4: others
declared it dead.  Messages go to stderr, which is the log.
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import ipaddress
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from nupa.base.errors import LocalError, NupaError
from nupa.fabric import registry
from nupa.fabric.fabric import Fabric
from nupa.fabric.wires import place
from nupa.fabric.wires.address import parse
from nupa.fabric.wires.keeper import KeeperEvent, KeeperRequest, WireKeeper, WireWish, medium_of
from nupa.fabric.wires.start import say_why

EXIT_ENDED = 0
EXIT_FAILED = 1
EXIT_FENCED = 4
_LOOK_MS = 1000


def say(line: str) -> None:
    """Writes a line to the log."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"{stamp} keeper {os.getpid()}: {line}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    faulthandler.enable()
    args = _parser().parse_args(argv)
    os.environ["NUPA_DIR"] = args.folder
    os.chdir("/")  # keep no other file system busy
    # The name in ps and `nupa show`.
    Path("/proc/self/comm").write_text("nupa-wire")
    wake, _woken = _signals()
    with socket.socket(fileno=args.parent) as parent:
        try:
            with Fabric.open(args.fabric) as fabric:
                if fabric.generation != args.generation:
                    raise LocalError(f"the fabric {args.fabric!r} is another one", errno.ESTALE)
                with WireKeeper(fabric, ipaddress.ip_address(args.listen)) as keeper:
                    _add(fabric, keeper, json.loads(args.wire))
                    parent.sendall(say_why(None))
                    parent.close()
                    return _serve(fabric, keeper, wake)
        except NupaError as error:
            say(str(error))
            if parent.fileno() >= 0:
                parent.sendall(say_why(error))
            return EXIT_FAILED


def _serve(fabric: Fabric, keeper: WireKeeper, wake: int) -> int:
    while keeper.wires:
        event, request = keeper.run(wake, _LOOK_MS)
        if event is KeeperEvent.WOKEN:
            say(f"ends by {signal.Signals(os.read(wake, 1)[0]).name}")
            return EXIT_ENDED
        if event is KeeperEvent.FENCED:
            say("was stopped for so long that others declared it dead: ends")
            return EXIT_FENCED
        if request is not None:
            _answer(fabric, keeper, request)
        if not _is_there(fabric):
            say("the fabric is gone: ends")
            return EXIT_ENDED
    say("its last wire is gone: ends")
    return EXIT_ENDED


def _is_there(fabric: Fabric) -> bool:
    try:
        there = os.stat(registry.path_of(fabric.name))  # noqa: PTH116
    except OSError:
        return False
    here = os.fstat(fabric._segment.fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _answer(fabric: Fabric, keeper: WireKeeper, request: KeeperRequest) -> None:
    with socket.socket(fileno=request.fd) as asker:
        error: BaseException | None = None
        try:
            asked = json.loads(request.text)
            if asked["op"] == "add":
                _add(fabric, keeper, asked)
            elif asked["op"] == "remove":
                keeper.remove(str(asked["host"]))
            else:
                raise LocalError(f"a keeper does not know {asked['op']!r}", errno.EINVAL)
        except NupaError as failed:
            error = failed
        except (ValueError, KeyError, TypeError, RecursionError) as failed:
            error = LocalError(f"not a request for a keeper: {failed!r}", errno.EINVAL)
        with suppress(OSError):
            asker.send(say_why(error))


def _add(fabric: Fabric, keeper: WireKeeper, asked: dict[str, Any]) -> None:
    medium = medium_of(str(asked["medium"]))
    wish = WireWish(str(asked["host"]), str(asked["address"]), medium, str(asked["frames"]))
    host = fabric.host(wish.host)
    keeper.add(wish, parse(wish.address), place.socket_of(fabric.name, host.index))
    say(f"a wire from {host.name} to {wish.address}")


def _signals() -> tuple[int, socket.socket]:
    """Returns a descriptor from which the numbers of SIGTERM and SIGINT can be read."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return ours.detach(), theirs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nupa.fabric.wires.process")
    parser.add_argument("--folder", required=True, metavar="NUPA_DIR")
    parser.add_argument("--fabric", required=True, metavar="NAME")
    parser.add_argument("--generation", required=True, metavar="HEX")
    parser.add_argument("--listen", required=True, metavar="ADDRESS")
    parser.add_argument("--parent", type=int, required=True, metavar="FD", help="a socket")
    parser.add_argument("--wire", required=True, metavar="JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
