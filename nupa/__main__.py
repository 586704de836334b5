# SPDX-License-Identifier: BSD-3-Clause
"""The start of the command `nupa`, also as `python -m nupa`.

Ctrl-C ends it as it ends a program in C, until a command runs that cleans up: Python would print a
traceback of the module that is being imported.
"""

import signal
import sys


def main() -> int:
    """Runs the command line; returns its exit code."""
    _end_by_interrupt()
    from nupa.cli import main as run

    try:
        return run()
    finally:
        _end_by_interrupt()


def _end_by_interrupt() -> None:
    """Lets SIGINT end the process, unless our parent had it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
