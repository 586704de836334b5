# SPDX-License-Identifier: BSD-3-Clause
"""Injects scapy packets at a port of a fabric; each is judged as an adapter judges it."""

from __future__ import annotations

import errno
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils6 import in6_mactoifaceid

from nupa.base.errors import LocalError
from nupa.core import inject as core
from nupa.core.inject import TIMEOUT_S, Injector, Outcome, Reason, expected_psn
from nupa.packet.tables.transport import RNR_NAK, SYNDROME_KIND, SYNDROMES, syndrome_text

if TYPE_CHECKING:
    from nupa.core.open_fabric import OpenFabric
    from nupa.core.segment import HostInfo
    from nupa.fabric import Fabric

__all__ = ["Injector", "Outcome", "Reason", "Verdict", "expected_psn", "frame_of", "inject"]

_BROADCAST = "ff:ff:ff:ff:ff:ff"


@dataclass(frozen=True, slots=True)
class Verdict(core.Verdict):
    """The fate of an injected packet; `str()` prints it.

    >>> verdict = Verdict(Outcome.NAKED, Reason.NONE, 0x62, 7)
    >>> str(verdict), verdict.syndrome_name
    ('NAK: remote access error', 'NAK_REMOTE_ACCESS_ERROR')
    """

    @property
    def syndrome_name(self) -> str | None:
        """The name as AETH.syndrome shows it, or RNR_NAK; None unless it was NAKed."""
        if not self.naked:
            return None
        if self.syndrome & SYNDROME_KIND == RNR_NAK:
            return "RNR_NAK"
        return SYNDROMES.get(self.syndrome, f"{self.syndrome:#04x}")

    def __str__(self) -> str:
        return syndrome_text(self.syndrome) if self.naked else core.Verdict.__str__(self)


def inject(
    port: Any,
    packet: Packet | bytes,
    *,
    fabric: Fabric | None = None,
    to: str | int | None = None,
    timeout: float = TIMEOUT_S,
) -> Verdict:
    """Injects *packet* into *fabric* at *port*; returns what became of it.

    port: the name of a port, a host or a link; a host's number; a port of Fabric.port(); or an
    Injector.  The latter is faster for many packets.
    fabric: None for that of *port*, else the one that is up.
    packet, to: as for frame_of().
    timeout: seconds to wait for the QP's process.

    LocalError: there is no such port, or as frame_of().  RemoteError: no verdict came in time.
    FabricError: the fabric has no room for an attachment.
    """
    if isinstance(port, Injector):
        return _send(port, packet, to, timeout)
    fabric = fabric or getattr(port, "fabric", None)
    if fabric is None:
        from nupa.fabric import Fabric

        with Fabric.open() as opened, Injector(opened, port) as injector:
            return _send(injector, packet, to, timeout)
    with Injector(fabric, port) as injector:
        return _send(injector, packet, to, timeout)


def _send(
    injector: Injector, packet: Packet | bytes, to: str | int | None, timeout: float
) -> Verdict:
    frame = frame_of(injector.fabric, injector.host, packet, to)
    return Verdict(*astuple(injector.send(frame, timeout)))


def frame_of(
    fabric: OpenFabric, source: HostInfo, packet: Packet | bytes, to: str | int | None = None
) -> bytes:
    """Builds the Ethernet frame of *packet*: BTH/…, UDP/…, IP/… or Ether/…, or a frame's bytes.

    Missing layers and addresses are those of a packet from *source* to the host *to*; None: to the
    host of the QP that it names.  LocalError: there is no such host or QP, or no BTH.
    """
    if not isinstance(packet, Packet):
        return bytes(packet)
    packet = packet.copy()
    if packet.getlayer("BTH") is None:
        raise LocalError(
            f"the packet has no BTH, which names its QP: {packet.summary()}", errno.EINVAL
        )
    if packet.name == "BTH":
        packet = UDP(chksum=0) / packet
    if isinstance(packet, UDP):
        packet = IP() / packet
    ip = packet.getlayer(IP) or packet.getlayer(IPv6)
    if ip is not None:
        _address(ip, fabric, source, to)
    if isinstance(packet, IP | IPv6):
        packet = Ether() / packet
    if isinstance(packet, Ether):
        _default(packet, "src", source.mac)
        # Without it scapy would send ARP requests on real interfaces.
        _default(packet, "dst", _mac_of(fabric, ip))
    return bytes(packet)


def _address(ip: Any, fabric: OpenFabric, source: HostInfo, to: str | int | None) -> None:
    _default(ip, "src", _address_of(source, ip))
    if "dst" not in ip.fields:
        qpn = ip.getlayer("BTH").dqpn
        target = fabric.host(to) if to is not None else core.owner_host(fabric, qpn)
        ip.dst = _address_of(target, ip)


def _address_of(host: HostInfo, ip: Any) -> str:
    if isinstance(ip, IP):
        return host.ipv4
    return "fe80::" + in6_mactoifaceid(host.mac).lower()


def _mac_of(fabric: OpenFabric, ip: Any) -> str:
    for host in fabric.hosts:
        if ip is not None and ip.dst == _address_of(host, ip):
            return host.mac
    return _BROADCAST


def _default(layer: Any, field: str, value: str) -> None:
    if field not in layer.fields:
        setattr(layer, field, value)
