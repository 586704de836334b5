# SPDX-License-Identifier: BSD-3-Clause
"""Port counters, named as InfiniBand names them, derived from traffic between hosts.

Each attachment counts its traffic from host to host.  A frame leaves by the ports at the even
places of its route and enters by those at the odd ones.  Adding every flow along its route thus
gives the counters of each port, with stacked switches, too.  Requests of groups go to many hosts,
so ports count them themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from nupa._engine import ffi, lib
from nupa.core.segment import HostTraffic, PortInfo, check

#: Names of /sys/class/infiniband/*/ports/*/counters.  Data count words of 4 bytes; xmit_wait:
#: operations that found the path down; xmit_discards: those given up because of it.
NAMES = (
    "port_xmit_data",
    "port_xmit_packets",
    "port_rcv_data",
    "port_rcv_packets",
    "port_xmit_wait",
    "port_xmit_discards",
    "link_downed",
)
#: Meanings of the fields of struct nupa_hw_counters (csrc/segment/layout/layout.h).
HW_NAMES = {
    "rx_no_receive": "UC, UD: dropped because no receive was posted",
    "rx_out_of_sequence": "RC: ahead of the expected PSN; UC: messages that lost a packet",
    "duplicate_request": "RC: executed before, and not again",
    "rx_invalid": "dropped: no such QP, or not ready; wrong length, group or (UC) key",
    "qkey_violations": "UD: dropped because of a wrong Q_Key",
    "pkey_violations": "refused or dropped: of another partition",
    "rx_icrc_errors": "injected: dropped because of a wrong ICRC",
    "rx_injected": "injected: arrived, with any verdict",
    "packet_seq_err": "RC: the responder reports a lost packet",
    "local_ack_timeout_err": "RC: sent again because no answer came",
    "fault_dropped": "faults: messages lost",
    "fault_duplicated": "faults: messages that arrived twice",
    "fault_reordered": "faults: messages that arrived late, behind others",
    "fault_delayed": "faults: messages held back",
    "link_retries": "faults: corrupt messages, found by the CRC and sent again by the link",
    "fault_poisoned": "faults: messages poisoned",
    "fault_flaps": "faults: times that the link went down",
    "fault_stuck": "faults: times that completions stopped",
    "fault_killed": "faults: QPs put in the error state",
    "tx_no_room": "UC, UD: dropped by the sender because the receiver takes nothing",
    "multicast_xmit_packets": "UD: sent to a group, one for each member on another host",
    "multicast_rcv_packets": "UD: came from a group's sender on another host",
    "send_rnr_err": "RC: answered with RNR NAK, because no receive was posted",
    "rcvd_rnr_err": "RC: RNR NAKs that came, after each of which a request waits",
    "retry_exceeded_err": "RC: requests that ended with RETRY_EXC_ERR",
    "retry_rnr_exceeded_err": "RC: requests that ended with RNR_RETRY_EXC_ERR",
}
#: Those of HW_NAMES that count traffic.
HW_TRAFFIC = frozenset({"multicast_xmit_packets", "multicast_rcv_packets"})
BYTES_PER_WORD = 4  # IBTA 16.1.3.5: PortXmitData and PortRcvData count 32-bit words
#: Fields of struct nupa_net_counters (csrc/segment/layout/layout.h) that count dropped frames.
NET_DROPS = (
    "tx_unknown",
    "tx_down",
    "tx_full",
    "tx_invalid",
    "tx_partition",
    "rx_invalid",
    "rx_refused",
    "rx_partition",
)


def count(
    ports: Sequence[PortInfo],
    flows: Iterable[HostTraffic],
    route: Callable[[int, int], tuple[int, ...]],
    groups: Mapping[int, tuple[int, int]] = MappingProxyType({}),
) -> list[dict[str, int]]:
    """Returns the counters of each port by name, in the order of *ports*.

    *groups*: bytes and packets of groups that left, by port.
    """
    counters = [dict.fromkeys(NAMES, 0) for _ in ports]

    def add(path: tuple[int, ...], octets: int, packets: int) -> None:
        for hop, port in enumerate(path):
            way = "rcv" if hop % 2 else "xmit"
            counters[port][f"port_{way}_data"] += octets
            counters[port][f"port_{way}_packets"] += packets

    for flow in flows:
        there = route(flow.host, flow.peer)
        add(there, flow.xmit_bytes, flow.xmit_packets)
        add(route(flow.peer, flow.host), flow.rcv_bytes, flow.rcv_packets)
        if there:
            counters[there[0]]["port_xmit_wait"] += flow.xmit_wait
            counters[there[0]]["port_xmit_discards"] += flow.xmit_discards
    for left, (octets, packets) in groups.items():
        add((left, ports[left].peer), octets, packets)
    for port, counter in zip(ports, counters, strict=True):
        # Converted to words last: rounding each small message would lose it.
        counter["port_xmit_data"] //= BYTES_PER_WORD
        counter["port_rcv_data"] //= BYTES_PER_WORD
        counter["link_downed"] = port.link_downed
    return counters


def group_flows(handle: Any) -> dict[int, tuple[int, int]]:
    """Returns bytes and packets of groups that left by each port that has any.

    *handle*: the fabric's `struct nupa_fabric *`.
    """
    octets, packets = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    found = {}
    for port in range(lib.nupa_fabric_n_ports(handle)):
        check(lib.nupa_group_port(handle, port, octets, packets), f"cannot read port {port}")
        if packets[0]:
            found[port] = int(octets[0]), int(packets[0])
    return found
