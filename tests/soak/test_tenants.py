# SPDX-License-Identifier: BSD-3-Clause
"""A short soak of tenants; `make soak` runs one of a minute."""

from __future__ import annotations

import secrets

import pytest

from .tenants.run import run_soak


@pytest.mark.timeout(300)
def test_no_byte_crosses_partitions_while_members_and_rates_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = run_soak(
        seconds=120,
        seed=secrets.randbits(32),
        enough=lambda so_far: so_far.outcomes["inside"] > 20 and so_far.outcomes["across"] > 20,
    )
    with capsys.disabled():
        print(f"\n{report.text()}")
    assert report.good, report.text()
    assert report.outcomes["inside"] > 20
    assert report.outcomes["across"] > 20
