# SPDX-License-Identifier: BSD-3-Clause
"""`nupa trace`: lists the transfers of a capture, or draws one as a sequence diagram."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_json, whole
from nupa.cli.common.argument import count as _count
from nupa.cli.common.command import Subparsers, add_command, fail

if TYPE_CHECKING:
    from nupa.diagram.draw.diagram import Diagram
    from nupa.diagram.find.index import Index
    from nupa.diagram.find.transfer import Transfer

_DESCRIPTION = """\
Lists the transfers of a capture, or draws one: work request, doorbell, packets, crossings of ports,
completion.  In captures of real adapters, whose records have no transfer, QPs and PSNs identify it.
"""
_EPILOG = """\
examples:
  nupa run --capture x.pcapng -- ./my_program
  nupa trace x.pcapng                       the list
  nupa trace x.pcapng --slowest 5           the five slowest
  nupa trace x.pcapng --only retry          those with retransmissions
  nupa trace x.pcapng --number 3            a diagram of the third
  nupa trace x.pcapng --packet 17           the transfer of Wireshark's frame 17
  nupa trace x.pcapng --number 3 --svg x.svg
  nupa trace x.pcapng --json | jq '.transfers[] | select(.duration_ns > 10000).number'
"""
_SORTS = ("start", "duration", "bytes", "records")
_FLAGS = (
    *("retry", "corrupt", "poison", "dropped", "duplicate", "delayed"),
    *("injected", "replayed", "nak", "rnr", "error"),
)


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "trace",
        "list the transfers of a capture, or draw one",
        _EPILOG,
        run,
        description=_DESCRIPTION,
    )
    parser.add_argument("file", metavar="FILE", help="a pcapng or pcap file")
    of_list = parser.add_argument_group("the list")
    of_list.add_argument("--sort", choices=_SORTS, default=None, help="sort by it (default: start)")
    of_list.add_argument(
        "--slowest", type=_count, metavar="N", help="list the N slowest, the slowest first"
    )
    of_list.add_argument(
        "--only",
        choices=_FLAGS,
        action="append",
        metavar="FLAG",
        help=f"list those with this flag, or one of several: {', '.join(_FLAGS)}",
    )
    diagram = parser.add_argument_group("the diagram")
    which = diagram.add_mutually_exclusive_group()
    which.add_argument("--number", type=_count, metavar="N", help="draw transfer N of the list")
    which.add_argument("--transfer", type=whole, metavar="ID", help="draw the transfer of this ID")
    which.add_argument("--packet", type=_count, metavar="N", help="draw the transfer of packet N")
    diagram.add_argument("--all", action="store_true", help="draw each record, without folding")
    diagram.add_argument("--svg", metavar="OUT", help="write the diagram as SVG; - is stdout")
    diagram.add_argument("--ascii", action="store_true", help="use plain ASCII")
    diagram.add_argument(
        "--width",
        type=_count,
        metavar="N",
        help="draw in 80 to 200 columns (default: the terminal's)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Returns 0: shown; 1: no such transfer, or the file is damaged, and its beginning is shown; 2:
    options that exclude each other."""
    from nupa.diagram.find.index import read_index

    one = args.number is not None or args.transfer is not None or args.packet is not None
    if one and (args.sort or args.slowest or args.only):
        args.parser.error(
            "--sort, --slowest and --only are for the list, and one transfer is named"
        )
    index = read_index(args.file)
    if one or args.svg or args.all:
        _draw(args, index)
    else:
        _list(args, index)
    return fail(str(index.damage)) if index.damage else 0


def _list(args: argparse.Namespace, index: Index) -> None:
    import sys

    from nupa.cli.common.text import print_json
    from nupa.diagram.draw import listing, text
    from nupa.diagram.find.transfer import MARKS

    chosen = listing.choose(
        index.transfers,
        only=[MARKS[name] for name in args.only or ()],
        slowest=args.slowest or 0,
        sort=args.sort,
    )
    if args.json:
        print_json(listing.to_json(index, chosen))
        return
    shown = listing.render(index, chosen)
    plain = args.ascii or text.glyphs_for(sys.stdout.encoding) is text.ASCII
    print(text.to_ascii(shown) if plain else shown)


def _draw(args: argparse.Namespace, index: Index) -> None:
    from nupa.cli.common.text import print_json
    from nupa.diagram.draw.diagram import read_diagram

    diagram = read_diagram(index, _find(args, index), everything=args.all)
    if args.svg:
        _write_svg(args.svg, diagram)
    if args.json:
        print_json(diagram.to_json())
    elif not args.svg:
        _print(args, diagram)


def _print(args: argparse.Namespace, diagram: Diagram) -> None:
    import os
    import shutil
    import sys

    from nupa.diagram.draw import text

    glyphs = text.ASCII if args.ascii else text.glyphs_for(sys.stdout.encoding)
    width = args.width or shutil.get_terminal_size().columns
    # https://no-color.org
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print(text.render(diagram, width=width, glyphs=glyphs, colour=colour))


def _write_svg(out: str, diagram: Diagram) -> None:
    import sys
    from pathlib import Path

    from nupa.base.errors import LocalError
    from nupa.diagram.draw import svg

    drawn = svg.render(diagram)
    if out == "-":
        sys.stdout.write(drawn)
        return
    try:
        Path(out).write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise LocalError(f"{out}: cannot be written: {error.strerror}", error.errno or 0) from error


def _find(args: argparse.Namespace, index: Index) -> Transfer:
    """Returns the transfer that is asked for.  LocalError says which there are."""
    from nupa.base.errors import LocalError

    count = len(index.transfers)
    there = f"{index.path} has {count} transfers" if count != 1 else f"{index.path} has 1 transfer"
    if args.transfer is not None:
        found = index.by_id.get(args.transfer)
        if found is not None:
            return found
        near = ", ".join(f"{one.id:#x} (number {one.number})" for one in index.near(args.transfer))
        hint = f"near are {near}" if near else "its records name none; use --number or --packet"
        raise LocalError(f"there is no transfer {args.transfer:#x}: {there}; {hint}")
    if args.packet is not None:
        if args.packet > index.packets:
            raise LocalError(f"there is no packet {args.packet}: the last one is {index.packets}")
        found = index.owner(args.packet)
        if found is None:
            near = ", ".join(map(str, index.owned_near(args.packet)))
            hint = f"; near ones that do are {near}" if near else ""
            raise LocalError(f"packet {args.packet} belongs to no transfer{hint}")
        return found
    if args.number is None and count != 1:
        raise LocalError(f"which transfer? {there}; --number N chooses one of the list")
    number = args.number or 1
    if number > count:
        raise LocalError(f"there is no transfer number {number}: {there}")
    return index.transfers[number - 1]
