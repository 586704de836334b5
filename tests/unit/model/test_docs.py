# SPDX-License-Identifier: BSD-3-Clause
"""docs/model.md: its commands run and print what it says; it names all commands and words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nupa.cli.model.command import COMMANDS
from nupa.model.network.text import GENERATORS
from nupa.model.network.text import parse as parse_network
from nupa.model.profile.profile import names
from nupa.model.work.text import parse, words
from tests.unit.model.page import (
    PAGE,
    README,
    blocks,
    commands,
    example,
    output,
    predicts,
    write_files,
)

TEXT = PAGE.read_text()
CONSOLES = [block for block in blocks(TEXT) if block.kind == "console"]
RENEW = "`python -m tests.unit.model.page` writes the output anew"


@pytest.mark.timeout(300)  # it simulates millions of packets
@pytest.mark.parametrize("at", range(len(CONSOLES)), ids=lambda at: commands(CONSOLES[at])[0])
def test_a_command_of_the_page_prints_what_it_says(at: int, tmp_path: Path) -> None:
    write_files(TEXT, tmp_path)
    assert output(CONSOLES[at], tmp_path) == CONSOLES[at].text, RENEW


def test_the_readme_shows_what_a_prediction_prints(tmp_path: Path) -> None:
    found = [block for block in blocks(README.read_text()) if predicts(block)]
    assert found
    for block in found:
        assert output(block, tmp_path) == block.text, RENEW


def test_the_python_of_the_page_prints_what_it_says() -> None:
    found = list(blocks(TEXT))
    (at,) = [index for index, block in enumerate(found) if block.kind == "python"]
    assert example(found[at].text) == found[at + 1].text, RENEW


def test_the_page_has_no_command_that_is_not_run() -> None:
    kinds = ("console", "sh", "")  # sh: what needs a fabric, and tests of its own
    fenced = "".join(block.text for block in blocks(TEXT) if block.kind not in kinds)
    assert "nupa model" not in fenced
    assert len(CONSOLES) >= 9


def test_the_page_names_each_command() -> None:
    for command in COMMANDS:
        assert f"nupa model {command}" in TEXT


def test_each_work_and_generator_of_the_tables_is_one() -> None:
    section = TEXT.split("## What is asked")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    quoted = [word for row in rows for word in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    works = [word for word in quoted if re.match(r"[a-z-]+(:|$)", word) and word not in names()]
    for text in works:
        if ":" in text:
            parse(text)
        elif text != "rack24":
            assert text in words() or parse(f"{text}:8" if text != "barrier" else text)
    calls = [word for word in quoted if "(" in word]
    assert {word.partition("(")[0] for word in calls} == set(GENERATORS)
    for call in calls:
        parse_network(call)
