# SPDX-License-Identifier: BSD-3-Clause
"""Helpers of the tests of watches: requests on a pair, and their packets."""

from __future__ import annotations

from typing import Any

from scapy.layers.l2 import Ether
from scapy.packet import Packet

import nupa.packet.scapy.link  # the layers of what is seen
from nupa.core.watch import Watch, WatchPacket
from nupa.packet.scapy.transport import BTH
from nupa.packet.tables.opcodes import NAMES
from nupa.verbs import RecvWR, SendWR
from nupa.verbs import enums as e

__all__ = ["names", "nupa", "one_sided", "rest", "seen", "send", "transport"]

PSN_MASK = 0xFFFFFF


def send(pair: Any, size: int) -> None:
    """Sends a message from a to b."""
    pair.b.qp.post_recv(RecvWR(1, sg=[pair.b.mr.sge(0, 4096)]))
    pair.a.qp.post_send(SendWR(1, sg=[pair.a.mr.sge(0, size)], opcode=e.IBV_WR_SEND))
    pair.a.wait_ok()
    pair.b.wait_ok()


def rest(watch: Watch) -> list[WatchPacket]:
    """Reads all remaining packets."""
    found: list[WatchPacket] = []
    while packets := watch.read():
        found += packets
    return found


def seen(watch: Watch, level: int) -> list[WatchPacket]:
    """Returns the packets of one level."""
    return [packet for packet in rest(watch) if packet.level == level]


def transport(watch: Watch) -> list[Packet]:
    """Dissects the packets of level transport."""
    return [Ether(packet.data) for packet in seen(watch, 3)]


def names(packets: list[Packet]) -> list[str]:
    """Returns the opcodes of packets, without the transport's name."""
    return [NAMES[packet[BTH].opcode].split("_", 1)[1] for packet in packets]


def acknowledged_once(packets: list[Packet]) -> list[Packet]:
    """Drops acknowledgements of parts.  A responder may send some (IBTA 9.7.5.1.1), and does while
    the sender waits for room in a ring."""
    return [p for p in packets[:-1] if names([p]) != ["ACKNOWLEDGE"]] + packets[-1:]


def one_sided(pair: Any, opcode: int, length: int, at: int = 0, **options: Any) -> SendWR:
    """Makes a request of *length* bytes between a's region and offset *at* in b's."""
    wr = SendWR(1, opcode, sg=[pair.a.mr.sge(0, length)], **options)
    if opcode in (e.IBV_WR_ATOMIC_CMP_AND_SWP, e.IBV_WR_ATOMIC_FETCH_AND_ADD):
        wr.set_wr_atomic(pair.b.mr.rkey, pair.b.mr.buf + at, 5, 9)
    else:
        wr.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf + at)
    return wr
