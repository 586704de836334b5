# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
"""The `nupa` command: reads the command line, calls the layers below, prints.

Knows arguments, output and exit codes; never how anything works.  A command is a module or package
of this package, with add_parser(subparsers), which sets `run`, a function from arguments to exit
code.  Only the module of the given command is imported, so that `nupa run` starts fast.
"""

from __future__ import annotations

import argparse
import codecs
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence

from nupa.cli.common.command import EXIT_ERROR, Help, Parser, fail
from nupa.cli.common.fabric import settle

_EPILOG = """\
examples:
  nupa run -- ib_send_lat                a program on a host of a fabric, which is made if needed
  nupa run -- ib_send_lat localhost      and its peer, on the next host
  nupa up --hosts 8                      a fabric that stays
  nupa net up                            an IP interface for each host, without root
  nupa shell host0                       a shell with network and RDMA of a host
  nupa show                              its hosts, ports, processes and traffic
  nupa vm up                             QEMU guests whose CXL memory is a fabric
  nupa capture                           the packets that cross it
  nupa model predict --work write:8 --on ib-ndr      a time on real hardware, and why
  nupa doctor                            checks what this machine can do
"""


def commands() -> list[str]:
    """Returns the names of all commands."""
    # A folder that has moved leaves its __pycache__, so a package is a folder with __init__.py.
    with os.scandir(__path__[0]) as entries:
        found = {
            entry.name.removesuffix(".py")
            for entry in entries
            if entry.name.endswith(".py") or os.access(f"{entry.path}/__init__.py", os.F_OK)
        }
    return sorted(name for name in found - {"common"} if not name.startswith("_"))


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Returns the parser, with the command that *argv* names alone, if it names one."""
    import nupa

    parser = Parser(
        prog="nupa",
        description="Software RDMA over an emulated CXL fabric: no NIC, no kernel module, no root.",
        epilog=_EPILOG,
        formatter_class=Help,
    )
    parser.add_argument("--version", action="version", version=f"nupa {nupa.__version__}")
    parser.add_argument(
        "--fabric", metavar="NAME", help="use this fabric; it may stand behind the command, too"
    )
    subparsers = parser.add_subparsers(prog="nupa", metavar="COMMAND", required=True)
    known = commands()
    for name in [meant] if (meant := _command(argv)) in known else known:
        importlib.import_module(f"nupa.cli.{name}").add_parser(subparsers)
    return parser


def _command(argv: Sequence[str]) -> str:
    """Returns the first word behind the options of `nupa` itself."""
    at = 0
    while at < len(argv) and argv[at].startswith("--fabric"):
        at += 1 if "=" in argv[at] else 2
    return argv[at] if at < len(argv) else ""


#: Letters of messages where the locale's encoding has none.
_PLAIN = {"µ": "u", "…": "...", "×": "x", "─": "-", "│": "|", "►": ">"}


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """Replaces what an encoding cannot print."""
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return "".join(_PLAIN.get(letter, "?") for letter in letters), error.end


def _print_anywhere() -> None:
    """Lets stdout print each message, in any locale."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        codecs.register_error("plainly", _plainly)
        sys.stdout.reconfigure(errors="plainly")


def _discard_output() -> None:
    """Lets the interpreter flush at its end where stdout takes no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace_closed_files() -> None:
    """Lets messages go nowhere where stdout or stderr is closed (`>&-`): they are None then, and
    print(file=None) prints on the other one."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123


def _raise_by_interrupt() -> None:
    """Lets SIGINT raise KeyboardInterrupt, if it would end the process (nupa/__main__.py)."""
    import signal

    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.  0: done; 1: an error, one line on stderr; 2: a wrong command line.

    `nupa run` returns its program's exit code instead.
    """
    argv = sys.argv[1:] if argv is None else argv
    _replace_closed_files()
    args = build_parser(argv).parse_args(argv)
    args.argv = argv  # as it was given, for commands that print it
    try:
        from nupa.base.errors import NupaError
    except ImportError as error:
        return fail(f"the engine does not load: {error}; build it: `make build` or `pip install .`")

    _print_anywhere()
    try:
        _raise_by_interrupt()
        settle(args)
        code: int = args.run(args)
        sys.stdout.flush()
    except NupaError as error:
        return fail(str(error))
    except BrokenPipeError:
        # The reader has gone: `nupa show | head`.
        _discard_output()
        return EXIT_ERROR
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EIO) and not error.filename:
            _discard_output()
            return fail(f"stdout: {error.strerror}")
        return fail(
            f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        )
    except MemoryError:
        return fail("not enough memory: see `ulimit -v`, and `free`")
    except KeyboardInterrupt:
        return 130
    return code
