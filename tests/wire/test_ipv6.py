# SPDX-License-Identifier: BSD-3-Clause
"""A wire between addresses of IPv6, whose ICRC lets no wrong packet pass."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tests.common.impair import Impairment, impaired
from tests.common.namespaces import Namespace
from tests.programs import users
from tests.programs.stage import sizes_of
from tests.wire import numbered
from tests.wire.lab import Wired, wired
from tests.wire.test_connections import meet

pytestmark = pytest.mark.timeout(120)

COUNT = 400


@pytest.fixture(scope="module")
def wire(pair: tuple[Namespace, Namespace]) -> Iterator[Wired]:
    with wired(pair, users.ourselves(), ipv6=True) as stage:
        yield stage


@pytest.mark.parametrize("program", ["ib_write_bw", "ib_send_lat", "ib_read_bw", "ib_atomic_lat"])
def test_perftest(wire: Wired, program: str) -> None:
    result = wire.run_pair([program, "-F", "-n", "100"])
    assert len(sizes_of(result.client.stdout)) == 1


def test_connections(wire: Wired) -> None:
    """By rping, since the servers of other programs listen at addresses of IPv4 alone."""
    meet(wire, "rping")


def test_no_changed_packet_passes(wire: Wired, impair: str) -> None:
    command = [sys.executable, "-P", numbered.__file__, "RC", "--count", str(COUNT)]
    with impaired(impair, *wire.machines, Impairment(loss=0.02, corrupt=0.02), seed=3) as hit:
        result = wire.run_pair(command, deadline_s=100)
    seen = json.loads(result.server.stdout.splitlines()[-1])
    assert (seen["added"], seen["wrong"]) == (COUNT // 4, 0)
    assert seen["sends"] == list(range(1, COUNT, 4))
    assert hit["corrupted"] > 0
    assert wire.wire()["icrc"] == "exact"
