# SPDX-License-Identifier: BSD-3-Clause
"""Packets injected at QPs of other processes, and in the name of processes that do not answer."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nupa.base.errors import LocalError, RemoteError
from nupa.fabric import Fabric
from nupa.packet.scapy.inject import Injector, Reason, expected_psn, inject
from nupa.packet.scapy.transport import AETH, BTH, DETH, RETH, AtomicAckETH
from tests.cross.conftest import Cli, Pair
from tests.cross.peers.node import GRH_BYTES, QKEY, WAIT_S, pattern
from tests.cross.peers.peer import Peer

MakePair = Callable[..., Pair]


@pytest.fixture
def at_a(fabric: Fabric) -> Iterator[Injector]:
    """Packets in the name of b, which is on host1."""
    with Injector(fabric, "host1") as injector:
        yield injector


@pytest.fixture
def at_b(fabric: Fabric) -> Iterator[Injector]:
    with Injector(fabric, "host0") as injector:
        yield injector


def halt(peer: Peer) -> None:
    """Sends SIGSTOP; returns when all its threads have stopped."""
    peer.signal(signal.SIGSTOP)
    deadline = time.monotonic() + WAIT_S
    while any(
        task.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "T"
        for task in Path(f"/proc/{peer.pid}/task").iterdir()
    ):
        assert time.monotonic() < deadline, "it does not stop"
        os.sched_yield()


def bth(opcode: str, qpn: int, psn: int, **fields: Any) -> Any:
    return BTH(opcode=opcode, dqpn=qpn, psn=psn, **fields)


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("asleep", [False, True])
def test_another_process_receives_an_injected_send(
    pair: Pair, at_b: Injector, asleep: bool
) -> None:
    pair.b.recv(wr_id=9)
    waiting = pair.b.begin("wait_asleep" if asleep else "wait")
    psn = at_b.expected_psn(pair.b_address.qp_num)
    body = pattern(1, 3000)
    assert inject(at_b, bth("RC_SEND_ONLY", pair.b_address.qp_num, psn) / body).executed
    (done,) = waiting.result()
    assert (done.wr_id, done.status, done.byte_len) == (9, "SUCCESS", len(body))
    assert pair.b.load(0, 0, len(body)) == body


def test_a_write_changes_another_process_memory_without_its_help(
    pair: Pair, fabric: Fabric
) -> None:
    region, qpn = pair.b_region, pair.b_address.qp_num
    reth = RETH(va=region.addr + 64, rkey=region.rkey, dmalen=5)
    packet = bth("RC_RDMA_WRITE_ONLY", qpn, expected_psn(fabric, qpn)) / reth / b"hello"
    assert inject("host0", packet).executed  # the one fabric that is up
    assert pair.b.load(0, 64, 5) == b"hello"


def test_a_bad_key_ends_the_qp_of_another_process_alone(pair: Pair, at_b: Injector) -> None:
    reth = RETH(va=pair.b_region.addr, rkey=pair.b_region.rkey ^ 0x5A5A, dmalen=1)
    verdict = inject(at_b, bth("RC_RDMA_WRITE_ONLY", pair.b_address.qp_num, 0) / reth / b"x")
    assert verdict.syndrome_name == "NAK_REMOTE_ACCESS_ERROR"
    assert pair.b.event() == "QP_ACCESS_ERR"
    assert (pair.a.state(), pair.b.state()) == ("RTS", "ERR")


def test_a_datagram_reaches_another_process(make_pair: MakePair, at_b: Injector) -> None:
    pair = make_pair("ud")
    pair.b.recv()
    packet = bth("UD_SEND_ONLY", pair.b_address.qp_num, 0) / DETH(qkey=QKEY, srcqp=5) / b"hello"
    assert inject(at_b, packet).executed
    (done,) = pair.b.wait()
    assert done.byte_len == GRH_BYTES + 5


def test_what_is_dropped_is_shown(pair: Pair, at_b: Injector, cli: Cli) -> None:
    qpn = pair.b_address.qp_num
    inject(at_b, bth("RC_SEND_ONLY", qpn, 0, pkey=0x1234))
    inject(at_b, bth("RC_SEND_ONLY", qpn, 0, icrc=1))
    shown = json.loads(cli("show", "--json", "cross").stdout)
    (host,) = (host for host in shown["hosts"] if host["name"] == "host1")
    counters = host["hw_counters"]
    names = ("rx_injected", "pkey_violations", "rx_icrc_errors")
    assert [counters[name] for name in names] == [2, 1, 1]


# --- who does not answer --------------------------------------------------------------------------


def test_a_stopped_process_gives_no_verdict_until_it_goes_on(pair: Pair, at_b: Injector) -> None:
    qpn = pair.b_address.qp_num
    psn = at_b.expected_psn(qpn)
    reth = RETH(va=pair.b_region.addr, rkey=pair.b_region.rkey, dmalen=5)
    packet = bth("RC_RDMA_WRITE_ONLY", qpn, psn) / reth / b"hello"
    halt(pair.b)
    with pytest.raises(RemoteError, match="no verdict came") as caught:
        inject(at_b, packet, timeout=0.05)
    assert caught.value.errno == errno.ETIMEDOUT
    pair.b.signal(signal.SIGCONT)
    assert inject(at_b, packet, timeout=WAIT_S).reason is Reason.DUPLICATE
    assert pair.b.load(0, 0, 5) == b"hello"


def test_a_process_that_dies_has_no_qp_any_more(pair: Pair, at_b: Injector) -> None:
    qpn = pair.b_address.qp_num
    assert at_b.expected_psn(qpn) == 0
    pair.b.kill()
    assert inject(at_b, bth("RC_SEND_ONLY", qpn, 0), to="host1").reason is Reason.NO_QP
    with pytest.raises(LocalError, match="expects no PSN"):
        at_b.expected_psn(qpn)


def test_a_process_that_dies_while_it_is_asked_is_not_waited_for(
    pair: Pair, at_b: Injector
) -> None:
    qpn = pair.b_address.qp_num
    assert at_b.expected_psn(qpn) == 0
    halt(pair.b)
    packet = bth("RC_SEND_ONLY", qpn, 0)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(inject, at_b, packet, to=1, timeout=WAIT_S)
        pair.b.kill()
        assert asking.result(WAIT_S).reason is Reason.NO_QP


# --- answers --------------------------------------------------------------------------------------


@pytest.fixture
def asking(make_pair: MakePair) -> Iterator[Pair]:
    """b is stopped, so that what a asks of it is still to be answered."""
    pair = make_pair(mover="relay")
    for wr_id in range(3):
        pair.b.recv(wr_id=wr_id)
    pair.a.post("send", length=8)
    pair.a.wait()
    halt(pair.b)
    yield pair
    pair.b.signal(signal.SIGCONT)


def test_an_acknowledgement_completes_what_was_asked(asking: Pair, at_a: Injector) -> None:
    qpn = asking.a_address.qp_num
    asking.a.post("send", length=8, wr_id=3)
    asking.a.post("send", length=8, wr_id=4)
    ack = AETH(syndrome=0x1F)
    assert inject(at_a, bth("RC_ACKNOWLEDGE", qpn, 0) / ack).reason is Reason.UNASKED
    assert inject(at_a, bth("RC_ACKNOWLEDGE", qpn, 3) / ack).reason is Reason.UNASKED
    assert asking.a.poll() == []
    assert inject(at_a, bth("RC_ACKNOWLEDGE", qpn, 2) / ack).executed
    assert [(done.wr_id, done.status) for done in asking.a.wait(2)] == [
        (3, "SUCCESS"),
        (4, "SUCCESS"),
    ]
    assert inject(at_a, bth("RC_ACKNOWLEDGE", qpn, 2) / ack).reason is Reason.UNASKED


@pytest.mark.parametrize(
    ("syndrome", "status"),
    [(0x61, "REM_INV_REQ_ERR"), (0x62, "REM_ACCESS_ERR"), (0x63, "REM_OP_ERR")],
)
def test_a_nak_fails_what_was_asked(
    asking: Pair, at_a: Injector, syndrome: int, status: str
) -> None:
    asking.a.post("send", length=8, wr_id=3)
    asking.a.post("send", length=8, wr_id=4)
    nak = bth("RC_ACKNOWLEDGE", asking.a_address.qp_num, 2) / AETH(syndrome=syndrome)
    assert inject(at_a, nak).executed
    first, second = asking.a.wait(2)
    assert (first.wr_id, first.status) == (3, "SUCCESS")  # a NAK answers what was before it
    assert (second.wr_id, second.status) == (4, status)
    assert asking.a.state() == "ERR"


@pytest.mark.parametrize("syndrome", [0x64, 0x7F, 0x40])
def test_a_syndrome_that_is_none_of_rc_is_ignored(
    asking: Pair, at_a: Injector, syndrome: int
) -> None:
    asking.a.post("send", length=8)
    nak = bth("RC_ACKNOWLEDGE", asking.a_address.qp_num, 1) / AETH(syndrome=syndrome)
    assert inject(at_a, nak).reason is Reason.UNASKED
    assert asking.a.state() == "RTS"


def test_responses_bring_the_data_of_a_read(asking: Pair, at_a: Injector) -> None:
    asking.a.post("read", length=5000, to=asking.b_region, wr_id=6)
    qpn, body = asking.a_address.qp_num, pattern(3, 5000)
    aeth = AETH(syndrome=0x1F)
    only = bth("RC_RDMA_READ_RESPONSE_ONLY", qpn, 1) / aeth / body[:4096]
    assert inject(at_a, only).reason is Reason.UNASKED
    first = bth("RC_RDMA_READ_RESPONSE_FIRST", qpn, 1) / aeth / body[:4096]
    assert inject(at_a, first).executed
    assert inject(at_a, first).reason is Reason.UNASKED
    assert asking.a.poll() == []
    last = bth("RC_RDMA_READ_RESPONSE_LAST", qpn, 1) / aeth / body[4096:]
    assert inject(at_a, last).executed
    (done,) = asking.a.wait()
    assert (done.wr_id, done.status, done.opcode) == (6, "SUCCESS", "RDMA_READ")
    assert asking.a.load(0, 0, len(body)) == body


def test_an_atomic_acknowledgement_brings_the_original(asking: Pair, at_a: Injector) -> None:
    asking.a.post("faa", length=8, to=asking.b_region, operands=(5, 0), wr_id=7)
    answer = AETH(syndrome=0x1F) / AtomicAckETH(orig=0x1122334455667788)
    packet = bth("RC_ATOMIC_ACKNOWLEDGE", asking.a_address.qp_num, 1) / answer
    assert inject(at_a, packet).executed
    assert asking.a.wait()[0].wr_id == 7
    assert asking.a.load(0, 0, 8) == (0x1122334455667788).to_bytes(8, "little")


def test_the_partners_own_answer_comes_too_late(asking: Pair, at_a: Injector) -> None:
    asking.a.post("send", length=8, wr_id=3)
    packet = bth("RC_ACKNOWLEDGE", asking.a_address.qp_num, 1) / AETH(syndrome=0x1F)
    assert inject(at_a, packet).executed
    assert asking.a.wait()[0].wr_id == 3
    asking.b.signal(signal.SIGCONT)
    asking.a.post("send", length=16, wr_id=4)
    assert asking.a.wait()[0].wr_id == 4
    assert [done.byte_len for done in asking.b.wait(3)] == [8, 8, 16]
