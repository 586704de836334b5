# SPDX-License-Identifier: BSD-3-Clause
"""The MTU of the network changes while QPs and a wire live."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from tests.common.namespaces import ETHERNET_MTU_BYTES
from tests.wire.lab import Wired
from tests.wire.talk import held
from tests.wire.test_connections import meet

MTU_BYTES = 9000  # before
SMALL, LARGE = 1024, 4096  # path MTUs of 1500 and 9000
DEADLINE_S = 40.0
RETRY_EXC_ERR, LOC_LEN_ERR = 12, 1  # enum ibv_wc_status

#: Sends a datagram larger than SMALL each time that a byte comes, and prints its status.  An error
#: ends the QP's sends, so each has its own.
DATAGRAMS = """
import os, sys
from nupa.verbs import *
from nupa.verbs import enums as e
gid, pipe = sys.argv[1], sys.argv[2]
pd = PD(Context(name="nupa_rdma0"))
cq = CQ(pd.ctx, 4)
mr = MR(pd, 2000, e.IBV_ACCESS_LOCAL_WRITE)
attr = QPAttr(port_num=1)
route = GlobalRoute(dgid=GID(gid), sgid_index=3, hop_limit=64)
ah = AH(pd, attr=AHAttr(dlid=0, is_global=1, port_num=1, gr=route))
turn = 0
with open(pipe, "rb", buffering=0) as asked:
    while asked.read(1):
        qp = QP(pd, QPInitAttr(e.IBV_QPT_UD, None, cq, cq, cap=QPCap(4, 4)), attr)
        wr = SendWR(1, sg=[mr.sge(0, 2000)])
        wr.set_wr_ud(ah, 2, 0)
        qp.post_send(wr)
        (found,) = cq.wait(1, timeout=30)
        turn += 1
        mtu_bytes = 128 << pd.ctx.query_port(1).active_mtu
        print(f"{turn}: mtu {mtu_bytes} status {found.status}.", flush=True)
"""


def set_mtu(wire: Wired, mtu_bytes: int) -> None:
    for machine in wire.machines:
        machine.must("ip", "link", "set", "eth0", "mtu", str(mtu_bytes))


def follows(wire: Wired, mtu_bytes: int) -> None:
    """Waits until both ends list that path MTU."""
    until_s = time.monotonic() + DEADLINE_S
    for end in (0, 1):
        while wire.side(end).wire()["mtu_bytes"] != mtu_bytes:
            assert time.monotonic() < until_s, wire.side(end).wire()


@pytest.fixture(autouse=True)
def _mtu(wire: Wired) -> Iterator[None]:
    follows(wire, LARGE)
    yield
    set_mtu(wire, MTU_BYTES)
    follows(wire, LARGE)


#: Two QPs: WRITEs of the path MTU go by the second one until one fails.
WRITES = ("--gids", "3,3", "--mtu", str(LARGE), "--write")


def mtu_of_perftest(wire: Wired) -> int:
    """Returns the path MTU that a new connection of perftest takes."""
    found = wire.run_pair(["ib_write_bw", "-s", "8192", "-n", "20"]).client.stdout
    (line,) = (line for line in found.splitlines() if "Mtu" in line)
    return int(line.split(":")[1].split("[")[0])


def test_packets_that_became_too_large_are_told_by_the_timer_and_smaller_ones_pass(
    wire: Wired,
) -> None:
    with held(wire, *WRITES) as (_, client):
        client.wait_said(".", DEADLINE_S)
        set_mtu(wire, ETHERNET_MTU_BYTES)
        client.wait_said(f"large: {RETRY_EXC_ERR}, small: 0", DEADLINE_S)
    follows(wire, SMALL)


def test_new_connections_take_the_mtu_of_the_network(wire: Wired) -> None:
    assert mtu_of_perftest(wire) == LARGE
    set_mtu(wire, ETHERNET_MTU_BYTES)
    follows(wire, SMALL)
    assert mtu_of_perftest(wire) == SMALL
    meet(wire, "rping")
    with held(wire, *WRITES) as (_, client):
        outcome = client.wait(DEADLINE_S)
    assert "Invalid argument" in outcome.stderr
    assert f"carries an MTU of {SMALL} bytes at most" in outcome.stderr
    set_mtu(wire, MTU_BYTES)
    follows(wire, LARGE)
    assert mtu_of_perftest(wire) == LARGE


def test_datagrams_have_the_limit_of_now(wire: Wired, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    gid = IPv6Address(f"::ffff:{wire.addresses[1]}").exploded
    command = [sys.executable, "-c", DATAGRAMS, gid, str(pipe)]
    with wire.start(0, command) as program, pipe.open("r+b", buffering=0) as ask:
        turns = (
            (MTU_BYTES, LARGE, 0),
            (ETHERNET_MTU_BYTES, SMALL, LOC_LEN_ERR),
            (MTU_BYTES, LARGE, 0),
        )
        for turn, (mtu_bytes, carries, status) in enumerate(turns, start=1):
            set_mtu(wire, mtu_bytes)
            follows(wire, carries)
            ask.write(b".")
            program.wait_said(f"{turn}: mtu {carries} status {status}.", DEADLINE_S)
