# SPDX-License-Identifier: BSD-3-Clause
"""sniff_fabric is scapy's sniff: its options, AsyncSniffer, and files of what was sniffed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.sendrecv import AsyncSniffer
from scapy.utils import PcapNgReader, rdpcap, wrpcapng

from nupa.fabric import Fabric, LocalError
from nupa.packet.scapy.link import Nupa
from nupa.packet.scapy.queue import CQE, WQE
from nupa.packet.scapy.sniff import FabricSockets, fabric_socket, sniff_fabric
from nupa.packet.scapy.transport import AETH, BTH
from nupa.verbs import CQ, MR, PD, QP, SGE, Context, QPCap, QPInitAttr, RecvWR, SendWR, connect
from nupa.verbs import enums as e

DEADLINE_S = 10.0
SIZE = 64


class Talk:
    """Two hosts of a fabric in this process; send() sends 64 bytes from the first to the other."""

    def __init__(self, fabric: Fabric) -> None:
        self.contexts = [Context(fabric=fabric, host=host) for host in (0, 1)]
        pds = [PD(context) for context in self.contexts]
        self.mrs = [MR(pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE) for pd in pds]
        self.cqs = [CQ(context, 16) for context in self.contexts]
        cap = QPCap(8, 8, 1, 1)
        init = [
            QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=1)
            for cq in self.cqs
        ]
        self.qps = [QP(pd, attr) for pd, attr in zip(pds, init, strict=True)]
        connect(*self.qps)

    def send(self, count: int = 1) -> None:
        for i in range(count):
            (source, target), (ours, theirs) = self.mrs, self.qps
            theirs.post_recv(RecvWR(i, sg=[SGE(target.buf, SIZE, target.lkey)]))
            source.write(bytes([i]) * SIZE, SIZE)
            sge = SGE(source.buf, SIZE, source.lkey)
            ours.post_send(SendWR(i, sg=[sge], opcode=e.IBV_WR_SEND))
            for cq in self.cqs:
                cq.wait(1, DEADLINE_S)


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(hosts=2) as fabric:
        yield fabric


@pytest.fixture
def talk(fabric: Fabric) -> Iterator[Talk]:
    talk = Talk(fabric)
    yield talk
    for context in talk.contexts:
        context.close()


def test_a_send_is_sniffed_with_all_its_layers(fabric: Fabric, talk: Talk) -> None:
    sent, answer = sniff_fabric(fabric, count=2, timeout=DEADLINE_S, started_callback=talk.send)
    assert [type(layer) for layer in (sent, sent[IP], sent[UDP], sent[BTH])] == [
        *(Ether, IP, UDP, BTH)
    ]
    assert sent[Raw].load == bytes(SIZE)
    assert answer[AETH].msn == 1
    assert (sent.sniffed_on, answer.sniffed_on) == ("host0/1", "host1/1")
    assert (sent.direction, answer.direction) == (2, 2)
    assert sent.transfer == answer.transfer != 0
    assert sent.wirelen == len(sent)
    assert sent.time <= answer.time
    for packet in (sent, answer):
        assert packet[BTH].icrc == packet[BTH].computed_icrc()


def test_count_prn_store_and_lfilter_are_scapys(fabric: Fabric, talk: Talk) -> None:
    seen: list[int] = []
    kept = sniff_fabric(
        fabric,
        count=3,
        timeout=DEADLINE_S,
        store=False,
        lfilter=lambda packet: AETH not in packet,
        prn=lambda packet: seen.append(packet[BTH].psn),
        started_callback=lambda: talk.send(5),
    )
    assert len(kept) == 0
    assert seen == [seen[0] + i for i in range(3)]


def test_a_timeout_ends_it(fabric: Fabric, talk: Talk) -> None:
    assert len(sniff_fabric(fabric, timeout=0.05)) == 0
    found = sniff_fabric(fabric, timeout=0.2, started_callback=lambda: talk.send(2))
    assert len(found) == 4


def test_a_stop_filter_ends_it(fabric: Fabric, talk: Talk) -> None:
    found = sniff_fabric(
        fabric,
        timeout=DEADLINE_S,
        stop_filter=lambda packet: AETH in packet,
        started_callback=lambda: talk.send(5),
    )
    assert [AETH in packet for packet in found] == [False, True]


def test_one_port_is_seen_in_both_directions(fabric: Fabric, talk: Talk) -> None:
    found = sniff_fabric(fabric, "host1", count=2, timeout=DEADLINE_S, started_callback=talk.send)
    assert [packet.direction for packet in found] == [1, 2]
    assert {packet.sniffed_on for packet in found} == {"host1/1"}


def test_queue_entries_are_records_of_nupa(fabric: Fabric, talk: Talk) -> None:
    found = sniff_fabric(
        fabric,
        level="queue",
        timeout=DEADLINE_S,
        stop_filter=_ends_with(CQE, 2),
        started_callback=talk.send,
    )
    assert {type(packet) for packet in found} == {Nupa}
    work = [packet for packet in found if WQE in packet and packet[WQE].queue == 0]
    assert [packet[WQE].length for packet in work] == [SIZE]
    completions = [packet for packet in found if CQE in packet]
    assert work[0].transfer in {packet.transfer for packet in completions}


def _ends_with(layer: type[Packet], count: int) -> Callable[[Packet], bool]:
    left = count

    def is_last(packet: Packet) -> bool:
        nonlocal left
        left -= layer in packet
        return left == 0

    return is_last


def test_an_async_sniffer_runs_beside_the_program(fabric: Fabric, talk: Talk) -> None:
    started = threading.Event()
    came = threading.Semaphore(0)
    with fabric_socket(fabric) as sockets:
        sniffer = AsyncSniffer(
            opened_socket=sockets,
            prn=lambda _packet: came.release(),
            started_callback=started.set,
        )
        sniffer.start()
        assert started.wait(DEADLINE_S)
        talk.send(3)
        for _ in range(6):
            assert came.acquire(timeout=DEADLINE_S)
        found = sniffer.stop()
        assert sockets.counts.lost == 0
    assert [AETH in packet for packet in found] == [False, True] * 3


def test_a_sniffer_ends_when_its_sockets_are_closed(fabric: Fabric) -> None:
    started = threading.Event()
    sockets = fabric_socket(fabric)
    sniffer = AsyncSniffer(opened_socket=sockets, started_callback=started.set)
    sniffer.start()
    assert started.wait(DEADLINE_S)
    sockets.close()
    sniffer.join(DEADLINE_S)
    assert not sniffer.running


def test_packets_stay_in_order_across_ports(fabric: Fabric, talk: Talk) -> None:
    found = sniff_fabric(
        fabric, count=40, timeout=DEADLINE_S, started_callback=lambda: talk.send(20)
    )
    assert [packet.time for packet in found] == sorted(packet.time for packet in found)
    assert [packet.sniffed_on for packet in found] == ["host0/1", "host1/1"] * 20


def test_what_was_sniffed_is_written_and_read_again(
    fabric: Fabric, talk: Talk, tmp_path: Path
) -> None:
    file = tmp_path / "x.pcapng"
    found = sniff_fabric(fabric, count=6, timeout=DEADLINE_S, started_callback=lambda: talk.send(3))
    wrpcapng(str(file), found)
    with PcapNgReader(str(file)) as reader:
        again = list(reader)
    assert [bytes(packet) for packet in again] == [bytes(packet) for packet in found]
    assert [packet.sniffed_on for packet in again] == [packet.sniffed_on for packet in found]
    assert [packet.direction for packet in again] == [packet.direction for packet in found]
    # scapy writes microseconds
    assert [float(packet.time) for packet in again] == pytest.approx(
        [float(packet.time) for packet in found], abs=2e-6
    )
    assert [packet[BTH].psn for packet in rdpcap(str(file))] == [p[BTH].psn for p in found]


def test_a_snap_length_cuts_what_is_sniffed(fabric: Fabric, talk: Talk) -> None:
    (packet,) = sniff_fabric(
        fabric, snaplen=60, count=1, timeout=DEADLINE_S, started_callback=talk.send
    )
    assert packet.wirelen > 60
    assert packet[BTH].icrc is None  # it was cut off


def test_a_fabric_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    from nupa.topology.topology import star

    with Fabric.create("lab", star(2)) as fabric:
        talk = Talk(fabric)
        for name in ("lab", None):
            found = sniff_fabric(name, count=2, timeout=DEADLINE_S, started_callback=talk.send)
            assert len(found) == 2
        for context in talk.contexts:
            context.close()
    Fabric.remove("lab")


def test_what_it_cannot_do_is_refused(fabric: Fabric) -> None:
    with pytest.raises(LocalError, match="lfilter="):
        sniff_fabric(fabric, filter="udp")
    with pytest.raises(LocalError, match="no port, host or link is named 'host9'"):
        sniff_fabric(fabric, "host9")
    with fabric_socket(fabric) as sockets:
        assert isinstance(sockets, FabricSockets)
        with pytest.raises(LocalError, match="only receives"):
            next(iter(sockets)).send(Ether())
