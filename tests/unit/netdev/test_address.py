# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of nupa_net0: derivation from a host's, and collisions."""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.fabric import Fabric, LocalError
from nupa.netdev import address
from nupa.netdev.interface import InterfaceConfig
from nupa.topology.topology import star


def test_addresses_follow_from_the_hosts() -> None:
    with Fabric(topology=star(24)) as fabric:
        host = fabric.hosts[23]
    assert address.link_local(host.mac) == "fe80::aff:fe00:18"
    assert address.unique_local(host.ipv4) == "fd4e:5550:4100::24"


@given(st.binary(min_size=6, max_size=6))
def test_the_mac_address_can_be_read_from_the_link_local_one(octets: bytes) -> None:
    packed = IPv6Address(address.link_local(octets.hex(":"))).packed
    assert packed[:8] == bytes.fromhex("fe80000000000000")
    assert bytes([packed[8] ^ 2]) + packed[9:11] + packed[13:] == octets
    assert packed[11:13] == b"\xff\xfe"


@given(st.integers(1, 254))
def test_the_unique_local_address_has_the_digits_of_the_ipv4_address(number: int) -> None:
    found = address.unique_local(f"10.0.0.{number}")
    assert found == f"fd4e:5550:4100::{number}"
    assert IPv6Address(found) in address.UNIQUE_LOCAL


@pytest.mark.parametrize(
    "text", ["", "02:00:0a:00:00", "02:00:0a:00:00:0g", "2:0:a:0:0:1", "x" * 17]
)
def test_what_is_no_mac_address_is_refused(text: str) -> None:
    with pytest.raises(LocalError, match="is not a MAC address: give six bytes"):
        address.mac_bytes(text)


@pytest.mark.parametrize(
    ("there", "bits", "overlaps"),
    [
        ("10.0.0.1", 32, True),
        ("10.0.0.77", 24, True),
        ("10.200.0.1", 8, True),
        ("10.0.1.1", 24, False),
        ("192.168.0.1", 16, False),
        ("0.0.0.0", 0, False),
        ("fd4e:5550:4100::9", 64, True),
        ("fd4e:5550:4100:1::9", 64, False),
        ("fe80::1", 64, False),
        ("::1", 128, False),
    ],
)
def test_what_shares_addresses_with_the_fabric(there: str, bits: int, overlaps: bool) -> None:
    assert address.overlaps(there, bits, "10.0.0.2") is overlaps


def test_mtus_one_past_the_limits_are_refused() -> None:
    assert [address.check_mtu(size) for size in (68, 65280)] == [68, 65280]
    for size in (67, 65281):
        with pytest.raises(
            LocalError, match=f"an MTU of {size} bytes: nupa_net0 takes 68 to 65280"
        ):
            address.check_mtu(size)


@pytest.mark.parametrize(("mtu", "count"), [(1279, 1), (1280, 3)])
def test_an_interface_too_small_for_ipv6_has_none(mtu: int, count: int) -> None:
    spec = InterfaceConfig("02:00:0a:00:00:01", "10.0.0.1", mtu, 1)
    assert len(spec.addresses) == count
    assert spec.addresses[0] == ("10.0.0.1", 24)
