# SPDX-License-Identifier: BSD-3-Clause
"""README.md: layers as in the import contract, a row for each folder; links of all pages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TREES = ("csrc", "nupa", "tests")
# Builds leave folders behind that have none of these.
SOURCES = {".c", ".h", ".py", ".toml", ".txt", ".json", ".fio"}


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def folders(*, depth: int) -> set[str]:
    """Returns those of our trees, *depth* levels down, that have sources."""
    found = set()
    for tree in TREES:
        for file in (ROOT / tree).rglob("*"):
            parts = file.relative_to(ROOT).parts
            if file.suffix in SOURCES and len(parts) > depth + 1 and "__pycache__" not in parts:
                found.add("/".join(parts[: depth + 1]))
    return found


def table() -> dict[str, str]:
    """Reads the table: each folder with its text."""
    return dict(
        re.findall(r"^\| \[`([\w/]+)`\]\(\1\) \| (.*) \|$", section("Folders"), re.MULTILINE)
    )


def test_the_table_has_each_folder_once_and_no_other() -> None:
    meant = folders(depth=1) | {each for each in folders(depth=2) if "/engine/" in each}
    assert set(table()) == meant
    assert section("Folders").count("\n| [`") == len(meant) + 1  # and benchmarks with qemu


def test_a_row_names_the_folders_inside() -> None:
    for inner in folders(depth=2) - set(table()):
        outer, _, name = inner.rpartition("/")
        assert f"`{name}`" in table()[outer], inner


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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
