# SPDX-License-Identifier: BSD-3-Clause
"""Matches of a flow: the fields of a header, and masks of the bits that count."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from nupa._engine import ffi
from nupa.verbs.base import PyverbsObject
from nupa.verbs.base.errors import PyverbsError, PyverbsUserError
from nupa.verbs.base.fields import Attribute
from nupa.verbs.enums import (
    IBV_FLOW_SPEC_ETH,
    IBV_FLOW_SPEC_INNER,
    IBV_FLOW_SPEC_IPV4_EXT,
    IBV_FLOW_SPEC_IPV6,
    IBV_FLOW_SPEC_TCP,
    IBV_FLOW_SPEC_UDP,
    ibv_flow_spec_type,
)

T = TypeVar("T")

U32_MASK = 0xFFFFFFFF
_U16_MASK = 0xFFFF
_U8_MASK = 0xFF
_NAMED = (
    IBV_FLOW_SPEC_ETH,
    IBV_FLOW_SPEC_IPV4_EXT,
    IBV_FLOW_SPEC_IPV6,
    IBV_FLOW_SPEC_TCP,
    IBV_FLOW_SPEC_UDP,
)


def _field(
    part: str, name: str, read: Callable[[Any], T], write: Callable[[T], Any]
) -> Attribute[T, T]:
    def store(spec: Spec, value: T) -> None:
        setattr(getattr(spec._c, part), name, write(value))

    return Attribute(lambda spec: read(getattr(getattr(spec._c, part), name)), store)


def _both(
    name: str, read: Callable[[Any], T], write: Callable[[T], Any]
) -> tuple[Attribute[T, T], Attribute[T, T]]:
    """Makes the attributes of a field and of its mask."""
    return _field("val", name, read, write), _field("mask", name, read, write)


def _plain(name: str) -> tuple[Attribute[int, int], Attribute[int, int]]:
    return _both(name, int, int)


def _big16(name: str) -> tuple[Attribute[int, int], Attribute[int, int]]:
    return _both(name, socket.ntohs, socket.htons)


def _big32(name: str) -> tuple[Attribute[int, int], Attribute[int, int]]:
    return _both(name, socket.ntohl, socket.htonl)


def _mac_bytes(text: str | None) -> bytes:
    digits = (text or ":".join(["0"] * EthSpec.MAC_LEN)).split(":")
    try:
        raw = bytes(int(pair, 16) for pair in digits)
    except ValueError:
        raw = b""
    if len(raw) != EthSpec.MAC_LEN:
        raise PyverbsUserError(f"Invalid MAC address ({text}): give six bytes as aa:bb:cc:dd:ee:ff")
    return raw


def _mac(name: str) -> tuple[Attribute[str | None, str | None], Attribute[str | None, str | None]]:
    return _both(name, lambda raw: bytes(raw).hex(":"), _mac_bytes)


def _ipv4(name: str) -> tuple[Attribute[str, str], Attribute[str, str]]:
    return _both(
        name,
        lambda raw: socket.inet_ntoa(int(raw).to_bytes(4, "little")),
        lambda text: int.from_bytes(socket.inet_aton(text), "little"),
    )


def _ipv6(name: str) -> tuple[Attribute[str, str], Attribute[str, str]]:
    return _both(
        name,
        lambda raw: socket.inet_ntop(socket.AF_INET6, bytes(raw)),
        lambda text: socket.inet_pton(socket.AF_INET6, text),
    )


def _row(label: str, value: object, mask: object = None) -> str:
    shown = "" if mask is None else f" {mask!s:<20}"
    return f"{label:<16}: {value!s:<20}{shown}\n"


class Spec(PyverbsObject):
    """The base of all matches: its kind, and its size in bytes in a flow."""

    _struct: ClassVar[str] = ""
    spec_type: int

    def __init__(self) -> None:
        raise NotImplementedError("This class is abstract.")

    def _make(self, spec_type: int, is_inner: bool | int) -> None:
        self._c = ffi.new(f"struct {self._struct} *")
        self.spec_type = int(spec_type) | (int(IBV_FLOW_SPEC_INNER) if is_inner else 0)
        self._c.type = self.spec_type
        self._c.size = self.size

    def _match(self, name: str, value: object, mask: object, whole: object) -> None:
        """Sets a field to *value*; *whole*: the mask where none is given.  None: any value fits."""
        if value is not None:
            setattr(self, name, value)
            setattr(self, f"{name}_mask", whole if mask is None else mask)

    @property
    def size(self) -> int:
        return int(ffi.sizeof(f"struct {self._struct}"))

    @staticmethod
    def type_to_str(spec_type: int) -> str:
        kind = spec_type & ~int(IBV_FLOW_SPEC_INNER)
        if kind not in _NAMED:
            raise PyverbsError(f"This type {kind} is not implemented yet")
        inner = "IBV_FLOW_SPEC_INNER " if spec_type & IBV_FLOW_SPEC_INNER else ""
        return inner + ibv_flow_spec_type(kind).name

    def __str__(self) -> str:
        return _row("Spec type", self.type_to_str(self.spec_type)) + _row("Size", self.size)


class EthSpec(Spec):
    """Ethernet header.  MAC addresses are text; a mask that is left out has all ones."""

    _struct = "ibv_flow_spec_eth"
    MAC_LEN = 6
    MAC_MASK = ":".join(["ff"] * MAC_LEN)
    ZERO_MAC: ClassVar[list[int]] = [0] * MAC_LEN

    def __init__(
        self,
        dst_mac: str | None = None,
        dst_mac_mask: str | None = None,
        src_mac: str | None = None,
        src_mac_mask: str | None = None,
        ether_type: int | None = None,
        ether_type_mask: int | None = None,
        vlan_tag: int | None = None,
        vlan_tag_mask: int | None = None,
        is_inner: int = 0,
    ) -> None:
        self._make(IBV_FLOW_SPEC_ETH, is_inner)
        self._match("dst_mac", dst_mac, dst_mac_mask, self.MAC_MASK)
        self._match("src_mac", src_mac, src_mac_mask, self.MAC_MASK)
        self._match("ether_type", ether_type, ether_type_mask, _U16_MASK)
        self._match("vlan_tag", vlan_tag, vlan_tag_mask, _U16_MASK)

    dst_mac, dst_mac_mask = _mac("dst_mac")
    src_mac, src_mac_mask = _mac("src_mac")
    ether_type, ether_type_mask = _big16("ether_type")
    vlan_tag, vlan_tag_mask = _big16("vlan_tag")

    def __str__(self) -> str:
        val, mask = self._c.val, self._c.mask
        return (
            super().__str__()
            + _row("Src mac", self.src_mac, self.src_mac_mask)
            + _row("Dst mac", self.dst_mac, self.dst_mac_mask)
            # pyverbs prints these two as they are in memory.
            + _row("Ether type", val.ether_type, mask.ether_type)
            + _row("Vlan tag", val.vlan_tag, mask.vlan_tag)
        )


class Ipv4ExtSpec(Spec):
    """IPv4 header.  Addresses are text; a mask that is left out has all ones."""

    _struct = "ibv_flow_spec_ipv4_ext"

    def __init__(
        self,
        dst_ip: str | None = None,
        dst_ip_mask: str | None = None,
        src_ip: str | None = None,
        src_ip_mask: str | None = None,
        proto: int | None = None,
        proto_mask: int | None = None,
        tos: int | None = None,
        tos_mask: int | None = None,
        ttl: int | None = None,
        ttl_mask: int | None = None,
        flags: int | None = None,
        flags_mask: int | None = None,
        is_inner: bool = False,
    ) -> None:
        self._make(IBV_FLOW_SPEC_IPV4_EXT, is_inner)
        self._match("dst_ip", dst_ip, dst_ip_mask, "255.255.255.255")
        self._match("src_ip", src_ip, src_ip_mask, "255.255.255.255")
        self._match("proto", proto, proto_mask, _U8_MASK)
        self._match("tos", tos, tos_mask, _U8_MASK)
        self._match("ttl", ttl, ttl_mask, _U8_MASK)
        self._match("flags", flags, flags_mask, _U8_MASK)

    dst_ip, dst_ip_mask = _ipv4("dst_ip")
    src_ip, src_ip_mask = _ipv4("src_ip")
    proto, proto_mask = _plain("proto")
    tos, tos_mask = _plain("tos")
    ttl, ttl_mask = _plain("ttl")
    flags, flags_mask = _plain("flags")

    def __str__(self) -> str:
        return (
            super().__str__()
            + _row("Src IP", self.src_ip, self.src_ip_mask)
            + _row("Dst IP", self.dst_ip, self.dst_ip_mask)
            + _row("Proto", self.proto, self.proto_mask)
            + _row("ToS", self.tos, self.tos_mask)
            + _row("TTL", self.ttl, self.ttl_mask)
            + _row("Flags", self.flags, self.flags_mask)
        )


class TcpUdpSpec(Spec):
    """Ports of TCP or UDP, which *spec_type* tells.  PyverbsError: another type."""

    _struct = "ibv_flow_spec_tcp_udp"

    def __init__(
        self,
        spec_type: int,
        dst_port: int | None = None,
        dst_port_mask: int | None = None,
        src_port: int | None = None,
        src_port_mask: int | None = None,
        is_inner: bool = False,
    ) -> None:
        if spec_type not in (IBV_FLOW_SPEC_TCP, IBV_FLOW_SPEC_UDP):
            raise PyverbsError("Spec type must be IBV_FLOW_SPEC_TCP or IBV_FLOW_SPEC_UDP")
        self._make(spec_type, is_inner)
        self._match("dst_port", dst_port, dst_port_mask, _U16_MASK)
        self._match("src_port", src_port, src_port_mask, _U16_MASK)

    dst_port, dst_port_mask = _big16("dst_port")
    src_port, src_port_mask = _big16("src_port")

    def __str__(self) -> str:
        return (
            super().__str__()
            + _row("Src port", self.src_port, self.src_port_mask)
            + _row("Dst port", self.dst_port, self.dst_port_mask)
        )


class Ipv6Spec(Spec):
    """IPv6 header.  Addresses are text; a mask that is left out has all ones."""

    _struct = "ibv_flow_spec_ipv6"
    EMPTY_IPV6 = "::"
    IPV6_MASK = ":".join(["ffff"] * 8)
    FLOW_LABEL_MASK = 0xFFFFF

    def __init__(
        self,
        dst_ip: str | None = None,
        dst_ip_mask: str | None = None,
        src_ip: str | None = None,
        src_ip_mask: str | None = None,
        flow_label: int | None = None,
        flow_label_mask: int | None = None,
        next_hdr: int | None = None,
        next_hdr_mask: int | None = None,
        traffic_class: int | None = None,
        traffic_class_mask: int | None = None,
        hop_limit: int | None = None,
        hop_limit_mask: int | None = None,
        is_inner: bool = False,
    ) -> None:
        self._make(IBV_FLOW_SPEC_IPV6, is_inner)
        for name, ip, mask in (("dst_ip", dst_ip, dst_ip_mask), ("src_ip", src_ip, src_ip_mask)):
            whole = self.EMPTY_IPV6 if ip is None else self.IPV6_MASK
            self._match(name, self.EMPTY_IPV6 if ip is None else ip, mask, whole)
        self._match("flow_label", flow_label, flow_label_mask, self.FLOW_LABEL_MASK)
        self._match("next_hdr", next_hdr, next_hdr_mask, _U8_MASK)
        self._match("traffic_class", traffic_class, traffic_class_mask, _U8_MASK)
        self._match("hop_limit", hop_limit, hop_limit_mask, _U8_MASK)

    dst_ip, dst_ip_mask = _ipv6("dst_ip")
    src_ip, src_ip_mask = _ipv6("src_ip")
    flow_label, flow_label_mask = _big32("flow_label")
    next_hdr, next_hdr_mask = _plain("next_hdr")
    traffic_class, traffic_class_mask = _plain("traffic_class")
    hop_limit, hop_limit_mask = _plain("hop_limit")

    def __str__(self) -> str:
        return (
            super().__str__()
            + _row("Src IP", self.src_ip, self.src_ip_mask)
            + _row("Dst IP", self.dst_ip, self.dst_ip_mask)
            + _row("Flow label", self.flow_label, self.flow_label_mask)
            + _row("Next header", self.next_hdr, self.next_hdr_mask)
            + _row("Traffic class", self.traffic_class, self.traffic_class_mask)
            + _row("Hop limit", self.hop_limit, self.hop_limit_mask)
        )
