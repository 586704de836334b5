# SPDX-License-Identifier: BSD-3-Clause
"""rdma_rxe in a guest by IPv6, and with each MTU of RoCE."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import programs
from .judge import TABLE
from .lab import MEDIA, MTU_BYTES, Lab

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(900)]

_PROGRAMS = ("rc_pingpong 4099", "ud_pingpong", "rping 10000", "ib_write_bw both ways")


_VARIANTS = [f"{medium} {family}" for medium in sorted(MEDIA) for family in ("IPv4", "IPv6")]


@pytest.fixture(scope="module", params=_VARIANTS)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    medium, family = request.param.split()
    with MEDIA[medium](MTU_BYTES, ipv6=family == "IPv6") as found:
        yield found


@pytest.mark.parametrize("server", ["here", "guest"])
@pytest.mark.parametrize("program", _PROGRAMS)
def test_a_program_runs(lab: Lab, program: str, server: str) -> None:
    TABLE[program](*lab.ends(server))


@pytest.mark.parametrize("server", ["here", "guest"])
@pytest.mark.parametrize("mtu", [256, 512, 1024, 2048, 4096])
def test_each_byte_is_right(lab: Lab, checked: str, mtu: int, server: str) -> None:
    programs.checked(*lab.ends(server), checked, "-m", str(mtu))


def test_the_mtu_is_that_of_the_network(lab: Lab) -> None:
    wire = lab.here.wire()
    assert wire["mtu_bytes"] == 4096, wire
    assert (wire["malformed"], wire["icrc_errors"]) == (0, 0), wire
