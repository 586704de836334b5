# SPDX-License-Identifier: BSD-3-Clause
"""docs/model.md and README.md: runs their commands of `nupa model`.

`python -m tests.unit.model.page` writes the output of both anew.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from nupa.cli import main

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "model.md"
README = ROOT / "README.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, its text, and where the text stands."""

    kind: str
    text: str
    start: int
    end: int


def blocks(page: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(page):
        yield Block(found[1], found[2], *found.span(2))


def commands(block: Block) -> list[str]:
    return [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]


def predicts(block: Block) -> bool:
    """Returns whether a block has commands of the model and no other; the README has others."""
    return block.kind == "console" and all(
        each.startswith("nupa model ") for each in commands(block)
    )


def run(command: str, folder: Path) -> str:
    """Returns the output of a command; `nupa` runs in this process, and its filters in a shell."""
    ours, pipe, filters = command.partition(" | ")
    before = Path.cwd()
    os.chdir(folder)
    try:
        if not ours.startswith("nupa "):
            return subprocess.run(
                command, shell=True, capture_output=True, text=True, check=True, timeout=50
            ).stdout
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(shlex.split(ours)[1:])
        assert code == 0, f"{command}: {err.getvalue()}"
        if not pipe:
            return out.getvalue()
        return subprocess.run(
            filters, shell=True, input=out.getvalue(), capture_output=True, text=True, check=True,
            timeout=50,
        ).stdout  # fmt: skip
    finally:
        os.chdir(before)


def output(block: Block, folder: Path) -> str:
    """Returns a console block as it should be: each command with its output, without blank ends."""
    parts = []
    for command in commands(block):
        lines = [line.rstrip() for line in run(command, folder).splitlines()]
        parts.append("\n".join([f"$ {command}", *lines]).rstrip() + "\n")
    return "".join(parts)


def example(code: str) -> str:
    """Returns what a Python example prints."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    ).stdout


def write_files(page: str, folder: Path) -> None:
    """Writes the TOML blocks whose first line names a file, and the examples of work."""
    for example_file in (ROOT / "nupa" / "model" / "work" / "examples").glob("*.toml"):
        (folder / example_file.name).write_text(example_file.read_text())
    for block in blocks(page):
        name = re.match(r"# ([\w.-]+\.toml)\n", block.text)
        if block.kind == "toml" and name:
            (folder / name[1]).write_text(block.text)


def renewed_readme(page: str, folder: Path) -> str:
    """Returns the README with the output of the model's commands as it is now."""
    found, at = [], 0
    for block in filter(predicts, blocks(page)):
        found += [page[at : block.start], output(block, folder)]
        at = block.end
    return "".join([*found, page[at:]])


def renewed(page: str, folder: Path) -> str:
    """Returns the page with each output as it is now."""
    write_files(page, folder)
    found, at, printed = [], 0, ""
    for block in blocks(page):
        text = block.text
        if block.kind == "console":
            text = output(block, folder)
        elif block.kind == "python":
            printed = example(block.text)
        elif not block.kind and printed:
            text, printed = printed, ""
        found += [page[at : block.start], text]
        at = block.end
    return "".join([*found, page[at:]])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        PAGE.write_text(renewed(PAGE.read_text(), Path(made)))
        README.write_text(renewed_readme(README.read_text(), Path(made)))
