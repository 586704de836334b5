# SPDX-License-Identifier: BSD-3-Clause
"""Protocols: how packets are sent over one fabric, as data for the packet engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, get_args

from nupa.model.errors import ModelError
from nupa.model.network.graph import LinkKind
from nupa.model.profile.kinds import FlowControl, Spread, Switching, Transport
from nupa.model.profile.profile import Profile

BUFFER_MOST = (1 << 31) - 1  #: bytes of one buffer, in the engine

#: DCQCN's thresholds and increases scale with the link's rate, as in HPCC's simulator
#: (alibaba-edu/High-Precision-Congestion-Control, simulation/run.py): for each 25 Gb/s, marks from
#: 100 kB on and up to 400 kB; pauses at an eighth of 8 MB; 5 Mb/s and 50 Mb/s.
MARK_LOW_NS, MARK_HIGH_NS, PAUSE_NS = 32_000.0, 128_000.0, 320_000.0
INCREASE, HYPER = 0.0002, 0.002


@dataclass(frozen=True)
class PacketProtocol:
    """Sizes of packets are on the wire.  csrc/model/packets.h explains each member.

    None: by the round trip of the network and the rate of the link, as `fitted` says.

    *flow_control*: a link whose next buffer is full drops a packet, trims it to its header, or
    waits for credits or for the end of a pause.  *transport*: a sender is limited by its links
    ("line"), by what the receiver pulls, by DCQCN's rate, or by a window.  *spread*: equal paths
    are chosen by a hash of the operation ("flow"), anew by the sender for each packet, by each
    switch ("adaptive"), or by the receiver ("destination"), as a subnet manager's tables do.
    """

    flow_control: FlowControl = "credits"
    transport: Transport = "line"
    spread: Spread = "flow"
    switching: Switching = "cut-through"
    virtual_queues: bool = True
    payload_bytes: int = 4096
    header_bytes: int = 0
    control_bytes: int = 64
    paths: int = 128
    credit_bytes: int = 64
    ack_packets: int = 0
    ecn_low_bytes: int | None = None  #: 0: no marks
    ecn_high_bytes: int | None = None
    ecn_share: float = 1.0
    xoff_bytes: int | None = None
    xon_bytes: int | None = None
    window_packets: int | None = None
    pull_packets: int = 4
    pull_share: float = 0.99
    adapt_ns: float | None = None
    timeout_ns: float | None = None
    notify_ns: float = 50_000.0
    alpha_ns: float = 50_000.0
    recover_ns: float = 55_000.0
    recover_bytes: int = 0
    recover_rounds: int = 1
    increase_bytes_per_s: float | None = None
    hyper_bytes_per_s: float | None = None
    least_bytes_per_s: float = 1e6

    def __post_init__(self) -> None:
        chosen = {
            "flow_control": FlowControl,
            "transport": Transport,
            "spread": Spread,
            "switching": Switching,
        }
        for name, kind in chosen.items():
            if getattr(self, name) not in get_args(kind):
                raise ModelError(
                    f"{name} is {getattr(self, name)!r}: one of {', '.join(get_args(kind))}"
                )
        for name, value in vars(self).items():
            if isinstance(value, int | float) and value < 0:
                raise ModelError(f"{name} is {value}: it is not below 0")

    @property
    def packet_bytes(self) -> int:
        """Returns the size of a full packet."""
        return self.payload_bytes + self.header_bytes

    def fitted(self, kind: LinkKind, round_trip_ns: float) -> tuple[PacketProtocol, int]:
        """Returns the protocol of a kind of links without None, and the size of their buffers.

        The measure is what the link carries in a round trip.  Queues of it trim, and queues of five
        drop; marks begin at a fifth of it and are certain at four fifths; the first window is one
        and a half (uet-htsim's defaults).  Credits cover the link's own round trip four
        times: one queue has half of them, and packets fill units in part.  Pauses begin at the
        measure; the headroom is that much again.
        """
        packet = self.packet_bytes
        bdp = max(4, ceil(round_trip_ns * 1e-9 * kind.rate_bytes_per_s / packet))
        own = ceil(8e-9 * kind.latency_ns * kind.rate_bytes_per_s / packet) + 16
        in_credits = -(-packet // self.credit_bytes) * self.credit_bytes
        given: dict[str, Any] = {
            **self._queues(kind, bdp),
            "increase_bytes_per_s": INCREASE * kind.rate_bytes_per_s,
            "hyper_bytes_per_s": HYPER * kind.rate_bytes_per_s,
            "window_packets": min(65535, bdp * 3 // 2) if self.transport == "pull" else 10,
            "adapt_ns": round_trip_ns if self.transport == "pull" else 0.0,
            "timeout_ns": 15_000 + 6e9 * bdp * packet / kind.rate_bytes_per_s,
        }
        full = replace(self, **{k: v for k, v in given.items() if getattr(self, k) is None})
        if kind.buffer_bytes:
            return full, kind.buffer_bytes
        room = {
            "trim": bdp * packet,
            "drop": 5 * bdp * packet,
            "pause": (full.xoff_bytes or 0) + own * packet,
            "credits": own * in_credits,
        }[self.flow_control]
        return full, min(room, BUFFER_MOST)

    def _queues(self, kind: LinkKind, bdp: int) -> dict[str, int]:
        """Returns thresholds for a link that carries *bdp* packets in a round trip."""
        packet = self.packet_bytes
        if self.transport == "dcqcn":
            low, high, off = (
                max(1, bdp // 5, ceil(ns * 1e-9 * kind.rate_bytes_per_s / packet)) * packet
                for ns in (MARK_LOW_NS, MARK_HIGH_NS, PAUSE_NS)
            )
            return {
                "ecn_low_bytes": low,
                "ecn_high_bytes": high,
                "xoff_bytes": off,
                "xon_bytes": -(-off * 4 // 5),
            }
        marks = self.transport == "pull"
        return {
            "ecn_low_bytes": -(-bdp // 5) * packet if marks else 0,
            "ecn_high_bytes": -(-bdp * 4 // 5) * packet if marks else 0,
            "xoff_bytes": bdp * packet,
            "xon_bytes": -(-bdp * 4 // 5) * packet,
        }

    def fields(self) -> dict[str, int]:
        """Returns the members of struct nupa_model_protocol; none of its own is None."""
        same = (
            "payload_bytes", "header_bytes", "control_bytes", "virtual_queues", "paths",
            "credit_bytes", "ack_packets", "ecn_low_bytes", "ecn_high_bytes", "xoff_bytes",
            "xon_bytes", "window_packets", "pull_packets", "recover_bytes", "recover_rounds",
        )  # fmt: skip
        return {name: int(getattr(self, name)) for name in same} | {
            "flow_control": get_args(FlowControl).index(self.flow_control),
            "transport": get_args(Transport).index(self.transport),
            "spread": get_args(Spread).index(self.spread),
            "cut_through": self.switching == "cut-through",
            "ecn_per_mille": round(self.ecn_share * 1000),
            "pull_per_mille": round(self.pull_share * 1000),
            "adapt_ps": round((self.adapt_ns or 0.0) * 1e3),
            "timeout_ps": round((self.timeout_ns or 0.0) * 1e3),
            "notify_ps": round(self.notify_ns * 1e3),
            "alpha_ps": round(self.alpha_ns * 1e3),
            "recover_ps": round(self.recover_ns * 1e3),
            "increase_bytes_per_s": round(self.increase_bytes_per_s or 0.0),
            "hyper_bytes_per_s": round(self.hyper_bytes_per_s or 0.0),
            "least_bytes_per_s": round(self.least_bytes_per_s),
        }


#: Members of a Protocol by the figure of a profile.
_FIGURES: Mapping[str, str] = {
    "header": "header_bytes",
    "control": "control_bytes",
    "paths": "paths",
    "credit": "credit_bytes",
    "acks": "ack_packets",
    "ecn_low": "ecn_low_bytes",
    "ecn_high": "ecn_high_bytes",
    "ecn_share": "ecn_share",
    "xoff": "xoff_bytes",
    "xon": "xon_bytes",
    "pull": "pull_packets",
    "pull_rate": "pull_share",
    "adapt": "adapt_ns",
    "timeout": "timeout_ns",
    "notify": "notify_ns",
    "alpha": "alpha_ns",
    "recover": "recover_ns",
    "recover_bytes": "recover_bytes",
    "recover_rounds": "recover_rounds",
    "increase": "increase_bytes_per_s",
    "hyper": "hyper_bytes_per_s",
    "rate_least": "least_bytes_per_s",
}
_SHARES = ("ecn_share", "pull_share")


def protocol_of(profile: Profile | None) -> PacketProtocol:
    """Returns a profile's: its table `packets` and its figures, and the defaults for others."""
    if profile is None:
        return PacketProtocol()
    members: dict[str, Any] = dict(profile.packets)
    for figure, member in _FIGURES.items():
        if figure in profile.figures:
            value = profile[figure]
            exact = member in _SHARES or member.endswith(("_ns", "_per_s"))
            members[member] = value if exact else round(value)
    if "mtu" in profile.figures:
        members["payload_bytes"] = round(profile["mtu"])
    members.setdefault("control_bytes", max(1, members.get("header_bytes", 64)))
    found = PacketProtocol(**members)
    if "window" in profile.figures:
        packets = round(profile["window"] / found.packet_bytes)
        found = replace(found, window_packets=min(65535, max(1, packets)))
    return found
