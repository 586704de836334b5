# SPDX-License-Identifier: BSD-3-Clause
"""Help, exit codes and errors of commands."""

from __future__ import annotations

import argparse
import os
import sys

EXIT_ERROR = 1
EXIT_USAGE = 2


class Help(argparse.RawDescriptionHelpFormatter):
    """Help with examples.  argparse asks shutil for the width, also where no help is printed, and
    shutil takes 8 ms to import."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size().columns
        except OSError:
            columns = 80
        super().__init__(prog, width=max(columns - 2, 40))


class Parser(argparse.ArgumentParser):
    """One line for a wrong command line, as for every other error."""

    def error(self, message: str) -> object:  # type: ignore[override]
        self.exit(EXIT_USAGE, f"nupa: {message}; see `{self.prog} --help`\n")


def fail(message: str, code: int = EXIT_ERROR) -> int:
    """Says it on stderr, in one line; returns *code*."""
    print(f"nupa: {' '.join(message.split())}", file=sys.stderr)
    return code
