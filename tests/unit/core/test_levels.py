# SPDX-License-Identifier: BSD-3-Clause
"""The table of levels: names, and the same numbers as in C and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nupa.base.errors import LocalError
from nupa.core.levels import ETHERNET_LEVELS, LEVEL_TEXTS, LEVELS, Level, parse_levels

ROOT = Path(__file__).parents[3]


def test_levels_are_named_in_lists() -> None:
    assert parse_levels(["net,queue", "net"]) == ("queue", "net")
    assert parse_levels(LEVELS) == ("tlp", "queue", "transport", "net", "cache")
    with pytest.raises(
        LocalError, match="'' is not a level: levels are tlp, queue, transport, net, cache"
    ):
        parse_levels([""])
    with pytest.raises(LocalError, match="did you mean queue"):
        parse_levels(["queues"])


def test_c_numbers_levels_alike() -> None:
    header = (ROOT / "csrc/capture/expand/expand.h").read_text()
    body = re.search(r"enum nupa_level \{(.*?)\}", header, re.DOTALL)
    assert body is not None
    names = re.findall(r"NUPA_LEVEL_(\w+)", body[1])
    assert f"NUPA_LEVEL_{names[0]} = 1," in body[1]
    assert dict(zip(names, range(1, len(names) + 1), strict=True)) == Level.__members__


def test_the_documentation_has_each_level_and_its_link_type() -> None:
    assert list(LEVEL_TEXTS) == list(LEVELS)
    section = (ROOT / "docs/capture.md").read_text().partition("\n## Levels\n")[2]
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\w+) \|$", section.partition("\n## ")[0], re.MULTILINE)
    assert rows == [(name, "Ethernet" if name in ETHERNET_LEVELS else "NUPA") for name in LEVELS]
