# SPDX-License-Identifier: BSD-3-Clause
"""The subnet: an InfiniBand fabric of four hosts on two switches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ecosystem.lab import Lab

from .subnet import TOPOLOGY, Subnet


@pytest.fixture
def subnet(lab: Lab) -> Iterator[Subnet]:
    topology = lab.build / "subnet.toml"
    topology.write_text(TOPOLOGY)
    lab.nupa("up", "--topology", str(topology))
    yield Subnet(lab)
    lab.nupa("down")
