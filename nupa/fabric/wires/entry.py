# SPDX-License-Identifier: BSD-3-Clause
"""The table of wires, as Python's values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.fabric.wires.address import of_gid

if TYPE_CHECKING:
    from nupa.core.segment import Segment

MEDIA = {lib.NUPA_WIRE_UDP: "UDP", lib.NUPA_WIRE_RAW: "RAW", lib.NUPA_WIRE_FRAMES: "FRAMES"}
_STATES = {
    lib.NUPA_WIRE_STARTING: "STARTING",
    lib.NUPA_WIRE_UP: "UP",
    lib.NUPA_WIRE_DOWN: "DOWN",
}
#: Counters of an entry, in the order of csrc/segment/slot/wire.h.
COUNTERS = (
    "sent_packets",
    "sent_bytes",
    "received_packets",
    "received_bytes",
    "retransmitted",
    "lost",
    "icrc_errors",
    "malformed",
    "foreign",
    "refused",
    "ecn_marked",
    "cnp_sent",
    "cnp_handled",
)


class WireEntry(NamedTuple):
    """A wire as it stands in the table.

    state: "STARTING" (no keeper yet, or nothing came from there yet), "UP", "DOWN", or "DEAD":
    its keeper has died.
    exact: its ICRC check lets no wrong packet pass.  rtt_ns: 0: not known.  error: what the network
    said last.  nat: another address from which packets of the other end come, or for which they
    were made; empty: none.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    host: str
    address: str
    listen: str
    state: str
    medium: str
    exact: bool
    mtu_bytes: int
    rtt_ns: int
    error: str
    nat: str
    pid: int
    socket: str
    counters: dict[str, int]

    @property
    def loss(self) -> float:
        """The share of packets sent that were lost, 0 to 1."""
        sent = self.counters["sent_packets"]
        return min(self.counters["lost"] / sent, 1.0) if sent else 0.0

    @property
    def check(self) -> str:
        """What the check of packets is worth, in words."""
        return "exact" if self.exact else "1 of 65,536 wrong packets passes"

    def as_json(self) -> dict[str, Any]:
        """Returns the entry for JSON."""
        return {
            "host": self.host,
            "address": self.address,
            "listen": self.listen,
            "state": self.state,
            "medium": self.medium,
            "icrc": "exact" if self.exact else "plausible",
            "mtu_bytes": self.mtu_bytes,
            "rtt_ns": self.rtt_ns or None,
            "error": self.error or None,
            "nat": self.nat or None,
            "keeper": self.pid or None,
            "loss": self.loss,
            **self.counters,
        }


def entries(segment: Segment) -> list[WireEntry]:
    """Lists the wires, in the order of the table."""
    handle = segment.handle
    infos = ffi.new("struct nupa_wire_info[]", 64)
    found = lib.nupa_wire_list(handle, infos, len(infos))
    slots = {slot.slot: slot for slot in segment.slots()} if found else {}
    listed = []
    for info in infos[0 : min(found, len(infos))]:
        slot = slots.get(info.slot)
        kept = bool(info.kept) and slot is not None and slot.alive
        remote, local = (of_gid(bytes(raw)) for raw in (info.remote, info.local))
        other = bytes(ffi.buffer(info.other))
        listed.append(
            WireEntry(
                index=info.index,
                host=segment.host(info.host).name,
                address=remote,
                listen=local,
                state=_STATES.get(info.state, "STARTING") if kept or not info.slot else "DEAD",
                medium=MEDIA[info.medium],
                # IPv6 has no identification that a socket could hide.
                exact=info.medium != lib.NUPA_WIRE_UDP or ":" in remote,
                mtu_bytes=info.mtu_bytes,
                rtt_ns=info.rtt_ns,
                error=os.strerror(info.error) if info.error > 0 else "",
                nat=of_gid(other) if any(other) else "",
                pid=slot.pid if kept and slot is not None else 0,
                socket=bytes(ffi.string(info.socket)).decode(errors="replace"),
                counters={name: getattr(info, name) for name in COUNTERS},
            )
        )
    return listed
