# SPDX-License-Identifier: BSD-3-Clause
"""UCX over the device: ucx_info and ucx_perftest of Debian's ucx-utils, rc_verbs and ud_verbs.

UCX makes rc_verbs connections by datagrams: `rc_v` is its name for rc_verbs with ud_verbs for that.
"""

from __future__ import annotations

import re

import pytest

from tests.programs.needs import needs

from .lab import Lab

TRANSPORTS = ["rc_v", "ud_verbs"]
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def ucx() -> None:
    needs("ucx_info", "ucx-utils")


def measured(fabric: Lab, transport: str, test: str, *options: str) -> int:
    """Returns how many iterations of the *test* the client counted at its end."""
    env = {"UCX_TLS": f"{transport},self", "UCX_NET_DEVICES": "nupa_rdma0:1"}
    result = fabric.run_pair(["ucx_perftest"], "-t", test, "-w", "10", *options, env=env)
    written = result.server.stdout + result.server.stderr + result.client.stderr
    assert "ERROR" not in written, written
    final = re.search(r"^Final:\s+(\d+)", result.client.stdout, re.MULTILINE)
    assert final, result.client.describe()
    return int(final[1])


def test_the_device_is_listed_with_both_transports(fabric: Lab) -> None:
    listed = fabric.must(fabric.on(None, "ucx_info", "-d"))
    found = re.findall(r"Transport: (\S+)\n#\s+Device: nupa_rdma0:1", listed)
    assert set(found) >= {"rc_verbs", "ud_verbs"}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "test",
    [
        "tag_lat",
        "tag_bw",
        "tag_sync_lat",
        "ucp_am_lat",
        "ucp_am_bw",
        "stream_bw",
        "stream_lat",
        "ucp_put_lat",
        "ucp_put_bw",
        "ucp_get",
        "ucp_add",
        "ucp_fadd",
        "ucp_swap",
        "ucp_cswap",
    ],
)
def test_every_kind_of_message_runs(fabric: Lab, transport: str, test: str) -> None:
    # A GET over datagrams waits for a target that looks once a millisecond, over TCP too.
    count = 100 if (transport, test) == ("ud_verbs", "ucp_get") else 1000
    assert measured(fabric, transport, test, "-n", str(count)) == count


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", ["1", "4097", "262144", "4194304"])
@pytest.mark.parametrize("test", ["tag_bw", "ucp_put_bw", "ucp_am_bw"])
def test_messages_of_all_sizes_pass(fabric: Lab, transport: str, size: str, test: str) -> None:
    assert measured(fabric, transport, test, "-n", "40", "-s", size, "-O", "8") == 40


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("test", ["tag_lat", "tag_bw", "ucp_put_bw", "ucp_fadd"])
def test_four_threads_of_a_process_may_use_it_at_once(
    fabric: Lab, transport: str, test: str
) -> None:
    assert measured(fabric, transport, test, "-n", "200", "-T", "4", "-M", "multi") == 200


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_data_goes_through_the_fabric(fabric: Lab, transport: str) -> None:
    before = fabric.moved_bytes()
    measured(fabric, transport, "tag_bw", "-n", "20", "-s", "1000000")
    after = fabric.moved_bytes()
    for host in ("host0", "host1"):
        assert after[host] - before[host] >= 20 * 1_000_000
    assert after["host2"] == before["host2"]
