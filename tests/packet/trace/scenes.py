# SPDX-License-Identifier: BSD-3-Clause
"""Captures of single transfers, as `nupa capture` and as real adapters would write them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from nupa.diagram.find.index import Index
from nupa.packet.pcapng.reader import INBOUND, OUTBOUND, Writer
from nupa.packet.scapy.transport import AETH, BTH, DETH, RETH, AtomicAckETH, AtomicETH
from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables import record
from nupa.packet.tables.record import LINKTYPE_ETHERNET, LINKTYPE_NUPA, Kind, Level
from tests.unit.packet import encode, split

START_NS = 1_700_000_000_000_000_000
SOURCE_QPN, TARGET_QPN = 0x010011, 0x020047
TRANSFER = SOURCE_QPN << 40 | 1
ADDRESS, RKEY = 0x7F12_3456_7000, 0x1234
SEND, WRITE, READ, CMP_SWP, FETCH_ADD = 2, 0, 4, 5, 6
RC, UD = 2, 4
WC_SEND, WC_WRITE, WC_READ, WC_RECV = 0, 1, 2, 128


class Scene:
    """A capture in the making.  Each record is *after* ns later than the one before."""

    def __init__(self, *, names_transfers: bool = True) -> None:
        self.file = io.BytesIO()
        self.writer = Writer(self.file)
        self.now_ns = START_NS
        self.transfer = TRANSFER if names_transfers else 0
        self._interfaces: dict[tuple[str, int], int] = {}
        self._identification = count(1)

    def interface(self, port: str, linktype: int) -> int:
        key = (port, linktype)
        if key not in self._interfaces:
            self._interfaces[key] = self.writer.add_interface(port, linktype)
        return self._interfaces[key]

    def bytes(self) -> bytes:
        return self.file.getvalue()

    # --- level queue ---

    def _ours(
        self, port: str, level: int, kind: int, data: bytes, after: int, host: int, **header: int
    ) -> None:
        self.now_ns += after
        head = record.pack(level, kind, transfer=self.transfer, host=host, **header)
        self.writer.write(
            self.interface(port, LINKTYPE_NUPA), self.now_ns, head + data, packet_id=self.transfer
        )

    def wqe(
        self,
        opcode: int,
        length: int,
        *,
        after: int = 0,
        port: str = "host0/1",
        host: int = 0,
        qpn: int = SOURCE_QPN,
        qp_type: int = RC,
        flags: int = 2,
        wr_id: int = 1,
    ) -> None:
        segments = b""
        if opcode in (WRITE, READ, CMP_SWP, FETCH_ADD):
            remote = queue_tables.SEGMENT_LAYOUTS[queue_tables.SegmentType.REMOTE]
            segments += remote.encode(type=1, bytes=16, address=ADDRESS, rkey=RKEY)
        data = queue_tables.WQE.encode(
            queue=0,
            opcode=opcode,
            qp_type=qp_type,
            flags=flags,
            bytes=40 + len(segments),
            number=qpn,
            wr_id=wr_id,
            length=length,
        )
        self._ours(port, Level.QUEUE, Kind.WQE, data + segments, after, host)

    def doorbell(self, *, after: int = 0, port: str = "host0/1", host: int = 0) -> None:
        data = queue_tables.DOORBELL.encode(queue=0, number=SOURCE_QPN, index=1)
        self._ours(port, Level.QUEUE, Kind.DOORBELL, data, after, host)

    def cqe(
        self,
        opcode: int,
        *,
        after: int = 0,
        status: int = 0,
        length: int = 0,
        wr_id: int = 1,
        receives: bool = False,
    ) -> None:
        port, host, qpn = ("host1/1", 1, TARGET_QPN) if receives else ("host0/1", 0, SOURCE_QPN)
        data = queue_tables.CQE.encode(
            status=status, opcode=opcode, qpn=qpn, wr_id=wr_id, byte_len=length
        )
        self._ours(port, Level.QUEUE, Kind.CQE, data, after, host)

    # --- level tlp ---

    def tlps(self, tlps: Iterable[split.Tlp], *, host: int, after: int = 0) -> None:
        """Adds the switch's requests to a host's memory, and the completions."""
        for tlp in tlps:
            size = 0 if tlp.kind == "MRd" else tlp.length
            data = encode.tlp_bytes(tlp, b"\x5a" * size)
            way = OUTBOUND if tlp.kind == "CplD" else INBOUND
            port = f"host{host}/1"
            self._ours(port, Level.TLP, Kind.PCIE_TLP, data, after, host, direction=way)

    def cxl(self, messages: Iterable[split.CxlMessage], *, after: int = 0) -> None:
        for message in messages:
            data = encode.cxl_mem_bytes(message, b"\x5a" * message.data_bytes)
            way = OUTBOUND if message.opcode.startswith("MemWr") else INBOUND
            self._ours("host0/1", Level.TLP, Kind.CXL_MEM, data, after, 0, direction=way)

    # --- levels transport and net ---

    def frame(
        self,
        packet: Packet | bytes,
        *,
        after: int = 0,
        back: bool = False,
        ports: Iterable[tuple[str, int]] = (),
        flags: int = 0,
    ) -> None:
        """Adds a frame, recorded at its source, or at the *ports* with their directions."""
        self.now_ns += after
        default = ("host1/1" if back else "host0/1", OUTBOUND)
        for port, direction in [*ports] or [default]:
            self.writer.write(
                self.interface(port, LINKTYPE_ETHERNET),
                self.now_ns,
                bytes(packet),
                flags=direction,
                packet_id=self.transfer,
                comment=record.comment_of(flags),
            )

    def below(self, back: bool) -> Packet:
        source, target = (2, 1) if back else (1, 2)
        return (
            Ether(src=f"02:00:0a:00:00:{source:02x}", dst=f"02:00:0a:00:00:{target:02x}")
            / IP(src=f"10.0.0.{source}", dst=f"10.0.0.{target}", id=next(self._identification))
            / UDP(sport=0xC011, chksum=0)
        )

    def request(
        self, opcode: str, psn: int, above: Any = None, *, qpn: int = TARGET_QPN, **how: Any
    ) -> None:
        bth = BTH(opcode=opcode, dqpn=qpn, psn=psn)
        self.frame(self.below(False) / (bth if above is None else bth / above), **how)

    def response(
        self, opcode: str, psn: int, above: Any, *, qpn: int = SOURCE_QPN, **how: Any
    ) -> None:
        bth = BTH(opcode=opcode, dqpn=qpn, psn=psn)
        self.frame(self.below(True) / bth / above, back=True, **how)

    def ack(self, psn: int, *, syndrome: int = 0x1F, **how: Any) -> None:
        self.response("RC_ACKNOWLEDGE", psn, AETH(syndrome=syndrome, msn=1), **how)


def send() -> Scene:
    """Returns a SEND of 8 bytes, at levels queue and transport."""
    scene = Scene()
    scene.wqe(SEND, 8, flags=2 | 8)
    scene.doorbell(after=40)
    scene.request("RC_SEND_ONLY", 5, b"8 bytes!", after=110)
    scene.cqe(WC_RECV, after=420, length=8, wr_id=7, receives=True)
    scene.ack(5, after=90)
    scene.cqe(WC_SEND, after=260)
    return scene


def write(packets: int = 16, mtu: int = 4096) -> Scene:
    """Returns an RDMA WRITE of many packets, at levels queue and transport."""
    scene = Scene()
    scene.wqe(WRITE, packets * mtu)
    scene.doorbell(after=35)
    _write_packets(scene, packets, mtu, 100)
    scene.ack(100 + packets - 1, after=300)
    scene.cqe(WC_WRITE, after=150)
    return scene


def _write_packets(scene: Scene, packets: int, mtu: int, psn: int) -> None:
    payload = b"\x5a" * mtu
    reth = RETH(va=ADDRESS, rkey=RKEY, dmalen=packets * mtu)
    scene.request("RC_RDMA_WRITE_FIRST", psn, reth / payload, after=120)
    for i in range(1, packets - 1):
        scene.request("RC_RDMA_WRITE_MIDDLE", psn + i, payload, after=330)
    scene.request("RC_RDMA_WRITE_LAST", psn + packets - 1, payload, after=330)


def all_levels() -> Scene:
    """Returns an RDMA WRITE of 4 KiB in 4 packets: queue entries, packets and TLPs."""
    scene = Scene()
    scene.wqe(WRITE, 4096)
    scene.doorbell(after=35)
    payload = b"\x5a" * 1024
    link = split.PcieLink()
    for i, opcode in enumerate(("FIRST", "MIDDLE", "MIDDLE", "LAST")):
        reth = RETH(va=ADDRESS, rkey=RKEY, dmalen=4096)
        above = reth / payload if i == 0 else payload
        scene.request(f"RC_RDMA_WRITE_{opcode}", 100 + i, above, after=110)
        scene.tlps(split.pcie_tlps("read", 0x1000 + 1024 * i, 1024, link), host=0, after=5)
        scene.tlps(split.pcie_tlps("write", ADDRESS + 1024 * i, 1024, link), host=1, after=5)
    scene.ack(103, after=200)
    scene.cqe(WC_WRITE, after=150)
    return scene


def read() -> Scene:
    """Returns an RDMA READ of three packets, also as TLPs."""
    scene = Scene()
    scene.wqe(READ, 3072)
    scene.doorbell(after=35)
    scene.request("RC_RDMA_READ_REQUEST", 7, RETH(va=ADDRESS, rkey=RKEY, dmalen=3072), after=90)
    payload = b"\x5a" * 1024
    scene.tlps(split.pcie_tlps("read", ADDRESS, 3072, split.PcieLink()), host=1, after=15)
    scene.response("RC_RDMA_READ_RESPONSE_FIRST", 7, AETH(msn=1) / payload, after=400)
    scene.response("RC_RDMA_READ_RESPONSE_MIDDLE", 8, payload, after=90)
    scene.response("RC_RDMA_READ_RESPONSE_LAST", 9, AETH(msn=1) / payload, after=90)
    scene.tlps(split.pcie_tlps("write", 0x1000, 3072, split.PcieLink()), host=0, after=15)
    scene.cqe(WC_READ, after=120, length=3072)
    return scene


def atomic() -> Scene:
    scene = Scene()
    scene.wqe(CMP_SWP, 8)
    operands = AtomicETH(va=ADDRESS, rkey=RKEY, swap=9, compare=4)
    scene.request("RC_COMPARE_SWAP", 21, operands, after=150)
    answer = AETH(msn=1) / AtomicAckETH(orig=4)
    scene.response("RC_ATOMIC_ACKNOWLEDGE", 21, answer, after=500)
    scene.cqe(3, after=100, length=8)
    return scene


def refused() -> Scene:
    """Returns a WRITE to memory that it may not access."""
    scene = Scene()
    scene.wqe(WRITE, 64)
    scene.request(
        "RC_RDMA_WRITE_ONLY", 5, RETH(va=0xBAD000, rkey=1, dmalen=64) / bytes(64), after=150
    )
    scene.ack(5, syndrome=0x62, after=400)
    scene.cqe(WC_WRITE, after=100, status=10)
    return scene


def dropped() -> Scene:
    """Returns a SEND that is lost, and sent again after its timeout."""
    scene = Scene()
    scene.wqe(SEND, 8)
    scene.doorbell(after=40)
    scene.request("RC_SEND_ONLY", 5, b"8 bytes!", after=110, flags=record.Flag.DROPPED)
    scene.request("RC_SEND_ONLY", 5, b"8 bytes!", after=67_108_864, flags=record.Flag.RETRY)
    scene.ack(5, after=480)
    scene.cqe(WC_SEND, after=260)
    return scene


def datagram() -> Scene:
    scene = Scene()
    scene.wqe(SEND, 64, qp_type=UD)
    deth = DETH(qkey=0x11111111, srcqp=SOURCE_QPN)
    scene.request("UD_SEND_ONLY", 3, deth / bytes(64), after=120)
    scene.cqe(WC_SEND, after=90)
    scene.cqe(WC_RECV, after=300, length=104, wr_id=9, receives=True)
    return scene


def pooled() -> Scene:
    """Returns a store of two lines to pooled memory."""
    scene = Scene()
    scene.wqe(WRITE, 128)
    scene.cxl(split.cxl_mem_messages("store", 0x4000, 128), after=70)
    scene.cqe(WC_WRITE, after=90)
    return scene


def through_switch() -> Scene:
    """Returns a SEND seen at each port on its way, and its ACK."""
    scene = Scene()
    way = [("host0/1", OUTBOUND), ("switch0/1", OUTBOUND)]
    way += [("switch0/2", INBOUND), ("host1/1", INBOUND)]
    back = [(port, INBOUND + OUTBOUND - direction) for port, direction in reversed(way)]
    scene.wqe(SEND, 8)
    scene.request("RC_SEND_ONLY", 5, b"8 bytes!", after=110, ports=way)
    scene.ack(5, after=480, ports=back)
    scene.cqe(WC_SEND, after=200)
    return scene


SCENES = {
    "send": send,
    "write": write,
    "all_levels": all_levels,
    "read": read,
    "atomic": atomic,
    "refused": refused,
    "dropped": dropped,
    "datagram": datagram,
    "pooled": pooled,
    "through_switch": through_switch,
}


Reading = Callable[[Scene | bytes], Index]  # the fixture `read`
