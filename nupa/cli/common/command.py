# SPDX-License-Identifier: BSD-3-Clause
"""Help, exit codes and errors of commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subparsers = argparse._SubParsersAction

EXIT_ERROR = 1
EXIT_USAGE = 2


class Help(argparse.RawDescriptionHelpFormatter):
    """Help with examples.

    argparse would ask shutil for the width, which takes 8 ms to import, even to print no help.
    """

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size().columns
        except OSError:
            columns = 80
        super().__init__(prog, width=max(columns - 2, 40))


class Parser(argparse.ArgumentParser):
    """A parser that reports a wrong command line in one line, as all errors are."""

    #: Of a command that runs a program: its own words before that; None: it runs none.
    words_before_program: int | None = None

    def takes(self, option: str) -> bool:
        return option in self._option_string_actions

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuses unknown words here, where the help of this command is the one to name."""
        own = list(args or ())
        program: list[str] = []
        if self.words_before_program is not None:
            own, program = self._split(own, self.words_before_program)
        found, unknown = super().parse_known_args(own, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        if self.words_before_program is not None:
            found.command = program
        return found, []

    def _split(self, words: list[str], own: int) -> tuple[list[str], list[str]]:
        """Returns options and *own* words, in any order, and the program: argparse.REMAINDER would
        take options behind a word as the program's."""
        at = 0
        while at < len(words):
            word = words[at]
            if word == "--":
                return words[:at], words[at + 1 :]
            if word[:1] != "-":
                if own == 0:
                    return words[:at], words[at:]
                own -= 1
            elif "=" not in word:
                meant = [
                    action
                    for option, action in self._option_string_actions.items()
                    if option.startswith(word)
                ]
                at += any(action.nargs != 0 for action in meant)
            at += 1
        return words, []

    def error(self, message: str) -> object:  # type: ignore[override]
        self.exit(EXIT_USAGE, f"nupa: {message}; see `{self.prog} --help`\n")


def add_command(
    subparsers: Subparsers,
    name: str,
    what: str,
    epilog: str,
    run: Callable[[argparse.Namespace], int] | None = None,
    formatter_class: type[Help] = Help,
    **options: Any,
) -> argparse.ArgumentParser:
    """Adds a command with its one-line help, its epilog, and the function that runs it.

    *run* has its parser as `args.parser`.  None: the command has commands of its own.
    """
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, help=what, epilog=epilog, formatter_class=formatter_class, **options
    )
    if run is not None:
        parser.set_defaults(run=run, parser=parser)
    return parser


def exit_by_signals() -> None:
    """Makes SIGINT, SIGTERM and SIGHUP raise SystemExit once; the clean-up ignores later ones."""
    import signal

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, _frame: object) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in numbers:
        signal.signal(number, stop)


def fail(message: str, code: int = EXIT_ERROR) -> int:
    """Prints *message* on stderr, in one line; returns *code*."""
    print(f"nupa: {' '.join(message.split())}", file=sys.stderr)
    return code
