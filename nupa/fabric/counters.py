# SPDX-License-Identifier: BSD-3-Clause
"""Port counters, named as InfiniBand names them, derived from traffic between hosts.

Each attachment counts what it moved from host to host.  A frame leaves by the ports at the even
places of its route and enters by those at the odd ones, so adding every flow along its route gives
the counters of each port, also where switches are stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from nupa.fabric.segment import Flow, PortInfo

_BYTES_PER_WORD = 4  # IBTA 16.1.3.5: PortXmitData and PortRcvData count 32-bit words


@dataclass
class PortCounters:
    """As in /sys/class/infiniband/*/ports/*/counters; data in words of 4 bytes."""

    port_xmit_data: int = 0
    port_xmit_packets: int = 0
    port_rcv_data: int = 0
    port_rcv_packets: int = 0
    port_xmit_wait: int = 0  # operations that found the way down
    port_xmit_discards: int = 0  # operations given up because of it
    link_downed: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def count(
    ports: Sequence[PortInfo],
    flows: Iterable[Flow],
    route: Callable[[int, int], tuple[int, ...]],
) -> list[PortCounters]:
    """The counters of each port, in the order of *ports*."""
    sent, received = [0] * len(ports), [0] * len(ports)
    counters = [PortCounters(link_downed=port.link_downed) for port in ports]

    def add(path: tuple[int, ...], octets: int, packets: int) -> None:
        for port in path[0::2]:
            sent[port] += octets
            counters[port].port_xmit_packets += packets
        for port in path[1::2]:
            received[port] += octets
            counters[port].port_rcv_packets += packets

    for flow in flows:
        there = route(flow.host, flow.peer)
        add(there, flow.xmit_bytes, flow.xmit_packets)
        add(route(flow.peer, flow.host), flow.rcv_bytes, flow.rcv_packets)
        if there:
            counters[there[0]].port_xmit_wait += flow.xmit_wait
            counters[there[0]].port_xmit_discards += flow.xmit_discards
    for port, counter in enumerate(counters):
        counter.port_xmit_data = sent[port] // _BYTES_PER_WORD
        counter.port_rcv_data = received[port] // _BYTES_PER_WORD
    return counters
