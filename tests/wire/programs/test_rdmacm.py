# SPDX-License-Identifier: BSD-3-Clause
"""Programs of rdma_cm: rdmacm-utils, perftest with -R, fio's rdma engine."""

from __future__ import annotations

import pytest

from nupa.programs import fio
from tests.programs.rdmacm import test_perftest_cm, test_rdmacm
from tests.programs.verbs import test_fio
from tests.wire.lab import Wired

pytestmark = pytest.mark.timeout(120)

MTU_BYTES = 9000  #: for datagrams of more than 1024 bytes

#: Not over a wire, and why.
_LEFT_OUT = {
    # A wire has one address.  tests/wire/test_ipv6.py has one of IPv6.
    "test_rping_over_ipv6": "it listens at addresses that the host has on its fabric alone",
    "test_rping_with_each_mover": "a wire has one way to move data",
    "test_rping_within_one_host": "its programs are on one machine",
    "test_rping_over_infiniband": "a wire is RoCE",
    "test_mckey_over_infiniband": "a wire is RoCE",
    "test_blocks_are_written_for_as_long_as_asked": "32 blocks of 1 MiB take 0.1 s; see below",
    "test_mckey_receives_what_is_sent_to_its_group": "multicast ends at the fabric",
    # tests/wire/test_connections.py has a death, and an address at which nobody listens.
    "test_a_client_notices_that_its_server_was_killed": "it waits for the movers of both ends",
    "test_a_client_says_why_it_cannot_connect": "its address of no fabric is that of the wire",
}
for _module in (test_perftest_cm, test_rdmacm, test_fio):
    globals().update(
        (name, test)
        for name, test in vars(_module).items()
        if name.startswith("test_") and name not in _LEFT_OUT
    )


@pytest.mark.parametrize(("block_bytes", "depth"), [(4096, 1), (65536, 8)])
def test_fio_writes_its_blocks(wire: Wired, block_bytes: int, depth: int) -> None:
    job = fio.Job("rdma", block_bytes, depth, "10.0.0.1", ramp_s=0.0, seconds=0.2)
    result = test_fio.pair(wire, job).run().check()
    assert fio.parse(result.client.stdout).operations_per_s > 0
