# SPDX-License-Identifier: BSD-3-Clause
"""`nupa capture`: shows or records the packets of a fabric, like tcpdump."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric, add_json, seconds
from nupa.cli.common.argument import count as _count
from nupa.cli.common.command import Subparsers, add_command
from nupa.core.levels import DEFAULT_LEVELS, LEVEL_TEXTS, LEVELS, parse_levels

if TYPE_CHECKING:
    from nupa.capture.filter import Filter
    from nupa.capture.live import Live
    from nupa.capture.loop import Capture
    from nupa.capture.sinks import Sink
    from nupa.fabric import Fabric

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TICK_S = 0.25

_LEVELS = "".join(f"  {name:<10} {text}\n" for name, text in LEVEL_TEXTS.items())
_EPILOG = f"""\
levels:
{_LEVELS}
One transfer has the same number at all levels.  The fabric never waits for a capture: a slow
reader loses records, and the summary counts them.

A filter has fields, numbers, names of values, "strings", == != < <= > >= in, and, or, not:
`nupa capture --fields` lists the fields.  Ctrl-C ends a capture and completes its
file.  docs/capture.md has the details.

examples:
  nupa capture                                     a line for each packet
  nupa capture -w x.pcapng                         into a file, for Wireshark
  nupa capture -w - | wireshark -k -i -            live
  nupa capture -i host0 --level queue,transport -c 20
  nupa capture -f 'dqpn == 0x20011 and opcode in (RC_SEND_ONLY, RC_ACKNOWLEDGE)'
  nupa capture -f 'syndrome >= 0x60 or dropped'    NAKs, and packets that faults dropped
  nupa capture -r x.pcapng -f 'transfer == 0x200110000000001' --json
  nupa run --capture x.pcapng -- ib_send_lat       while one program runs
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "capture", "show or record the packets of a fabric, like tcpdump", _EPILOG, run
    )
    parser.add_argument(
        "-i",
        dest="where",
        action="append",
        metavar="HOST|PORT|any",
        help="watch this host's port, or this port; may be given again "
        "(default: any: each packet once, at its source)",
    )
    parser.add_argument(
        "--level",
        action="append",
        metavar="LEVEL",
        help=f"record {', '.join(LEVELS)}: a list (default: {','.join(DEFAULT_LEVELS)})",
    )
    parser.add_argument("-f", dest="filter", metavar="FILTER", help="show only packets that match")
    parser.add_argument("-w", dest="write", metavar="FILE", help="write pcapng; - is stdout")
    parser.add_argument(
        "-r", dest="read", metavar="FILE", help="read pcapng or pcap instead; - is stdin"
    )
    parser.add_argument("-c", dest="count", type=_count, metavar="N", help="end after N packets")
    parser.add_argument(
        "--snaplen",
        type=_count,
        metavar="BYTES",
        help="keep the first BYTES of each packet (default: all)",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=seconds(),
        metavar="TIME",
        help="end after this time: 5s, 2min",
    )
    add_fabric(parser)
    add_json(parser)
    parser.add_argument("--fields", action="store_true", help="list the fields of filters")


def run(args: argparse.Namespace) -> int:
    if args.fields:
        from nupa.capture.fields import fields_text

        print(fields_text())
        return 0
    if args.json and args.write:
        args.parser.error("--json prints, -w writes pcapng: choose one of them")
    if args.write == "-" and sys.stdout.isatty():
        args.parser.error("pcapng is not text: pipe it, as -w - | wireshark -k -i -")
    if args.read is None:
        return _live(args)
    if args.write and _is_same(args.read, args.write):
        args.parser.error(f"-w would overwrite {args.read}, which -r reads: write another file")
    if args.where or args.fabric or args.seconds:
        args.parser.error(
            "-i, --fabric and --for are for live captures; for a file, use -f 'port == …'"
        )
    return _from_file(args)


def _is_same(read: str, write: str) -> bool:
    from pathlib import Path

    return Path(write).exists() and Path(read).exists() and Path(read).samefile(write)


