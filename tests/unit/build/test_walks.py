# SPDX-License-Identifier: BSD-3-Clause
"""docs/how-a-request-travels.md: each file defines the function of its row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/how-a-request-travels.md"
ROW = re.compile(r"\| `([\w.]+)` \| \[([\w./]+)\]\(\.\./([\w./]+)\) \|")
WALKS = ("A SEND", "`nupa up`", "A capture", "`nupa fm bind` to a mapped window", "`nupa vm up`")


def python_names(source: str) -> set[str]:
    """Functions and classes of a module, and methods as Class.method."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if isinstance(each, ast.FunctionDef))
            names.update(f"{node.name}.{each.name}" for each in inner)
    return names


def c_names(source: str) -> set[str]:
    """Functions that have a body: in our style that begins alone on its line."""
    return set(re.findall(r"^[a-z][^;{}#()]*?\b(\w+)\([^;{}]*\)\n\{", source, re.MULTILINE))


def rows() -> list[tuple[str, str, str]]:
    return ROW.findall(PAGE.read_text())


def test_each_walk_has_rows_and_each_row_is_read() -> None:
    sections = dict(
        part.split("\n", 1) for part in PAGE.read_text().split("\n## ")[1:] if "\n" in part
    )
    assert tuple(sections) == WALKS
    for title, text in sections.items():
        written = [line for line in text.splitlines() if line.startswith("|")][2:]
        assert len(written) > 4, title
        assert len(ROW.findall(text)) == len(written), title


@pytest.mark.parametrize(("function", "shown", "path"), rows())
def test_a_file_defines_the_function_of_its_row(function: str, shown: str, path: str) -> None:
    assert shown == path
    source = (ROOT / path).read_text()
    names = python_names(source) if path.endswith(".py") else c_names(source)
    assert function in names
