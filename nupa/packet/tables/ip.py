# SPDX-License-Identifier: BSD-3-Clause
"""Ethertypes (IEEE 802) and IP protocol numbers (IANA), with their names."""

from __future__ import annotations

from enum import IntEnum


class Ethertype(IntEnum):
    """The type of an Ethernet frame."""

    IPV4 = 0x0800
    ARP = 0x0806
    VLAN = 0x8100
    IPV6 = 0x86DD
    LLDP = 0x88CC
    ROCE = 0x8915  # IBTA A16.4


class IpProtocol(IntEnum):
    """The protocol of an IP packet: Protocol of IPv4, Next Header of IPv6."""

    ICMP = 1
    IGMP = 2
    TCP = 6
    UDP = 17
    ICMPV6 = 58
    SCTP = 132


ETHERTYPES: dict[int, str] = {
    Ethertype.IPV4: "IPv4",
    Ethertype.ARP: "ARP",
    Ethertype.VLAN: "VLAN",
    Ethertype.IPV6: "IPv6",
    Ethertype.LLDP: "LLDP",
    Ethertype.ROCE: "RoCE",
}
PROTOCOLS: dict[int, str] = {
    IpProtocol.ICMP: "ICMP",
    IpProtocol.IGMP: "IGMP",
    IpProtocol.TCP: "TCP",
    IpProtocol.UDP: "UDP",
    IpProtocol.ICMPV6: "ICMPv6",
    IpProtocol.SCTP: "SCTP",
}
