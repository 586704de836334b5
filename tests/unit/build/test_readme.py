# SPDX-License-Identifier: BSD-3-Clause
"""README.md: layers as in the import contract; a row for each folder; links of all pages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()
TREES = ("csrc", "nupa", "tests")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / tree / "README.md" for tree in TREES),
    *sorted((ROOT / "docs").glob("*.md")),
]
# Builds leave folders behind that have none of these.
SOURCES = {".c", ".h", ".py", ".toml", ".txt", ".json", ".fio"}


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def folders(tree: str, *, depth: int) -> set[str]:
    """Returns those folders of *tree*, *depth* levels down, that have sources."""
    found = set()
    for file in (ROOT / tree).rglob("*"):
        parts = file.relative_to(ROOT / tree).parts
        if file.suffix in SOURCES and len(parts) > depth and "__pycache__" not in parts:
            found.add("/".join(parts[:depth]))
    return found


def table(tree: str) -> dict[str, str]:
    """Reads the table of *tree*: each folder with its text."""
    text = (ROOT / tree / "README.md").read_text()
    rows = re.findall(r"^\| \[`([\w/]+)`\]\(\1\) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| [`") == len(dict(rows))
    return dict(rows)


@pytest.mark.parametrize("tree", TREES)
def test_the_table_has_each_folder_once_and_no_other(tree: str) -> None:
    inside_engine = {each for each in folders(tree, depth=2) if each.startswith("engine/")}
    assert set(table(tree)) == folders(tree, depth=1) | inside_engine


@pytest.mark.parametrize("tree", TREES)
def test_a_row_names_the_folders_inside(tree: str) -> None:
    for inner in folders(tree, depth=2) - set(table(tree)):
        outer, _, name = inner.rpartition("/")
        assert f"`{name}`" in table(tree)[outer], inner


def test_the_layers_are_those_of_the_import_contract() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(each["layers"] for each in contract["contracts"] if each["type"] == "layers")
    drawn = section("Layers").split("```")[1].splitlines()
    shown = [set(re.findall(r"nupa\.\w+", line)) for line in drawn]
    assert [line for line in shown if line] == [
        set(re.findall(r"nupa\.\w+", layer)) for layer in layers
    ]


def test_each_page_is_linked() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert f"](docs/{page.name})" in TEXT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", page.read_text()):
        there = (page.parent / link).resolve() if link else page
        assert there.exists(), link
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Returns the anchors of its headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
