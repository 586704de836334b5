# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fault`: adds, lists and removes faults of ports."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric, whole
from nupa.cli.common.command import EXIT_USAGE, Help, Parser, Subparsers, add_command, fail

if TYPE_CHECKING:
    from nupa.fabric import Fabric, Fault, FaultEntry

_USAGE = """nupa fault PORT|LINK|HOST add KIND [options]
       nupa fault ls [--json]
       nupa fault clear ID ... | --all"""
_DESCRIPTION = """\
PORT    host0/1, switch0/2: as `nupa show` names it
LINK    host0-switch0, host0/1-switch0/1
HOST    host0, 0: its port
ID      as `nupa fault ls` has it
"""
_EPILOG = """\
{kinds}

A fault applies to all packets between two hosts whose path crosses its port, in either direction.
They may be packets of verbs, of rdma_cm or of the network interfaces.  The fault's seed and the
packets' numbers decide which are hit.  The same program fails in the same way under the same seed.

examples:
  nupa fault host0 add drop --probability 1%
  nupa fault host0-switch0 add delay --delay 2ms --after 100 --count 10 --seed 7
  nupa fault switch0/2 add bandwidth --rate 10MB/s --for 30s
  nupa fault host1 add flap --duration 50ms
  nupa fault ls
  nupa fault clear --all
"""
# The options of `add`, by their names in Fault.
_OPTIONS = ("probability", "count", "after", "for_", "duration", "rate", "seed")


class _Help(Help):
    """Help with the table of kinds, which needs the engine and so is made only to be printed."""

    def add_text(self, text: str | None) -> None:
        super().add_text(text and text.replace("{kinds}", _kinds()))


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "fault",
        "inject faults: drop, delay, corrupt, poison, a link that flaps, ...",
        _EPILOG,
        run,
        usage=_USAGE,
        description=_DESCRIPTION,
        formatter_class=_Help,
    )
    parser.add_argument("words", nargs="+", metavar="PORT|ls|clear", help=argparse.SUPPRESS)
    add = parser.add_argument_group("options of add")
    add.add_argument("--probability", metavar="P", help="hit with this probability: 1%% (100%%)")
    add.add_argument("--count", type=whole, metavar="N", help="hit at most N packets, 0: all (0)")
    add.add_argument("--after", type=whole, metavar="N", help="let N packets pass first (0)")
    add.add_argument(
        "--for", dest="for_", metavar="TIME", help="end the fault after this time: 2s, 50ms (never)"
    )
    add.add_argument(
        "--duration", "--delay", metavar="TIME", help="set how long its effect lasts: 50ms, 10us"
    )
    add.add_argument("--rate", metavar="RATE", help="limit the rate: 10MB/s, 1GiB/s or 10Gb/s")
    add.add_argument("--seed", type=whole, metavar="N", help="repeat this seed's failures (drawn)")
    parser.add_argument("--all", action="store_true", help="with clear: clear all faults")
    parser.add_argument("--json", action="store_true", help="with add and ls: print JSON")
    add_fabric(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.fabric import Fabric, LocalError

    words, parser = args.words, args.parser
    if words[0] not in ("ls", "clear"):
        if len(words) != 3 or words[1] != "add":
            parser.error(f"{' '.join(words)!r}: write {words[0]} add KIND, ls, or clear")
        _refuse(args, parser, "add", "all")
        try:
            fault = _fault(args)
        except LocalError as error:
            return fail(str(error), EXIT_USAGE)
        with Fabric.open(args.fabric) as fabric:
            _say_added(fabric.add_fault(words[0], fault), args)
        return 0
    if words[0] == "ls":
        _refuse(args, parser, "ls", *_OPTIONS, "all")
        if words[1:]:
            parser.error(f"ls lists all faults of a fabric, and takes no {words[1]!r}")
        with Fabric.open(args.fabric) as fabric:
            return _ls(fabric, as_json=args.json)
    _refuse(args, parser, "clear", *_OPTIONS, "json")
    numbers = _numbers(words[1:], parser)
    if bool(numbers) == args.all:
        parser.error("clear takes the IDs of faults, or --all")
    with Fabric.open(args.fabric) as fabric:
        return _clear(fabric, numbers)


def _numbers(words: list[str], parser: Parser) -> list[int]:
    for word in words:
        if not word.isdecimal() or int(word) == 0:
            parser.error(f"{word!r} is not the ID of a fault: `nupa fault ls` lists them")
    return [int(word) for word in words]


def _refuse(args: argparse.Namespace, parser: Parser, word: str, *options: str) -> None:
    for option in options:
        if getattr(args, option) not in (None, False):
            parser.error(f"{word} takes no --{option.removesuffix('_')}")


def _fault(args: argparse.Namespace) -> Fault:
    from nupa.fabric import Fault

    return Fault(args.words[2], **{option: getattr(args, option) for option in _OPTIONS})


def _say_added(entry: FaultEntry, args: argparse.Namespace) -> None:
    import shlex

    from nupa.cli.common.text import print_json

    if args.json:
        print_json(entry.as_dict())
        return
    again = ["nupa", *args.argv]
    if args.seed is None and "seed" in entry.fault.options:
        again += ["--seed", entry.fault.options["seed"]]
    print(f"fault {entry.id} on {entry.port}: {entry.fault}\nagain: {shlex.join(again)}")


def _ls(fabric: Fabric, *, as_json: bool) -> int:
    from nupa.cli.common.text import print_json, table

    entries = fabric.faults()
    if as_json:
        print_json([entry.as_dict() for entry in entries])
    elif entries:
        rows = [
            [
                entry.id,
                entry.port,
                entry.fault.kind,
                entry.fault.parameters or "-",
                entry.fault.options.get("seed", "-"),
                entry.seen,
                entry.hits,
                entry.left,
            ]
            for entry in entries
        ]
        head = ["ID", "PORT", "KIND", "PARAMETERS", "SEED", "PACKETS SEEN", "PACKETS HIT", "LEFT"]
        print(table(head, rows))
    else:
        print(f"{fabric.name} has no faults: `nupa fault PORT add KIND` adds one")
    return 0


def _clear(fabric: Fabric, numbers: list[int]) -> int:
    if not numbers:
        fabric.clear_faults()
        return 0
    missing = [str(number) for number in numbers if not fabric.clear_fault(number)]
    if missing:
        return fail(f"{fabric.name} has no fault {', '.join(missing)}: `nupa fault ls` lists them")
    return 0


def _kinds() -> str:
    """Returns a line for each kind, and one for its options."""
    from nupa.base import quantity
    from nupa.fabric.fault import KINDS

    lines = ["kinds:"]
    for kind, info in KINDS.items():
        lines.append(f"  {kind:<10} {info.what}")
        details = []
        if "duration" in info.options:
            default = quantity.say_time(info.duration_ns) if info.duration_ns else "0"
            details.append(f"--duration: {info.duration} ({default})")
        if "rate" in info.options:
            details.append("--rate: at most so much")
        if info.count:
            details.append(f"--count: {info.count} by default")
        if details:
            lines.append(f"  {'':<10} {'; '.join(details)}")
    return "\n".join(lines)
