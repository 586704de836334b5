# SPDX-License-Identifier: BSD-3-Clause
"""The whole table of programs with rdma_rxe in a guest, by both media and in both directions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import programs
from .judge import AT_ONE_ADDRESS, TABLE
from .lab import MEDIA, Lab

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(1500)]

#: Programs that meet loss: their messages need several packets, or connections by datagrams.
_IMPAIRED = (
    "rc_pingpong 4099",
    "rc_pingpong events",
    "rping 10000",
    "ucmatose",
    "ib_atomic_lat",
    "ib_send_bw four QPs",
    "ib_write_bw both ways",
    # Data of a READ that rdma_rxe has resumed had holes: docs/wire.md.
    "ucx tags by WRITE",
)
#: Bytes.  rdma_rxe asks for a READ anew behind each packet that it has missed.
_LONGEST = "100000"
_NETEM = ("loss", "1%", "delay", "1ms", "reorder", "25%", "50%")


@pytest.fixture(scope="module", params=sorted(MEDIA))
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with MEDIA[request.param]() as found:
        yield found


@pytest.mark.parametrize("server", ["here", "guest"])
@pytest.mark.parametrize("program", [name for name in TABLE if name not in AT_ONE_ADDRESS])
def test_a_program_runs_with_rdma_rxe(lab: Lab, program: str, server: str) -> None:
    TABLE[program](*lab.ends(server))


# Frames are RoCE's alone.
@pytest.mark.parametrize("lab", ["tap"], indirect=True, scope="module")
@pytest.mark.parametrize("server", ["here", "guest"])
@pytest.mark.parametrize("program", [name for name in TABLE if name in AT_ONE_ADDRESS])
def test_a_program_that_has_one_address_runs_with_rdma_rxe(
    lab: Lab, program: str, server: str
) -> None:
    TABLE[program](*lab.ends(server))


@pytest.mark.parametrize("server", ["here", "guest"])
@pytest.mark.parametrize("transport", ["RC", "UC", "UD"])
def test_each_byte_of_each_operation_is_right(
    lab: Lab, checked: str, transport: str, server: str
) -> None:
    programs.checked(*lab.ends(server), checked, "-t", transport)


def test_all_packets_were_understood(lab: Lab) -> None:
    programs.rping(*lab.ends("here"))
    wire = lab.here.wire()
    assert (wire["malformed"], wire["icrc_errors"]) == (0, 0), wire


@pytest.mark.parametrize("server", ["here", "guest"])
@pytest.mark.parametrize("program", _IMPAIRED)
def test_a_program_survives_loss_and_reordering(lab: Lab, program: str, server: str) -> None:
    """netem(8) of the guest's own kernel, in both directions."""
    with lab.guest.impaired(*_NETEM) as passed:
        TABLE[program](*lab.ends(server))
    assert [sent > 0 for sent, _ in passed] == [True, True], passed


@pytest.mark.parametrize("server", ["here", "guest"])
def test_each_byte_is_right_despite_loss_and_reordering(
    lab: Lab, checked: str, server: str
) -> None:
    with lab.guest.impaired(*_NETEM) as passed:
        programs.checked(*lab.ends(server), checked, "-l", _LONGEST)
    # Thousands of packets in each direction.
    assert [dropped > 0 for _, dropped in passed] == [True, True], passed
