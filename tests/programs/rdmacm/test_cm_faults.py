# SPDX-License-Identifier: BSD-3-Clause
"""rdmacm-utils while one packet in ten is lost, those of connection management among them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.programs.rdmacm.cm_stage import SERVER, port, program, start
from tests.programs.rdmacm.test_rdmacm import UDADDY_PORT, pings, rping
from tests.programs.stage import Stage
from tests.programs.verbs.test_faults import faults

#: Of the first 60 packets it hits these: 0, 2, 28, 41.  The first is a request to connect, and the
#: third the reply to its repetition: two waits of 4.3 s.
SEED = "12592"


@pytest.fixture
def lossy(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The default fabric, which loses one packet in ten, or as many as the parameter says."""
    count = getattr(request, "param", 0)
    which = ["--count", str(count)] if count else ["--probability", "10%", "--seed", SEED]
    fault = ["fault", "host0", "add", "drop", *which]
    for words in (["up"], fault):
        stage.ok(*words)
    yield stage
    (dropping,) = faults(stage)
    stage.ok("down")
    assert dropping["hits"] >= (count or 2), dropping


def test_rping_connects_and_disconnects(lossy: Stage) -> None:
    assert pings(rping(lossy, "-C", "3").client.stdout) == [0, 1, 2]


def test_ucmatose_connects_and_disconnects(lossy: Stage) -> None:
    number = port()
    server = [program("ucmatose"), "-p", number, "-c", "3", "-C", "1"]
    with start(lossy, server, [*server, "-s", SERVER], number=number) as pair:
        result = pair.wait().check()
    assert "return status 0" in result.server.stdout
    assert "return status 0" in result.client.stdout


# The server ends with its last reply: if that were lost, no process could repeat it.
@pytest.mark.parametrize("lossy", [1], indirect=True, ids=["the first packet"])
def test_udaddy_looks_its_peer_up(lossy: Stage) -> None:
    """Its datagrams would be lost for good: it sends none."""
    server = [program("udaddy"), "-c", "5", "-C", "0"]
    with start(lossy, server, [*server, "-s", SERVER], number=UDADDY_PORT, space="udp") as pair:
        result = pair.wait().check()
    assert "return status 0" in result.server.stdout
    assert "return status 0" in result.client.stdout


def test_endpoints_exchange_a_message(lossy: Stage) -> None:
    number = port()
    server = [program("rdma_server"), "-p", number]
    client = [program("rdma_client"), "-s", SERVER, "-p", number]
    with start(lossy, server, client, number=number) as pair:
        result = pair.wait().check()
    assert "rdma_server: end 0" in result.server.stdout
    assert "rdma_client: end 0" in result.client.stdout
