# SPDX-License-Identifier: BSD-3-Clause
"""A soak of the fabric manager for three seconds; `make soak` has one of a minute."""

from __future__ import annotations

import secrets

import pytest

from tests.soak.fm.ledger import Ledger, WrongByteError, contents
from tests.soak.fm.run import run_soak

SEED = 3


def test_managers_at_random_harm_no_data_and_leave_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = run_soak(seconds=3, seed=secrets.randbits(32), threads=1, processes=1)
    with capsys.disabled():
        print(f"\nfabric manager's soak, seed {report.seed}")
    assert report.good, report.text()
    assert report.checked_bytes > 0
    assert sum(report.operations.values()) > 0


def test_the_ledger_knows_a_wrong_byte_an_old_line_and_another_one() -> None:
    ledger = Ledger(SEED)
    entry = ledger.entry(64)
    first, data = ledger.issue(64, entry, 1)
    assert ledger.check(64, data, 0, first) == first
    assert ledger.check(64, bytes(64), 0, first) == 0
    second, _ = ledger.issue(64, entry, 1)
    other = contents(SEED, 128, first, 1)
    for found, low in (
        (data[:-1] + bytes([data[-1] ^ 1]), 0),  # a bit is wrong
        (data, second),  # it has been written since
        (bytes(64), first),  # lost
        (other, 0),  # of another line
        (contents(SEED + 1, 64, first, 1), 0),
    ):
        with pytest.raises(WrongByteError):
            ledger.check(64, found, low, second)
    ledger.cleared(0, 256)
    assert not ledger.is_current(64, entry)
