# SPDX-License-Identifier: BSD-3-Clause
"""Programs while packets are lost: perftest, a pingpong that checks its data, UCX."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.common.impair import Impairment, impaired
from tests.programs.needs import needs
from tests.programs.stage import sizes_of
from tests.wire.lab import GID_INDEX, Wired

pytestmark = pytest.mark.timeout(120)

SEED = 3
#: UCX's own is a second, of which a lost packet takes four.
_TIMEOUT = "UCX_RC_VERBS_TIMEOUT=60ms"


def perftest(wire: Wired) -> None:
    command = [needs("ib_write_bw", "perftest"), "-F", "-s", "4096", "-n", "300"]
    result = wire.run_pair(command, deadline_s=100)
    assert sizes_of(result.client.stdout) == [4096]
    assert re.search(r"^ 4096 +300 ", result.client.stdout, re.MULTILINE)


def pingpong(wire: Wired) -> None:
    program = needs("ibv_rc_pingpong", "ibverbs-utils")
    result = wire.run_pair([program, "-g", "1", "-n", "40", "-c"], deadline_s=100)
    for outcome in (result.server, result.client):
        assert "invalid data" not in outcome.stdout
        assert re.search(r"^40 iters in", outcome.stdout, re.MULTILINE)


def ucx(wire: Wired) -> None:
    env = ["UCX_TLS=rc_v,self", "UCX_NET_DEVICES=nupa_rdma0:1", f"UCX_IB_GID_INDEX={GID_INDEX}"]
    env.append(_TIMEOUT)
    command = ["env", *env, needs("ucx_perftest", "ucx-utils"), "-t", "tag_bw"]
    result = wire.run_pair([*command, "-s", "4096", "-w", "10", "-n", "100"], deadline_s=100)
    assert "ERROR" not in result.server.stderr + result.client.stderr
    assert re.search(r"^Final:\s+100\s", result.client.stdout, re.MULTILINE)


@pytest.mark.parametrize("loss", [0.01, 0.05])
@pytest.mark.parametrize("meet", [perftest, pingpong, ucx], ids=lambda meet: meet.__name__)
def test_a_program_finishes_though_packets_are_lost(
    wire: Wired, impair: str, meet: Callable[[Wired], None], loss: float
) -> None:
    with impaired(impair, *wire.machines, Impairment(loss=loss), seed=SEED) as counts:
        meet(wire)
    assert counts["lost"] > 0
