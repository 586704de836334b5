# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fabric transactions`: lines through the switch, counted and compared."""

from __future__ import annotations

import json

import pytest

from nupa.cli import main
from nupa.cxl.site import rates


def test_the_command_measures(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["fabric", "transactions", "--seconds", "0.01"]
    assert main([*quick, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == set(rates.Rates._fields)
    assert all(value > 1000 for value in found.values())
    assert main([*quick, "--ways", "1"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == "CXL.mem REQUESTS          WRITES, M/s  READS, M/s"
    assert [row.split("  ")[0] for row in rows] == ["calls in C, each of 64 B"]
    for wrong in (["--seconds", "0"], ["--seconds", "x"], ["--ways", "3"]):
        with pytest.raises(SystemExit):
            main([*quick, *wrong])
