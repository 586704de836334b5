# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of a host's nupa_net0, which follow from its IPv4 and its MAC address.

>>> link_local("02:00:0a:00:00:01"), unique_local("10.0.0.12")
('fe80::aff:fe00:1', 'fd4e:5550:4100::12')
"""

from __future__ import annotations

import errno
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Network

from nupa.base.errors import LocalError

#: 10.0.0.N/24; the topology numbers hosts.
IPV4_PREFIX_BITS = 24
IPV6_PREFIX_BITS = 64
#: A unique local prefix (RFC 4193): fd, then "NUPA" and a zero byte.
UNIQUE_LOCAL = IPv6Network("fd4e:5550:4100::/64")
LINK_LOCAL = IPv6Network("fe80::/64")

#: RFC 791: every IPv4 link carries packets of this size whole.
MTU_MIN_BYTES = 68
#: RFC 8200 5: a link with a smaller MTU has no IPv6.
MTU_IPV6_MIN_BYTES = 1280
#: 64 KiB less room for headers: the largest frame that crosses the fabric.
MTU_MAX_BYTES = 65280


def mac_bytes(mac: str) -> bytes:
    """Returns the six bytes of '02:00:0a:00:00:01'.  LocalError: not a MAC address."""
    parts = mac.split(":")
    try:
        if [len(part) for part in parts] != [2] * 6:
            raise ValueError(mac)
        return bytes.fromhex("".join(parts))
    except ValueError:
        raise LocalError(
            f"{mac!r} is not a MAC address: give six bytes as in 02:00:0a:00:00:01", errno.EINVAL
        ) from None


def link_local(mac: str) -> str:
    """Returns the address in fe80::/64 with the MAC address's modified EUI-64 (RFC 4291, App.
    A)."""
    octets = mac_bytes(mac)
    # The universal/local bit is inverted; fffe stands between the halves.
    identifier = bytes([octets[0] ^ 0x02]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return str(LINK_LOCAL[int.from_bytes(identifier, "big")])


def unique_local(ipv4: str) -> str:
    """Returns fd4e:5550:4100::N for 10.0.0.N, with the same digits for readers."""
    return str(UNIQUE_LOCAL[int(ipv4.rpartition(".")[2], 16)])


def network(ipv4: str) -> IPv4Network:
    """Returns 10.0.0.0/24 for any of its hosts."""
    return IPv4Interface(f"{ipv4}/{IPV4_PREFIX_BITS}").network


def overlaps(address: str, prefix_bits: int, ipv4: str) -> bool:
    """Tells whether an interface with address/prefix_bits would share addresses with *ipv4*'s
    network.

    A default route or another family overlaps nothing.
    """
    if ":" in address:
        prefix = IPv6Network((IPv6Address(address), prefix_bits), strict=False)
        return prefix_bits > 0 and prefix.overlaps(UNIQUE_LOCAL)
    other = IPv4Network((IPv4Address(address), prefix_bits), strict=False)
    return prefix_bits > 0 and other.overlaps(network(ipv4))


def check_mtu(mtu_bytes: int) -> int:
    """Returns *mtu_bytes* if nupa_net0 can have it.  LocalError says what it can have."""
    if not MTU_MIN_BYTES <= mtu_bytes <= MTU_MAX_BYTES:
        raise LocalError(
            f"an MTU of {mtu_bytes} bytes: nupa_net0 takes {MTU_MIN_BYTES} to {MTU_MAX_BYTES}",
            errno.EINVAL,
        )
    return mtu_bytes
