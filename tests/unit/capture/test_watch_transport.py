# SPDX-License-Identifier: BSD-3-Clause
"""A watch shows packets as an adapter sends them: opcodes, PSNs, headers, payloads, ICRCs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from nupa.core.watch import Watch
from nupa.fabric import Fabric
from nupa.packet.scapy.transport import (
    AETH,
    BTH,
    DETH,
    IETH,
    RETH,
    AtomicAckETH,
    AtomicETH,
    ImmDt,
)
from nupa.verbs import RecvWR, SendWR
from nupa.verbs import enums as e
from tests.unit.capture.watched import (
    PSN_MASK,
    acknowledged_once,
    names,
    one_sided,
    rest,
    seen,
    transport,
)
from tests.unit.packet import tshark
from tests.unit.packet.test_tshark import NUMBERS
from tests.unit.verbs.queues.test_uc_ud import datagram

MTU = 4096
SIZES = [0, 1, 2, 3, 8, 32, 33, 64, 4095, 4096, 4097, 12_288, 60_001]


@pytest.fixture
def watch(fabric: Fabric) -> Iterator[Watch]:
    with Watch(fabric, ("transport",)) as watch:
        yield watch


@pytest.fixture
def pair(make_pair: Any, mover: str) -> Any:
    return make_pair(mover=mover)


def parts(kind: str, size: int) -> list[str]:
    """Returns the opcodes of a message of *size* bytes."""
    n = max(1, -(-size // MTU))
    if n == 1:
        return [f"{kind}_ONLY"]
    return [f"{kind}_FIRST", *[f"{kind}_MIDDLE"] * (n - 2), f"{kind}_LAST"]


def payload(packets: list[Any]) -> bytes:
    """Joins the payloads of packets."""
    found = b""
    for packet in packets:
        last = packet.lastlayer()
        found += bytes(last.original if last.name == "Raw" else b"")
    return found


@pytest.mark.parametrize("size", SIZES)
def test_a_send_is_packets_and_an_acknowledgement(pair: Any, watch: Watch, size: int) -> None:
    data = Random(size).randbytes(size)
    pair.a.mr.write(data)
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
    pair.a.qp.post_send(SendWR(3, sg=[pair.a.mr.sge(0, size)]))
    pair.a.wait_ok()
    packets = acknowledged_once(transport(watch))
    assert names(packets) == [*parts("SEND", size), "ACKNOWLEDGE"]
    assert payload(packets[:-1]) == data
    assert [p[BTH].ackreq for p in packets] == [0] * (len(packets) - 2) + [1, 0]
    ack = packets[-1]
    assert (ack[AETH].syndrome, ack[AETH].msn) == (0x1F, 1)
    assert ack[BTH].psn == packets[-2][BTH].psn
    assert {p[BTH].dqpn for p in packets[:-1]} == {pair.b.qp.qp_num}
    assert ack[BTH].dqpn == pair.a.qp.qp_num


@pytest.mark.parametrize("size", SIZES)
def test_a_write_names_its_target_in_the_first_packet(pair: Any, watch: Watch, size: int) -> None:
    data = Random(size).randbytes(size)
    pair.a.mr.write(data)
    pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_WRITE, size, at=16))
    pair.a.wait_ok()
    packets = acknowledged_once(transport(watch))
    assert names(packets) == [*parts("RDMA_WRITE", size), "ACKNOWLEDGE"]
    reth = packets[0][RETH]
    assert (reth.va, reth.rkey, reth.dmalen) == (pair.b.mr.buf + 16, pair.b.mr.rkey, size)
    assert payload(packets[:-1]) == data


@pytest.mark.parametrize("size", SIZES)
def test_a_read_takes_the_psns_of_its_responses(pair: Any, watch: Watch, size: int) -> None:
    data = Random(size).randbytes(size)
    pair.b.mr.write(data, offset=16)
    for _ in range(2):
        pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_READ, size, at=16))
        pair.a.wait_ok()
    packets = transport(watch)
    once = ["RDMA_READ_REQUEST", *parts("RDMA_READ_RESPONSE", size)]
    assert names(packets) == 2 * once
    request, *responses = packets[: len(once)]
    assert request[RETH].dmalen == size
    assert [p[BTH].psn for p in responses] == [
        (request[BTH].psn + i) & PSN_MASK for i in range(len(responses))
    ]
    assert packets[len(once)][BTH].psn == (request[BTH].psn + len(responses)) & PSN_MASK
    assert payload(responses) == data
    assert [p[AETH].msn for p in packets if AETH in p] == sorted(
        p[AETH].msn for p in packets if AETH in p
    )
    assert packets[-1][AETH].msn == 2


@pytest.mark.parametrize("opcode", [e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_ATOMIC_CMP_AND_SWP])
def test_an_atomic_is_answered_with_what_was_there(pair: Any, watch: Watch, opcode: int) -> None:
    pair.b.mr.write((5).to_bytes(8, "little"), offset=64)
    pair.a.qp.post_send(one_sided(pair, opcode, 8, at=64))
    pair.a.wait_ok()
    request, answer = packets = transport(watch)
    swaps = opcode == e.IBV_WR_ATOMIC_CMP_AND_SWP
    assert names(packets) == ["COMPARE_SWAP" if swaps else "FETCH_ADD", "ATOMIC_ACKNOWLEDGE"]
    assert (request[AtomicETH].va, request[AtomicETH].rkey) == (
        pair.b.mr.buf + 64,
        pair.b.mr.rkey,
    )
    wanted = (9, 5) if swaps else (5, 0)
    assert (request[AtomicETH].swap, request[AtomicETH].compare) == wanted
    assert (answer[AtomicAckETH].orig, answer[AETH].syndrome) == (5, 0x1F)
    assert answer[BTH].psn == request[BTH].psn


@pytest.mark.parametrize("size", [0, 8, 9000])
def test_a_write_with_immediate_data_is_one_message(pair: Any, watch: Watch, size: int) -> None:
    pair.b.qp.post_recv(RecvWR(7))
    imm = socket.htonl(0x12345678)
    pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_WRITE_WITH_IMM, size, imm_data=imm))
    pair.a.wait_ok()
    packets = acknowledged_once(transport(watch))
    wanted = parts("RDMA_WRITE", size)
    wanted[-1] += "_WITH_IMMEDIATE"
    assert names(packets) == [*wanted, "ACKNOWLEDGE"]
    assert packets[-2][ImmDt].data == 0x12345678
    assert packets[-1][BTH].psn == packets[-2][BTH].psn
    assert packets[-1][AETH].msn == 1


def test_sends_with_immediate_data_and_with_invalidation(pair: Any, watch: Watch) -> None:
    pair.b.qp.post_recv([RecvWR(i, sg=[pair.b.mr.sge()]) for i in range(2)])
    with_imm = SendWR(
        1, e.IBV_WR_SEND_WITH_IMM, imm_data=socket.htonl(77), sg=[pair.a.mr.sge(0, 8)]
    )
    with_imm.send_flags |= e.IBV_SEND_SOLICITED
    pair.a.qp.post_send(with_imm)
    pair.a.wait_ok()
    pair.a.qp.post_send(
        SendWR(2, e.IBV_WR_SEND_WITH_INV, imm_data=pair.b.mr.rkey, sg=[pair.a.mr.sge(0, 8)])
    )
    pair.a.wait()
    first, _, second, answer = packets = transport(watch)
    assert names(packets)[:3:2] == ["SEND_ONLY_WITH_IMMEDIATE", "SEND_ONLY_WITH_INVALIDATE"]
    assert (first[ImmDt].data, first[BTH].solicited) == (77, 1)
    assert (second[IETH].rkey, second[BTH].solicited) == (pair.b.mr.rkey, 0)
    assert answer[AETH].syndrome >> 5 in (0, 3)


def test_psns_go_on_through_a_mixture_and_wrap(make_pair: Any, mover: str, fabric: Fabric) -> None:
    random = Random(mover)
    pair = make_pair(mover=mover)
    with Watch(fabric, ("transport",)) as watch:
        for i in range(60):
            size = random.choice([0, 8, 33, 4096, 4097, 20_000])
            kind = random.randrange(4)
            if kind == 0:
                pair.b.qp.post_recv(RecvWR(i, sg=[pair.b.mr.sge()]))
                pair.a.qp.post_send(SendWR(i, sg=[pair.a.mr.sge(0, size)]))
            elif kind == 3:
                pair.a.qp.post_send(one_sided(pair, e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8))
            else:
                opcode = (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ)[kind - 1]
                pair.a.qp.post_send(one_sided(pair, opcode, size))
            pair.a.wait_ok()
        packets = transport(watch)
    requests = [p for p in packets if p[BTH].dqpn == pair.b.qp.qp_num]
    expected = requests[0][BTH].psn
    messages = 0
    for packet, name in zip(requests, names(requests), strict=True):
        assert packet[BTH].psn == expected, name
        read = max(1, -(-packet[RETH].dmalen // MTU)) if name == "RDMA_READ_REQUEST" else 1
        expected = (expected + read) & PSN_MASK
        messages += packet[BTH].ackreq
    assert messages == 60
    assert [p for p in packets if AETH in p][-1][AETH].msn == 60
    for packet in packets:
        assert packet[BTH].icrc == packet[BTH].computed_icrc()


def test_every_icrc_checksum_and_length_is_right(pair: Any, watch: Watch) -> None:
    for size in range(70):
        pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_WRITE, size))
        pair.a.wait_ok()
    packets = seen(watch, 3)
    assert len(packets) == 140
    for packet in packets:
        shown = Ether(packet.data)
        assert packet.original_bytes == len(packet.data)
        assert shown[BTH].icrc == shown[BTH].computed_icrc()
        assert shown[IP].len == len(packet.data) - 14
        assert shown[UDP].len == len(packet.data) - 34
        checksum = shown[IP].chksum
        del shown[IP].chksum
        assert IP(bytes(shown[IP])).chksum == checksum
        assert (shown[UDP].dport, shown[UDP].chksum) == (4791, 0)
        assert shown[UDP].sport >= 0xC000


def test_addresses_are_those_of_the_hosts(pair: Any, watch: Watch, fabric: Fabric) -> None:
    pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_WRITE, 8))
    pair.a.wait_ok()
    request, answer = transport(watch)
    assert (request[IP].src, request[IP].dst) == ("10.0.0.1", "10.0.0.2")
    assert (answer[IP].src, answer[IP].dst) == ("10.0.0.2", "10.0.0.1")
    assert (request.src, request.dst) == (answer.dst, answer.src)
    assert request.src == fabric.hosts[0].mac
    assert request[UDP].sport == answer[UDP].sport


def test_refusals_are_naks(make_pair: Any, mover: str, fabric: Fabric) -> None:
    access, rnr = make_pair(mover=mover), make_pair(mover=mover, path={"rnr_retry": 0})
    with Watch(fabric, ("transport",)) as watch:
        wrong = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[access.a.mr.sge(0, 8)])
        wrong.set_wr_rdma(access.b.mr.rkey ^ 0x1000, access.b.mr.buf)
        access.a.qp.post_send(wrong)
        assert access.a.wait()[0].status == e.IBV_WC_REM_ACCESS_ERR
        _, nak = packets = transport(watch)
        assert names(packets) == ["RDMA_WRITE_ONLY", "ACKNOWLEDGE"]
        assert (nak[AETH].syndrome, nak[AETH].msn) == (0x62, 0)
        rnr.a.qp.post_send(SendWR(1, sg=[rnr.a.mr.sge(0, 8)]))
        assert rnr.a.wait()[0].status == e.IBV_WC_RNR_RETRY_EXC_ERR
        request, nak = transport(watch)
        assert nak[AETH].syndrome >> 5 == 1
        assert nak[BTH].psn == request[BTH].psn


def test_what_is_sent_again_has_the_psn_that_it_had(
    make_pair: Any, mover: str, fabric: Fabric
) -> None:
    pair = make_pair(mover=mover, path={"min_rnr_timer": 1})
    with Watch(fabric, ("transport",)) as watch:
        pair.a.qp.post_send([SendWR(i, sg=[pair.a.mr.sge(0, 5000)]) for i in range(3)])
        found = transport(watch)
        while not any(AETH in p and p[AETH].syndrome >> 5 == 1 for p in found):
            found += transport(watch)
        pair.b.qp.post_recv([RecvWR(i, sg=[pair.b.mr.sge()]) for i in range(3)])
        pair.a.wait_ok(3)
        found += transport(watch)
    psns = {p[BTH].psn for p in found if p[BTH].dqpn == pair.b.qp.qp_num}
    assert len(psns) == 6
    assert len([n for n in names(found) if n == "SEND_FIRST"]) > 3
    final = [p for p in found if AETH in p][-1]
    assert (final[AETH].syndrome, final[AETH].msn, final[BTH].psn) == (0x1F, 3, max(psns))


def test_unreliable_messages_have_no_answer(make_pair: Any, mover: str, fabric: Fabric) -> None:
    pair = make_pair(e.IBV_QPT_UC, mover=mover)
    with Watch(fabric, ("transport",)) as watch:
        pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
        pair.a.qp.post_send(SendWR(1, sg=[pair.a.mr.sge(0, 9000)]))
        pair.b.wait_ok()
        pair.a.wait_ok()
        pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_WRITE, 100))
        pair.a.wait_ok()
        packets = transport(watch)
    assert names(packets) == [*parts("SEND", 9000), "RDMA_WRITE_ONLY"]
    assert {p[BTH].opcode & 0xE0 for p in packets} == {0x20}
    assert {p[BTH].ackreq for p in packets} == {0}
    first = packets[0][BTH].psn
    assert [p[BTH].psn for p in packets] == [(first + i) & PSN_MASK for i in range(4)]


@pytest.mark.parametrize("size", [0, 8, 16, 17, 4096])
def test_a_datagram_says_who_sent_it(make_pair: Any, fabric: Fabric, size: int) -> None:
    pair = make_pair(e.IBV_QPT_UD)
    data = Random(size).randbytes(size)
    pair.a.mr.write(data)
    with Watch(fabric, ("transport",)) as watch:
        pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
        pair.a.qp.post_send(datagram(pair, size))
        pair.b.wait_ok()
        (packet,) = packets = transport(watch)
    assert (names(packets), packet[BTH].opcode) == (["SEND_ONLY"], 0x64)
    assert (packet[DETH].qkey, packet[DETH].srcqp) == (pair.a.QKEY, pair.a.qp.qp_num)
    assert packet[BTH].dqpn == pair.b.qp.qp_num
    assert payload(packets) == data


def test_a_snap_length_cuts_packets_and_says_how_long_they_were(pair: Any, fabric: Fabric) -> None:
    with Watch(fabric, ("transport",), snap_bytes=100) as watch:
        pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_WRITE, 10_000))
        pair.a.wait_ok()
        packets = seen(watch, 3)
    packets = [p for p in packets[:-1] if p.original_bytes != 62] + packets[-1:]
    assert [len(p.data) for p in packets] == [100, 100, 100, 62]
    assert [p.original_bytes for p in packets] == [4170, 4154, 1866, 62]
    shown = Ether(packets[0].data)
    assert (shown[RETH].dmalen, shown[IP].len) == (10_000, 4156)


@pytest.mark.parametrize("opcode", [e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ])
def test_a_message_of_many_records_is_one_message(
    make_pair: Any, mover: str, fabric: Fabric, opcode: int
) -> None:
    size = 1_000_003
    data = Random(opcode).randbytes(size)
    pair = make_pair(mover=mover, size=1 << 20)
    (pair.b if opcode == e.IBV_WR_RDMA_READ else pair.a).mr.write(data)
    with Watch(fabric, ("transport",)) as watch:
        if opcode == e.IBV_WR_SEND:
            pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
            pair.a.qp.post_send(SendWR(1, sg=[pair.a.mr.sge(0, size)]))
        else:
            pair.a.qp.post_send(one_sided(pair, opcode, size))
        pair.a.wait_ok()
        packets = transport(watch)
        assert watch.counts.lost == 0
    kind = {0: "RDMA_WRITE", 2: "SEND", 4: "RDMA_READ_RESPONSE"}[opcode]
    carriers = [p for p, n in zip(packets, names(packets), strict=True) if n.startswith(kind)]
    assert names(carriers) == parts(kind, size)
    assert payload(carriers) == data
    first = packets[0][BTH].psn
    assert [p[BTH].psn - first for p in carriers] == list(range(len(carriers)))
    if opcode == e.IBV_WR_RDMA_READ:
        assert packets[0][RETH].dmalen == size
    else:
        assert (packets[-1][AETH].msn, packets[-1][BTH].psn) == (1, carriers[-1][BTH].psn)


def test_a_packet_is_seen_at_each_watched_port_of_its_route(pair: Any, fabric: Fabric) -> None:
    ports = range(len(fabric.ports))
    with Watch(fabric, ("transport",), ports=ports) as watch:
        pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_WRITE, 8))
        pair.a.wait_ok()
        packets = seen(watch, 3)
    route = ["host0/1", "switch0/1", "switch0/2", "host1/1"]
    assert [fabric.ports[p.port].name for p in packets] == [*route, *reversed(route)]
    assert [p.direction for p in packets] == 2 * [2, 2, 1, 1]
    assert [p.host for p in packets] == [0, 0, 1, 1, 1, 1, 0, 0]


def test_answers_have_the_transfer_of_their_request(pair: Any, fabric: Fabric) -> None:
    with Watch(fabric, ("transport", "queue", "tlp")) as watch:
        for i in range(3):
            pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
            pair.a.qp.post_send(SendWR(i, sg=[pair.a.mr.sge(0, 5000)]))
            pair.a.wait_ok()
            pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_READ, 5000))
            pair.a.wait_ok()
        packets = rest(watch)
    transfers = sorted({p.transfer for p in packets if p.transfer})
    assert transfers == [pair.a.qp.qp_num << 40 | i + 1 for i in range(6)]
    for transfer in transfers:
        for level in (1, 2, 3):
            same = [p for p in packets if (p.transfer, p.level) == (transfer, level)]
            assert [p.sequence for p in same] == list(range(len(same)))
            assert same[0].flags & 1
            assert [p for p in same if p.flags & 2]
    assert [p.ts_ns for p in packets] == sorted(p.ts_ns for p in packets)


def test_tshark_agrees_field_by_field(pair: Any, fabric: Fabric, tmp_path: Path) -> None:
    with Watch(fabric, ("transport",)) as watch:
        pair.b.qp.post_recv([RecvWR(i, sg=[pair.b.mr.sge()]) for i in range(2)])
        imm = SendWR(1, e.IBV_WR_SEND_WITH_IMM, imm_data=7, sg=[pair.a.mr.sge(0, 5001)])
        for wr in (
            SendWR(1, sg=[pair.a.mr.sge(0, 100)]),
            imm,
            one_sided(pair, e.IBV_WR_RDMA_WRITE, 9000),
            one_sided(pair, e.IBV_WR_RDMA_READ, 9000),
            one_sided(pair, e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8),
            one_sided(pair, e.IBV_WR_ATOMIC_CMP_AND_SWP, 8),
        ):
            pair.a.qp.post_send(wr)
            pair.a.wait_ok()
        packets = transport(watch)
    wrpcap(str(tmp_path / "x.pcap"), packets)
    dissected = tshark.dissect(tmp_path / "x.pcap", "-o", "ip.check_checksum:TRUE")
    assert len(dissected) == len(packets)
    compared = set()
    for packet, fields in zip(packets, dissected, strict=True):
        assert "_ws.malformed" not in fields
        assert fields["ip.checksum.status"] == ["1"]
        for name, (layer, field) in NUMBERS.items():
            if name in fields and layer in packet:
                assert tshark.number(fields[name][0]) == packet[layer].getfieldval(field), name
                compared.add(layer)
    assert {BTH, RETH, AETH, AtomicETH, AtomicAckETH, ImmDt, IP, UDP} <= compared
