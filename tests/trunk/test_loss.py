# SPDX-License-Identifier: BSD-3-Clause
"""A cable that loses, doubles and reorders frames below the trunks: it costs time, and no byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.common.impair import Impairment, build, impaired
from tests.programs.needs import needs
from tests.trunk.lab import Cluster

pytestmark = pytest.mark.timeout(240)

PORT = 7176
IMPAIRMENTS = [
    Impairment(loss=0.01),
    Impairment(loss=0.02, duplicate=0.02, reorder=0.02),
]


@pytest.mark.parametrize("impairment", IMPAIRMENTS, ids=str)
def test_checked_data_crosses_a_cable_that_loses_frames(
    joined: Cluster, tmp_path: Path, impairment: Impairment
) -> None:
    rping = needs("rping", "rdmacm-utils")
    words = [rping, "-V", "-v", "-C", "100", "-S", "16384", "-p", str(PORT)]
    left, right = (machine.space for machine in joined.machines)
    losses = [each["losses"] for each in joined[0].ls()["machines"]]
    with impaired(build(tmp_path), left, right, impairment, seed=17, port=0) as counts:
        result = joined.meet_cm([*words, "-s"], [*words, "-c", "-a", "10.0.0.1"], PORT)
    assert result.client.stdout.count("ping data: ") == 100
    chosen = {"lost": impairment.loss, "duplicated": impairment.duplicate}
    assert all(counts[name] > 0 for name, probability in chosen.items() if probability), counts
    # The trunks never gave each other up.
    assert [each["losses"] for each in joined[0].ls()["machines"]] == losses
