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

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuses unknown words here, where the help of this command is the one to name."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, []

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
