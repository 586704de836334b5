# SPDX-License-Identifier: BSD-3-Clause
"""Programs of verbs: perftest, the pingpongs, UCX."""

from __future__ import annotations

import re

import pytest

from tests.programs.needs import needs
from tests.programs.verbs import test_perftest, test_pingpong
from tests.wire.lab import GID_INDEX, Wired

pytestmark = pytest.mark.timeout(150)

MTU_BYTES = 9000  #: for datagrams of 4096 bytes

#: Not over a wire, and why.
_LEFT_OUT = {
    "test_datagrams_to_a_multicast_group": "multicast ends at the fabric",
    # ibv_rc_pingpong -t -e takes an event whose completion it has polled already for an error.
    "test_timestamps_and_the_extended_way_of_posting_work": "events come at any time",
    "test_two_programs_of_one_host_reach_each_other": "its programs are on one machine",
    # UC and UD have no flow control: a receiver that is late loses packets on a network.
    "test_unreliable_sends_that_fill_the_channel_while_the_sender_sleeps": "packets get lost",
}
for _module in (test_perftest, test_pingpong):
    globals().update(
        (name, test)
        for name, test in vars(_module).items()
        if name.startswith("test_") and name not in _LEFT_OUT
    )


@pytest.mark.parametrize("transport", ["rc_v", "ud_verbs"])
@pytest.mark.parametrize("test", ["tag_bw", "ucp_am_lat", "ucp_put_lat", "ucp_get", "ucp_fadd"])
def test_ucx_counts_all_its_messages(wire: Wired, transport: str, test: str) -> None:
    program = needs("ucx_perftest", "ucx-utils")
    env = [f"UCX_TLS={transport},self", "UCX_NET_DEVICES=nupa_rdma0:1"]
    command = ["env", *env, f"UCX_IB_GID_INDEX={GID_INDEX}", program]
    result = wire.run_pair([*command, "-t", test, "-w", "10", "-n", "100"], deadline_s=100)
    assert "ERROR" not in result.server.stderr + result.client.stderr
    assert re.search(r"^Final:\s+100\s", result.client.stdout, re.MULTILINE)
