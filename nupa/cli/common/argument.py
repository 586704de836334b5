# SPDX-License-Identifier: BSD-3-Clause
"""Types of arguments for argparse: counts, sizes and times."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from nupa.cli.common.command import Parser

if TYPE_CHECKING:
    from nupa.core.mover import Mover

FABRIC_HELP = "use this fabric (default: NUPA_FABRIC, else `default`, or the only one)"


def add_fabric(
    parser: argparse.ArgumentParser, what: str = FABRIC_HELP, *flags: str, positional: bool = False
) -> None:
    """Adds --fabric, also as *flags*; *positional*: also as a word.

    nupa.cli.common.fabric.settle() reads it, also where it stands before this command.
    """
    if positional:
        parser.add_argument("named", nargs="?", metavar="FABRIC", help="the same as --fabric")
    parser.add_argument(
        "--fabric",
        *flags,
        dest="fabric",
        metavar="NAME",
        # An option before the command has set it.
        default=argparse.SUPPRESS,
        help=what,
    )


def add_mover(
    parser: argparse._ActionsContainer, movers: Iterable[Mover], what: str = "as for `nupa run`"
) -> None:
    parser.add_argument("--mover", choices=[str(mover) for mover in movers], help=what)


def add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def add_boot_timeout(parser: argparse._ActionsContainer) -> None:
    """Adds --timeout, of a guest's start."""
    parser.add_argument(
        "--timeout",
        type=seconds(86400),
        default=120.0,
        metavar="SECONDS",
        help="wait this long for a guest to boot (default: 120)",
    )


def add_program(parser: argparse.ArgumentParser, *, on_host: bool = True) -> None:
    """Adds the program to run, behind options and HOST; command_of() reads it.

    *on_host*: HOST is a word, not an option.
    """
    assert isinstance(parser, Parser)
    if on_host:
        parser.add_argument("host", metavar="HOST", help="name or number of the host")
    parser.words_before_program = int(on_host)


def command_of(args: argparse.Namespace, default: list[str] | None = None) -> list[str]:
    """Returns the words of the program, else *default*; None: a program is needed."""
    command: list[str] = args.command
    if not command and default is None:
        args.parser.error("name a command after --")
    if command and not command[0]:
        args.parser.error("the command after -- is an empty word: name a program")
    return command or default or []


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


def size(step_bytes: int = 1, *, least: int = 0, most: int = (1 << 64) - 1) -> Callable[[str], int]:
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
        if not least <= found <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a size from {say_bytes(least)} to {say_bytes(most)}"
            )
        return found

    return parse


def rate(text: str) -> int:
    """Parses bytes a second with a unit, as 10MB/s or 10Gb/s; "none": 0, no limit."""
    from nupa.base.errors import LocalError
    from nupa.base.quantity import bytes_per_s

    try:
        return 0 if text == "none" else bytes_per_s(text)
    except LocalError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def limit(of: Callable[[str], int]) -> Callable[[str], int]:
    """Returns a parser of limits, by *of* one limit's; "none": 0, no limit."""
    return lambda text: 0 if text == "none" else of(text)


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
