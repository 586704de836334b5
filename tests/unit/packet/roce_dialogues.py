# SPDX-License-Identifier: BSD-3-Clause
"""Dialogues between two RoCE v2 hosts: samples of captures for tests and benchmarks.

Each dialogue has the packets of a requester and a responder for one kind of work.  PSNs, MSNs,
credits and immediate data are as in real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet

from nupa.packet.scapy.cm import (
    DREP,
    DREQ,
    IPCM,
    LAP,
    MAD,
    MRA,
    REJ,
    REP,
    REQ,
    RTU,
    SIDR_REP,
    SIDR_REQ,
)
from nupa.packet.scapy.transport import (
    AETH,
    BTH,
    DETH,
    FETH,
    IETH,
    RDETH,
    RETH,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    CNPPadding,
    ImmDt,
)

MTU = 256
SERVICE_TCP = 0x0000_0000_0106_0000  # rdma_cm's port space of TCP


def text(size: int) -> bytes:
    """Returns a payload that is not all zeros."""
    return bytes(islice(b"what crosses an RDMA link " * (size // 26 + 1), size))


class Side:
    """One end: its addresses, its QP, its next PSN."""

    def __init__(self, number: int, qpn: int, psn: int) -> None:
        self.mac = f"02:00:0a:00:00:{number:02x}"
        self.ipv4 = f"10.0.0.{number}"
        self.ipv6 = f"fe80::aff:fe00:{number:x}"
        self.gid = f"::ffff:10.0.0.{number}"
        self.qpn = qpn
        self.psn = psn
        self.msn = 0


class Dialogue:
    """Packets between a requester and a responder, over IPv4 or IPv6, tagged or not."""

    def __init__(self, version: int = 4, vlan: int | None = None) -> None:
        self.version = version
        self.vlan = vlan
        self.requester = Side(1, 0x000112, 0x9C4A10)
        self.responder = Side(2, 0x020047, 0x112233)
        self._identification = count(0x1000)

    def _below(self, sender: Side, receiver: Side) -> Packet:
        below = Ether(src=sender.mac, dst=receiver.mac)
        if self.vlan is not None:
            below /= Dot1Q(vlan=self.vlan, prio=3)
        if self.version == 4:
            below /= IP(
                src=sender.ipv4,
                dst=receiver.ipv4,
                tos=0x02,
                ttl=64,
                flags="DF",
                id=next(self._identification),
            )
        else:
            below /= IPv6(src=sender.ipv6, dst=receiver.ipv6, fl=0x2F1, hlim=64, tc=2)
        return below / UDP(sport=0xC000 | sender.qpn & 0x3FFF, chksum=0)

    def request(
        self, opcode: str, above: Any = None, *, ack: bool = False, psns: int = 1
    ) -> Packet:
        """Adds a packet of the requester, with its next PSN."""
        me, peer = self.requester, self.responder
        bth = BTH(opcode=opcode, dqpn=peer.qpn, psn=me.psn, ackreq=ack)
        me.psn = (me.psn + psns) & 0xFFFFFF
        return self._below(me, peer) / (bth if above is None else bth / above)

    def response(self, opcode: str, above: Any, psn: int) -> Packet:
        """Adds a packet of the responder, for the request with this PSN."""
        bth = BTH(opcode=opcode, dqpn=self.requester.qpn, psn=psn & 0xFFFFFF)
        return self._below(self.responder, self.requester) / bth / above

    def _aeth(self, syndrome: int | str = 0x1E, *, done: int = 1) -> Packet:
        self.responder.msn += done
        return AETH(syndrome=syndrome, msn=self.responder.msn)

    def acknowledge(self, syndrome: int | str = 0x1E, *, done: int = 1) -> Packet:
        """Returns the PSN of the requester's last packet."""
        aeth = self._aeth(syndrome, done=done)
        return self.response("RC_ACKNOWLEDGE", aeth, self.requester.psn - 1)

    # --- what a reliable connection does ---

    def sends(self) -> Iterator[Packet]:
        yield self.request("RC_SEND_ONLY", text(13), ack=True)
        yield self.acknowledge()
        yield self.request("RC_SEND_ONLY_WITH_IMMEDIATE", ImmDt(data=0xCAFE) / text(4), ack=True)
        yield self.acknowledge(0x1D)
        yield self.request("RC_SEND_FIRST", text(MTU))
        yield self.request("RC_SEND_MIDDLE", text(MTU))
        yield self.request("RC_SEND_LAST", text(3), ack=True)
        yield self.acknowledge()
        yield self.request("RC_SEND_FIRST", text(MTU))
        yield self.request("RC_SEND_LAST_WITH_IMMEDIATE", ImmDt(data=7) / text(1), ack=True)
        yield self.acknowledge()
        yield self.request("RC_SEND_ONLY_WITH_INVALIDATE", IETH(rkey=0x1234) / text(8), ack=True)
        yield self.acknowledge()
        yield self.request("RC_SEND_ONLY", ack=True)  # of nothing
        yield self.acknowledge()

    def writes(self) -> Iterator[Packet]:
        reth = RETH(va=0x7F12_3456_7000, rkey=0x0001_2345, dmalen=10)
        yield self.request("RC_RDMA_WRITE_ONLY", reth / text(10), ack=True)
        yield self.acknowledge()
        reth = RETH(va=0x7F12_3456_8000, rkey=0x0001_2345, dmalen=2 * MTU + 2)
        yield self.request("RC_RDMA_WRITE_FIRST", reth / text(MTU))
        yield self.request("RC_RDMA_WRITE_MIDDLE", text(MTU))
        yield self.request("RC_RDMA_WRITE_LAST", text(2), ack=True)
        yield self.acknowledge()
        reth = RETH(va=0x10, rkey=2, dmalen=5)
        above = reth / ImmDt(data=0x01020304) / text(5)
        yield self.request("RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", above, ack=True)
        yield self.acknowledge()
        yield self.request("RC_RDMA_WRITE_FIRST", RETH(dmalen=MTU + 4) / text(MTU))
        above = ImmDt(data=9) / text(4)
        yield self.request("RC_RDMA_WRITE_LAST_WITH_IMMEDIATE", above, ack=True)
        yield self.acknowledge()

    def reads(self) -> Iterator[Packet]:
        psn = self.requester.psn
        reth = RETH(va=0x7F00_0000_1000, rkey=0x77, dmalen=3 * MTU)
        yield self.request("RC_RDMA_READ_REQUEST", reth, ack=True, psns=3)
        yield self.response("RC_RDMA_READ_RESPONSE_FIRST", self._aeth() / text(MTU), psn)
        yield self.response("RC_RDMA_READ_RESPONSE_MIDDLE", text(MTU), psn + 1)
        yield self.response("RC_RDMA_READ_RESPONSE_LAST", self._aeth(done=0) / text(MTU), psn + 2)
        psn = self.requester.psn
        yield self.request("RC_RDMA_READ_REQUEST", RETH(va=0x20, rkey=0x77, dmalen=7), ack=True)
        yield self.response("RC_RDMA_READ_RESPONSE_ONLY", self._aeth() / text(7), psn)

    def atomics(self) -> Iterator[Packet]:
        for opcode, eth in (
            ("RC_COMPARE_SWAP", AtomicETH(va=0x1000, rkey=5, swap=0xAABB, compare=1)),
            ("RC_FETCH_ADD", AtomicETH(va=0x1008, rkey=5, swap=2**64 - 1)),
        ):
            psn = self.requester.psn
            yield self.request(opcode, eth, ack=True)
            above = self._aeth() / AtomicAckETH(orig=0x0123_4567_89AB_CDEF)
            yield self.response("RC_ATOMIC_ACKNOWLEDGE", above, psn)

    def naks(self) -> Iterator[Packet]:
        for syndrome in (
            0x2C,  # RNR: 0.64 ms
            0x20,
            "NAK_PSN_SEQUENCE_ERROR",
            "NAK_INVALID_REQUEST",
            "NAK_REMOTE_ACCESS_ERROR",
            "NAK_REMOTE_OPERATIONAL_ERROR",
        ):
            yield self.request("RC_SEND_ONLY", text(6), ack=True)
            yield self.acknowledge(syndrome, done=0)

    # --- the other transports ---

    def unreliable(self) -> Iterator[Packet]:
        yield self.request("UC_SEND_FIRST", text(MTU))
        yield self.request("UC_SEND_MIDDLE", text(MTU))
        yield self.request("UC_SEND_LAST", text(9))
        yield self.request("UC_SEND_LAST_WITH_IMMEDIATE", ImmDt(data=3) / text(9))
        yield self.request("UC_SEND_ONLY", text(30))
        yield self.request("UC_SEND_ONLY_WITH_IMMEDIATE", ImmDt(data=4) / text(30))
        yield self.request("UC_RDMA_WRITE_FIRST", RETH(va=1, rkey=2, dmalen=2 * MTU) / text(MTU))
        yield self.request("UC_RDMA_WRITE_MIDDLE", text(MTU))
        yield self.request("UC_RDMA_WRITE_LAST", text(MTU))
        yield self.request("UC_RDMA_WRITE_LAST_WITH_IMMEDIATE", ImmDt(data=5) / text(MTU))
        yield self.request("UC_RDMA_WRITE_ONLY", RETH(va=3, rkey=4, dmalen=2) / text(2))
        above = RETH(va=3, rkey=4, dmalen=2) / ImmDt(data=6) / text(2)
        yield self.request("UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", above)

    def datagrams(self) -> Iterator[Packet]:
        deth = DETH(qkey=0x11111111, srcqp=self.requester.qpn)
        yield self.request("UD_SEND_ONLY", deth / text(41))
        yield self.request("UD_SEND_ONLY_WITH_IMMEDIATE", deth / ImmDt(data=0xBEEF) / text(44))

    def congestion(self) -> Iterator[Packet]:
        me, peer = self.responder, self.requester
        yield self._below(me, peer) / BTH(dqpn=peer.qpn, becn=1) / CNPPadding()

    def extended(self) -> Iterator[Packet]:
        """Packets that Wireshark supports poorly: XRC, RD, FLUSH and ATOMIC WRITE."""
        xrc = XRCETH(srqn=0x0102)
        yield self.request("XRC_SEND_ONLY", xrc / text(5), ack=True)
        yield self.request("XRC_RDMA_WRITE_ONLY", xrc / RETH(va=8, rkey=9, dmalen=4) / text(4))
        yield self.request("XRC_FETCH_ADD", xrc / AtomicETH(va=8, rkey=9, swap=1), ack=True)
        above = RDETH(eecnxt=5) / DETH(qkey=6, srcqp=7) / text(11)
        yield self.request("RD_SEND_ONLY", above, ack=True)
        yield self.response("RD_ACKNOWLEDGE", RDETH(eecnxt=5) / self._aeth(), self.requester.psn)
        yield self.request("RD_RESYNC", RDETH(eecnxt=5) / DETH(qkey=6, srcqp=7))
        flush = FETH(selectivity="RANGE", placement="PERSISTENT") / RETH(va=16, rkey=3, dmalen=64)
        yield self.request("RC_FLUSH", flush, ack=True)
        yield self.request("RC_ATOMIC_WRITE", RETH(va=16, rkey=3, dmalen=8) / text(8), ack=True)

    # --- connection management ---

    def _mad(self, sender: Side, receiver: Side, transaction: int, message: Packet) -> Packet:
        bth = BTH(opcode="UD_SEND_ONLY", dqpn=1, psn=transaction & 0xFFFFFF)
        above = bth / DETH() / MAD(transaction_id=transaction) / message
        return self._below(sender, receiver) / above

    def connection(self) -> Iterator[Packet]:
        client, server = self.requester, self.responder
        ids = {"local_comm_id": 0x11223344, "remote_comm_id": 0x55667788}
        back = {"local_comm_id": 0x55667788, "remote_comm_id": 0x11223344}
        guid = 0x0200_0AFF_FE00_0001
        request = REQ(
            local_comm_id=ids["local_comm_id"],
            service_id=SERVICE_TCP | 7471,
            local_ca_guid=guid,
            local_qpn=client.qpn,
            responder_resources=16,
            initiator_depth=15,
            remote_cm_timeout=20,
            transport_service="RC",
            flow_control=1,
            starting_psn=client.psn,
            local_cm_timeout=19,
            retry_count=7,
            path_mtu="1024",
            rnr_retry_count=6,
            max_cm_retries=15,
            primary_local_lid=0xFFFF,
            primary_remote_lid=0xFFFF,
            primary_local_gid=client.gid,
            primary_remote_gid=server.gid,
            primary_flow_label=0x12345,
            primary_packet_rate=18,
            primary_traffic_class=0x20,
            primary_hop_limit=64,
            primary_sl=3,
            primary_subnet_local=1,
            primary_ack_timeout=14,
        )
        addresses = IPCM(source_port=40000, source="::10.0.0.1", destination="::10.0.0.2")
        yield self._mad(client, server, 0x1_0000_0001, request / addresses / b"hello, server")
        yield self._mad(
            server, client, 0x1_0000_0001, MRA(**back, message="REQ", service_timeout=18)
        )
        reply = REP(
            **back,
            local_qpn=server.qpn,
            starting_psn=server.psn,
            responder_resources=15,
            initiator_depth=16,
            target_ack_delay=15,
            failover_accepted=1,
            flow_control=1,
            rnr_retry_count=7,
            srq=1,
            local_ca_guid=guid + 1,
        )
        yield self._mad(server, client, 0x1_0000_0001, reply / b"hello, client")
        yield self._mad(client, server, 0x1_0000_0001, RTU(**ids))
        path = LAP(**ids, remote_qpn=server.qpn, alternate_local_gid=client.gid)
        yield self._mad(client, server, 0x1_0000_0002, path)
        yield self._mad(client, server, 0x1_0000_0003, DREQ(**ids, remote_qpn=server.qpn))
        yield self._mad(server, client, 0x1_0000_0003, DREP(**back))
        rejection = REJ(**back, message="REQ", reason="INVALID_SERVICE_ID", information_bytes=4)
        yield self._mad(server, client, 0x1_0000_0004, rejection / b"nobody listens")
        resolution = SIDR_REQ(request_id=5, service_id=0x0000_0000_0111_1D2F)
        yield self._mad(client, server, 0x1_0000_0005, resolution / addresses)
        found = SIDR_REP(request_id=5, qpn=server.qpn, qkey=0x01234567, service_id=0x01111D2F)
        yield self._mad(server, client, 0x1_0000_0005, found)


NAMES = (
    "connection",
    "sends",
    "writes",
    "reads",
    "atomics",
    "naks",
    "unreliable",
    "datagrams",
    "congestion",
    "extended",
)


def packets(*names: str, version: int = 4, vlan: int | None = None) -> list[Packet]:
    """Returns the dialogues of these names (all, without any), 3 µs between packets."""
    dialogue = Dialogue(version, vlan)
    found = [packet for name in names or NAMES for packet in getattr(dialogue, name)()]
    for index, packet in enumerate(found):
        packet.time = 1_700_000_000 + index * 3e-6
    return found
