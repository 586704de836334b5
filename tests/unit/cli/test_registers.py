# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fabric registers`: every table of the model is there, whole, with its sections."""

from __future__ import annotations

import json
import re

import pytest

from nupa.cli import main
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.port import downstream_port, root_port, upstream_port
from nupa.cxl.registers.block import RegisterAttribute
from nupa.cxl.registers.component_tables import hdm
from nupa.cxl.registers.tables import blocks


def test_each_block_is_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fabric", "registers"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["BLOCK", "FIELDS"]
    assert [line.split()[0] for line in lines] == list(blocks())
    for line in lines:
        name, count, *_ = line.split()
        assert main(["fabric", "registers", name]) == 0
        title, _, *rows = capsys.readouterr().out.splitlines()
        assert title.startswith(f"{name}: ")
        assert len(rows) == int(count)


def test_rows_say_all_that_a_table_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fabric", "registers", "hdm", "dsn", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["specification"], second["specification"]) == ("CXL 3.1", "PCIe 6.0")
    assert first["fields"][-1] == {
        "name": "decoder0.dpa_skip",
        "offset": 0x24,
        "bits": "63:28",
        "access": "RWL",
        "reset": 0,
        "section": "8.2.4.20.9",
    }
    assert [each["name"] for each in first["fields"]] == [
        row.name for row in hdm(1, targets=0).rows
    ]


def test_each_field_cites_its_section_and_has_an_access_of_the_specification() -> None:
    for block in blocks().values():
        for row in block.rows:
            assert re.fullmatch(r"\d+(\.\d+)+", row.section), (block.name, row.name)
            assert row.access in RegisterAttribute
            assert row.section[0] == ("7" if block.specification == "PCIe 6.0" else "8")


def test_registers_of_the_models_functions_are_all_in_the_tables() -> None:
    """Fields are compared by name: a table may be of one decoder, bar or block, while the model has
    several."""
    known = {row.name for block in blocks().values() for row in block.rows}
    functions = (root_port(0), upstream_port(), downstream_port(0), Type3(256 << 20))
    for function in functions:
        for space in (function.config, *function.bars.values()):
            for name in space:
                for field in space[name].fields:
                    one = re.sub(r"^(decoder|bar|block|vector)\d+", r"\g<1>0", field)
                    assert one in known or name == "capabilities", (name, field)


def test_a_block_that_is_none_is_an_error_that_lists_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fabric", "registers", "hdm", "hdn"]) == 1
    assert "no block 'hdn': there are type0, type1," in capsys.readouterr().err