def _from_file(args: argparse.Namespace) -> int:
    from nupa.capture.loop import Capture
    from nupa.packet.pcapng.reader import Reader

    levels = parse_levels(args.level) if args.level else ()
    match = _filter(args.filter, levels, {})
    with Reader(sys.stdin.buffer if args.read == "-" else args.read) as reader:
        capture = Capture(_sink(args), match, args.count)
        try:
            capture.from_file(reader)
        finally:
            capture.close()
    if args.write:
        _say(_summary(capture))
    return 0


def _live(args: argparse.Namespace) -> int:
    from nupa.capture.live import Live
    from nupa.capture.loop import Capture
    from nupa.fabric import Fabric

    with Fabric.open(args.fabric) as fabric:
        match = _filter(args.filter, (), _names(fabric))
        where, levels = args.where or ["any"], args.level or DEFAULT_LEVELS
        stop_fd = _stop_by_signal()
        with Live(fabric, where, levels, args.snaplen or 0) as live:
            capture = Capture(_sink(args, live), match, args.count)
            _say(
                f"capturing on {fabric.name}: {', '.join(where)}, "
                f"level {', '.join(live.levels)}; Ctrl-C ends it"
            )
            try:
                _follow(capture, live, stop_fd, args)
                capture.close()
            except BrokenPipeError:  # Wireshark was closed, which ends the capture, too
                _say(_summary(capture))
                raise
    _say(_summary(capture))
    if capture.lost and not args.snaplen:
        _say("records were lost because they came too fast; --snaplen 128 makes them smaller")
    return 0


def _follow(capture: Capture, live: Live, stop_fd: int, args: argparse.Namespace) -> None:
    from time import monotonic

    deadline = monotonic() + args.seconds if args.seconds else None
    shows = bool(args.write) and sys.stderr.isatty()
    next_s = 0.0

    def tick() -> None:
        nonlocal next_s
        if monotonic() >= next_s:
            next_s = monotonic() + _TICK_S
            print(f"\r{_summary(capture)} ", end="", file=sys.stderr, flush=True)

    capture.from_fabric(live, stop_fd, deadline=deadline, tick=tick if shows else None)
    if shows:
        print("\r", end="", file=sys.stderr)


def _filter(text: str | None, levels: tuple[str, ...], names: dict[str, set[str]]) -> Filter | None:
    if text is None and not levels:
        return None
    from nupa.capture.filter import Filter

    match = Filter(text, names) if text is not None else None
    if not levels:
        return match
    wanted = f"level in ({', '.join(levels)},)"
    return Filter(wanted if text is None else f"{wanted} and ({text})", names)


def _names(fabric: Fabric) -> dict[str, set[str]]:
    """Returns the values of the fields `port` and `host`."""
    from nupa.capture.view import node_of

    ports = {port.name for port in fabric.ports}
    return {"port": ports, "host": {node_of(port) for port in ports}}


def _sink(args: argparse.Namespace, live: Live | None = None) -> Sink:
    from nupa.capture.sinks import FileSink, LineSink

    if not args.write:
        return LineSink(sys.stdout, as_json=args.json)
    return FileSink(
        sys.stdout.buffer if args.write == "-" else args.write,
        interfaces=live.interfaces if live else (),
        snap_bytes=args.snaplen or 0,
        capture_filter=args.filter or "",
    )


def _stop_by_signal() -> int:
    """Returns a file that is readable after a signal; a second signal ends this process."""
    import os

    read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def stop(_number: int, _frame: object) -> None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        os.write(write_fd, b"\0")

    for number in _ENDING:
        # nohup(1) ignores SIGHUP on purpose
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    return read_fd


def _summary(capture: Capture) -> str:
    of = f" of {capture.seen} seen" if capture.seen != capture.taken else ""
    plural = "" if capture.taken == 1 else "s"
    lost = f", {capture.lost} records lost" if capture.lost else ", 0 lost"
    return f"{capture.taken} packet{plural} captured{of}{lost}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
