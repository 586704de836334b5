# SPDX-License-Identifier: BSD-3-Clause
"""Types of arguments for argparse: counts, sizes and times."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nupa.core.mover import Mover


def add_fabric(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fabric", metavar="NAME", help="use this fabric (default: `default`, or the only one)"
    )


def add_mover(
    parser: argparse._ActionsContainer, movers: Iterable[Mover], what: str = "as for `nupa run`"
) -> None:
    parser.add_argument("--mover", choices=[str(mover) for mover in movers], help=what)


def add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def add_program(parser: argparse.ArgumentParser) -> None:
    """Adds a host and the program to run there; nupa.cli.run.program.command_of() reads it."""
    parser.add_argument("host", metavar="HOST", help="name or number of the host")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")


def count(text: str) -> int:
    """Parses a decimal number from 1 to 2^32 - 1."""
    if not text.isdecimal() or not 0 < int(text) < 1 << 32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 2^32 - 1")
    return int(text)


def whole(text: str) -> int:
    """Parses a number in any base, like 16 or 0x10."""
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number like 16 or 0x10") from None


def size(step_bytes: int = 1) -> Callable[[str], int]:
    """Returns a parser of sizes, as nupa.base.quantity has them, in multiples of *step_bytes*."""

    def parse(text: str) -> int:
        from nupa.base.errors import LocalError
        from nupa.base.quantity import byte_count, say_bytes

        try:
            found = byte_count(text)
        except LocalError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if found % step_bytes:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a multiple of {say_bytes(step_bytes)}"
            )
        return found

    return parse


def seconds(most: int = 10**9) -> Callable[[str], float]:
    """Returns a parser of times above 0 and up to *most* seconds; without a unit, of seconds."""

    def parse(text: str) -> float:
        from nupa.base.errors import LocalError
        from nupa.base.quantity import nanoseconds

        try:
            found = float(text) if text[-1:].isdecimal() else nanoseconds(text) / 1e9
        except (ValueError, LocalError):
            found = 0.0
        if not 0 < found <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a time above 0, at most {most}s, as 5s, 500ms, 2min"
            )
        return found

    return parse
