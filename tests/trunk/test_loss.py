# SPDX-License-Identifier: BSD-3-Clause
"""A cable that loses, doubles and reorders frames below the trunks: it costs time, and no byte."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.common.impair import Impairment, build, impaired
from tests.programs.needs import needs
from tests.trunk.lab import Cluster

pytestmark = pytest.mark.timeout(240)

PORT = 7176
MESSAGES, BYTES = 2000, 16384
IMPAIRMENTS = [
    Impairment(loss=0.01),
    Impairment(loss=0.02, duplicate=0.02, reorder=0.02),
]


@contextmanager
def lossy(lab: Cluster, folder: Path, impairment: Impairment) -> Iterator[None]:
    """Impairs the cable; checks that it was, and that the trunks never gave each other up."""
    left, right = (machine.space for machine in lab.machines)
    losses = [each["losses"] for each in lab[0].ls()["machines"]]
    with impaired(build(folder), left, right, impairment, seed=17, port=0) as counts:
        yield
    chosen = {"lost": impairment.loss, "duplicated": impairment.duplicate}
    assert all(counts[name] > 0 for name, probability in chosen.items() if probability), counts
    assert [each["losses"] for each in lab[0].ls()["machines"]] == losses


@pytest.mark.parametrize("impairment", IMPAIRMENTS, ids=str)
def test_checked_data_crosses_a_cable_that_loses_frames(
    joined: Cluster, tmp_path: Path, impairment: Impairment
) -> None:
    rping = needs("rping", "rdmacm-utils")
    words = [rping, "-V", "-v", "-C", "100", "-S", "16384", "-p", str(PORT)]
    with lossy(joined, tmp_path, impairment):
        result = joined.meet_cm([*words, "-s"], [*words, "-c", "-a", "10.0.0.1"], PORT)
    assert result.client.stdout.count("ping data: ") == 100


def test_no_message_is_lost_or_comes_twice_where_frames_do(joined: Cluster, tmp_path: Path) -> None:
    needs("ib_send_bw", "perftest")
    words = ["ib_send_bw", "-R", "-s", str(BYTES), "-n", str(MESSAGES), "-p", str(PORT), "-F"]
    before = joined.moved(1, "host2")
    with lossy(joined, tmp_path, IMPAIRMENTS[-1]):
        result = joined.meet_cm(words, [*words, "10.0.0.1"], PORT)
    # The server has counted completions of its receives.
    for outcome in (result.server, result.client):
        assert re.search(rf"^ {BYTES} +{MESSAGES} ", outcome.stdout, re.MULTILINE), outcome.stdout
    # What UCX sends again is none of the fabric's.
    assert 1 <= (joined.moved(1, "host2") - before) / (BYTES * MESSAGES) < 1.1
