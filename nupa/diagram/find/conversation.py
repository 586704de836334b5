# SPDX-License-Identifier: BSD-3-Clause
"""Groups packets that are not of a work request: frames of the netdev, and messages of connection
management, by their two ends."""

from __future__ import annotations

from typing import NamedTuple

from nupa.diagram.find.frames import Frames
from nupa.diagram.find.transfer import Transfer
from nupa.packet.decode.fast import Layer
from nupa.packet.tables import cm as cm_tables
from nupa.packet.tables.ip import ETHERTYPES, PROTOCOLS, IpProtocol

_MAD_TRANSACTION = (8, 8)  # place and bytes of the transaction ID
CNP = "CNP"
_PORTS = (IpProtocol.TCP, IpProtocol.UDP)


class Conversation(NamedTuple):
    """Packets between two ends.  *key*: the same for all of them, in both directions."""

    key: tuple[object, ...]
    name: str
    source: str
    target: str

    def describe(self, transfer: Transfer) -> None:
        """Sets the name and the ends of a transfer."""
        transfer.op = self.name
        transfer.source, transfer.target = self.source, self.target


def conversation_of(frames: Frames, n: int) -> Conversation:
    """Returns the conversation of a frame, or of a datagram to QP 1."""
    headers = frames.headers
    source, target = frames.addresses(n)
    if headers.layer[n] == Layer.TRANSPORT:
        if not headers.mad_class[n]:
            return Conversation((CNP, source, target, headers.dqpn[n]), CNP, source, target)
        at, count = _MAD_TRANSACTION
        transaction = frames.data(n, headers.payload_offset[n] + at, count)
        key = ("MAD", *sorted((source, target)), headers.mad_class[n], transaction)
        return Conversation(
            key, mad_name(headers.mad_class[n], headers.mad_attribute[n]), source, target
        )
    protocol = headers.protocol[n]
    name = protocol_name(headers.ethertype[n], headers.ip_version[n], protocol)
    if protocol in _PORTS and headers.layer[n] >= Layer.PORTS:
        source = _with_port(source, headers.source_port[n])
        target = _with_port(target, headers.destination_port[n])
    return Conversation((name, *sorted((source, target))), name, source, target)


def protocol_name(ethertype: int, version: int, protocol: int) -> str:
    """Names a frame by its IP protocol, or else by its Ethertype."""
    if version:
        return PROTOCOLS.get(protocol, f"IP protocol {protocol}")
    return ETHERTYPES.get(ethertype, f"Ethernet {ethertype:#06x}")


def mad_name(mad_class: int, attribute: int) -> str:
    """Names a MAD: `CM REQ`; of other classes the class."""
    if mad_class == cm_tables.COMM_MGT:
        return f"CM {cm_tables.ATTRIBUTES.get(attribute, f'{attribute:#x}')}"
    return f"MAD {cm_tables.MGMT_CLASSES.get(mad_class, f'{mad_class:#x}')}"


def _with_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
