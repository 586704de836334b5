# SPDX-License-Identifier: BSD-3-Clause
"""A short soak of wires; `make soak` runs one of ten minutes."""

from __future__ import annotations

import secrets

import pytest

from tests.programs.needs import needs
from tests.wire.soak import run_wire_soak


@pytest.mark.alone
@pytest.mark.timeout(200)
def test_programs_keepers_and_cables_that_go_harm_no_other_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    needs("gcc", "gcc")
    lines: list[str] = []
    report = run_wire_soak(
        seconds=15,
        seed=secrets.randbits(32),
        workers=8,
        links=12,
        impairment="mild",
        say=lines.append,
    )
    with capsys.disabled():
        print(f"\n{report.text()}")
    assert report.good, "\n".join([*lines, report.text()])
    assert report.found.operations > 500
    assert report.found.strikes["kill"] > 10
