# SPDX-License-Identifier: BSD-3-Clause
"""`nupa man`: writes a manual page for each command, from its help."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from nupa.cli.common.command import Subparsers, add_command

_EPILOG = """\
man(1) finds pages in share/man beside a bin folder that is in PATH.  Without --to they go there:
into the virtual environment, or what pip installs into.

examples:
  nupa man                              and then: man nupa, man nupa-run, man nupa-pool-alloc
  nupa man --to ~/.local/share/man/man1
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "man", "write manual pages", _EPILOG, run)
    parser.add_argument(
        "--to", metavar="DIR", help="write them into this folder (default: where man finds them)"
    )


def run(args: argparse.Namespace) -> int:
    import sys

    from nupa.base.errors import LocalError

    folder = Path(args.to or f"{sys.prefix}/share/man/man1")
    count = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages():
            (folder / f"{name}.1").write_text(text, encoding="utf-8")
            count += 1
    except OSError as error:
        raise LocalError(
            f"{folder}: {error.strerror}; --to names another folder", error.errno or 0
        ) from error
    print(f"{count} pages are in {folder}")
    return 0


def pages() -> Iterator[tuple[str, str]]:
    """Yields each page: its name, as "nupa-pool-ls", and its text for groff(7).  LocalError: the
    library that makes them is not installed."""
    from nupa.cli import build_parser

    yield from _pages(build_parser([]), "software RDMA over an emulated CXL fabric")


def _pages(parser: argparse.ArgumentParser, what: str) -> Iterator[tuple[str, str]]:
    name = parser.prog.replace(" ", "-")
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        help_of = {each.dest: each.help or "" for each in action._choices_actions}
        for word, below in action.choices.items():
            yield from _pages(below, help_of[word])
        action.choices = {}  # they have pages of their own; the list of them stays
    yield name, _page(parser, name, what)


def _page(parser: argparse.ArgumentParser, name: str, what: str) -> str:
    import time

    import nupa
    from nupa.base.errors import LocalError

    try:
        from argparse_manpage.manpage import Manpage
    except ImportError as error:
        raise LocalError("it needs argparse-manpage: `pip install argparse-manpage`") from error
    epilog = _expanded(parser)
    parser.epilog = None
    notes, _, examples = epilog.partition("examples:\n")
    data = {
        "project_name": "nupa",
        "version": nupa.__version__,
        "manual_title": "NUPA manual",
        "date": time.strftime("%Y-%m-%d", time.gmtime(Path(__file__).stat().st_mtime)),
    }
    page = Manpage(parser, data)
    page.prog, page.description = name, what
    if notes.strip():
        page.add_section("notes", "=", _roff(notes))
    if examples.strip():
        page.add_section("examples", "=", _verbatim(examples))
    return _tidy(str(page))


def _tidy(page: str) -> str:
    """Removes blank lines between requests, and spells characters beyond ASCII; the text is not
    adjusted, because a choice may be longer than a line."""
    head, *lines = page.splitlines()
    kept, filled = [head.replace("\\-", "-"), ".ad l"], True
    for line in lines:
        filled = {".nf": False, ".fi": True}.get(line, filled)
        if line or not filled:
            kept.append(line)
    text = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in "\n".join(kept))
    return f"{text}\n"


def _expanded(parser: argparse.ArgumentParser) -> str:
    """Returns the text behind the options, as the help prints it."""
    formatter = parser._get_formatter()
    formatter.add_text(parser.epilog)
    return formatter.format_help()


def _roff(text: str) -> str:
    """Sets paragraphs; those with an indented line stay as they are."""
    parts = [
        _verbatim(part) if "\n " in f"\n{part}" else _escaped(part)
        for part in text.strip("\n").split("\n\n")
    ]
    return "\n.PP\n".join(parts)


def _verbatim(text: str) -> str:
    return f".nf\n{_escaped(text)}\n.fi"


def _escaped(text: str) -> str:
    """Escapes what groff would take as a request."""
    lines = text.strip("\n").replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)
