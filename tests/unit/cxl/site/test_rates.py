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
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["c"]
    for wrong in (["--seconds", "0"], ["--seconds", "x"], ["--ways", "3"]):
        with pytest.raises(SystemExit):
            main([*quick, *wrong])
