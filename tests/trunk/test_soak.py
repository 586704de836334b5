# SPDX-License-Identifier: BSD-3-Clause
"""A short soak of trunks; `make soak` runs one of ten minutes."""

from __future__ import annotations

import secrets

import pytest

from tests.programs.needs import needs
from tests.trunk.director import OUTAGES
from tests.trunk.soak import run_trunk_soak


@pytest.mark.alone
@pytest.mark.timeout(300)
def test_processes_trunks_and_cables_that_go_harm_no_other_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    needs("gcc", "gcc")
    lines: list[str] = []
    report = run_trunk_soak(
        seconds=30, seed=secrets.randbits(32), workers=12, links=24, say=lines.append
    )
    with capsys.disabled():
        print(f"\n{report.text()}")
    assert report.good, "\n".join([*lines, report.text()])
    assert report.found.operations > 500
    assert report.found.strikes["kill"] > 10
    assert sum(report.found.strikes[name] for name in OUTAGES) > 0
    assert report.found.dials > 5
