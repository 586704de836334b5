# SPDX-License-Identifier: BSD-3-Clause
"""`nupa replay`: plays a capture's requests on a new fabric and compares the results."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric, add_json
from nupa.cli.common.command import EXIT_USAGE, Subparsers, add_command, fail

if TYPE_CHECKING:
    from nupa.replay import Report

EXIT_DIFFERS = 1
_DIFFERENCES_SHOWN = 20
_LINE_S = 0.2  # between two lines of progress

_DESCRIPTION = """\
Reads the InfiniBand transport packets of a capture, of `nupa capture` or of real adapters.  Makes
the same hosts, queue pairs and memory, and plays each request.  Compares with the capture: status,
data read or received, and original values of atomics.
"""
_EPILOG = """\
Exit code: 0 if all comparable results match, 1 if something differs, 2 if the file or the command
line is wrong.  docs/replay.md says how to make a test of a capture.

examples:
  nupa replay failure.pcapng
  nupa replay failure.pcapng --json | jq '.differences[].packet'
  nupa replay failure.pcapng --realtime         with the pauses of the capture
  nupa replay failure.pcapng --fabric rack      between hosts of a fabric that is up
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "replay",
        "play a capture's requests again and compare",
        _EPILOG,
        run,
        description=_DESCRIPTION,
    )
    parser.add_argument("file", help="a pcapng or pcap file")
    add_json(parser)
    parser.add_argument(
        "--realtime", action="store_true", help="keep the pauses of the capture (default: none)"
    )
    add_fabric(parser, "play on this fabric (default: a new one in this process)")


def run(args: argparse.Namespace) -> int:
    from nupa.base.errors import NupaError
    from nupa.cli.common.text import print_json

    try:
        report = _replay(args)
    except (NupaError, OSError) as error:
        return fail(str(error), EXIT_USAGE)
    if args.json:
        print_json(report.as_dict())
    else:
        print(report.text(_DIFFERENCES_SHOWN))
    return EXIT_DIFFERS if report.differed else 0


def _replay(args: argparse.Namespace) -> Report:
    from nupa.fabric import Fabric
    from nupa.replay import replay

    with _Progress() as progress:
        if args.fabric is None:
            return replay(args.file, realtime=args.realtime, progress=progress)
        with Fabric.open(args.fabric) as fabric:
            return replay(args.file, fabric=fabric, realtime=args.realtime, progress=progress)


class _Progress:
    """One line on a terminal, rewritten in place; nothing elsewhere."""

    def __init__(self) -> None:
        self._to = sys.stderr if sys.stderr.isatty() else None
        self._next = time.monotonic() + _LINE_S

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._to is not None:
            self._to.write("\r\x1b[K")

    def __call__(self, stage: str, done: int, of: int) -> None:
        if self._to is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LINE_S
        text = f"{done} of {of} requests" if of else f"{done} packets"
        self._to.write(f"\r{stage}: {text}\x1b[K")
        self._to.flush()
