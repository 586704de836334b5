# SPDX-License-Identifier: BSD-3-Clause
"""perftest with -R: its queue pairs meet through rdma_cm."""

from __future__ import annotations

import pytest

from tests.programs.rdmacm.cm_stage import SERVER, port, program, start
from tests.programs.stage import Stage, sizes_of

pytestmark = pytest.mark.timeout(120)

PROGRAMS = [
    f"ib_{verb}_{what}" for verb in ("write", "read", "send", "atomic") for what in ("bw", "lat")
]


def measured(stage: Stage, name: str, *options: str) -> list[int]:
    """Runs the pair with -R: the sizes that the client has a line of results for."""
    number = port()
    command = [program(name, "perftest"), "-R", "-F", "-n", "200", "-p", number, *options]
    with start(stage, command, [*command, SERVER], number=number, deadline_s=100) as pair:
        return sizes_of(pair.wait().check().client.stdout)


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_connects_through_rdma_cm(fabric: Stage, name: str) -> None:
    assert measured(fabric, name) in ([65536], [2], [8])


@pytest.mark.parametrize("name", ["ib_write_bw", "ib_send_bw"])
def test_eight_connections(fabric: Stage, name: str) -> None:
    assert measured(fabric, name, "-q", "8") == [65536]


@pytest.mark.parametrize("name", ["ib_send_bw", "ib_send_lat"])
def test_datagrams(fabric: Stage, name: str) -> None:
    assert measured(fabric, name, "-c", "UD", "-s", "2048") == [2048]


def test_a_type_of_service(fabric: Stage) -> None:
    assert measured(fabric, "ib_write_bw", "-T", "96") == [65536]
