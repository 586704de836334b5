# SPDX-License-Identifier: BSD-3-Clause
"""Snapshots without a fabric: sizes and loads that no fabric of a test has."""

from __future__ import annotations

import time
from random import Random
from typing import Any

from nupa.live.rates import FabricRates, TrafficRate
from nupa.live.snapshot import Snapshot
from nupa.live.snapshots import Snapshots

#: Of a fixed moment, so that pictures are equal: 2026-01-15 12:00:00 UTC.
TIME_NS = 1_768_478_400_000_000_000
GBPS = 100.0
_COUNTERS = (
    *("port_xmit_data", "port_xmit_packets", "port_rcv_data", "port_rcv_packets"),
    *("port_xmit_wait", "port_xmit_discards", "link_downed"),
)


class Recorded(Snapshots):
    """Snapshots that a test gives; *snapshot* may be replaced."""

    def __init__(self, snapshot: Snapshot, interval_s: float = 0.5) -> None:
        super().__init__("recorded", interval_s)
        self.snapshot = snapshot

    def tick(self, *, lists: bool = True) -> Snapshot:  # noqa: ARG002
        found = self.snapshot
        with self._changed:
            followers = list(self._followers)
        for follower in followers:
            follower.put(found)
        return found

    def latest(self, max_age_s: float = 1.0, *, lists: bool = False) -> Snapshot:  # noqa: ARG002
        return self.snapshot


def snapshot(
    hosts: int, switches: int, *, spines: int = 0, prefix: str = "host", seed: int = 7
) -> Snapshot:
    """Makes a snapshot: *hosts* in turn on *switches*, which are a ring, or on *spines*."""
    rng = Random(seed)
    each = -(-hosts // switches)
    pairs = [(f"{prefix}{i}/1", f"switch{i // each}/{i % each + 1}") for i in range(hosts)]
    if spines:
        pairs += [
            (f"switch{leaf}/{200 + spine}", f"spine{spine}/{leaf + 1}")
            for leaf in range(switches)
            for spine in range(spines)
        ]
    elif switches > 1:
        pairs += [
            (f"switch{leaf}/{each + 1}", f"switch{(leaf + 1) % switches}/{each + 2}")
            for leaf in range(switches if switches > 2 else 1)
        ]
    ports, rates = [], {}
    for at, pair in enumerate(pairs):
        gbps = GBPS if at < hosts else 4 * GBPS
        load = rng.choice([0.0, 0.004, 0.05, 0.2, 0.2, 0.6, 0.95])
        for name, peer, part in (*[(*pair, 1.0)], (pair[1], pair[0], 0.35)):
            ports.append(_port(name, peer, gbps, rng))
            there, back = load * gbps / 8 * 1e9, load * gbps / 8 * 0.35 * 1e9
            sent, received = (there, back) if part == 1.0 else (back, there)
            rates[name] = TrafficRate(sent, sent / 4096, received, received / 4096)
    shown = {
        "name": "recorded",
        "path": "",
        "generation": "1",
        "created_ns": TIME_NS,
        "auto": False,
        "hosts": [_host(prefix, i, rng) for i in range(hosts)],
        "ports": ports,
        **{name: [] for name in ("movers", "listeners", "regions", "faults", "pds", "cqs", "srqs")},
        **{name: [] for name in ("cm_ids", "contexts", "tenants", "partitions", "qps", "mrs")},
    }
    found = FabricRates(0.5, rates, {}, {}, {}, [])
    return Snapshot(shown, [], [], [], True, TIME_NS, TIME_NS, 0, found)


def _host(prefix: str, number: int, rng: Random) -> dict[str, Any]:
    return {
        "name": f"{prefix}{number}",
        "index": number,
        "ipv4": f"10.0.{number // 250}.{number % 250 + 1}",
        "mac": f"02:00:0a:00:{number >> 8:02x}:{number & 255:02x}",
        "lid": 0,
        "link_layer": "ethernet",
        "port": f"{prefix}{number}/1",
        "state": "ACTIVE",
        "processes": [
            {"pid": 4000 + number, "comm": "train", "uid": 1000, "slot": number, "state": "ready"}
            | {"qps": rng.randrange(4, 40), "mrs": rng.randrange(2, 20), "net_queue": 0}
        ],
        "hw_counters": {},
        "cache_requests": {},
        "tenant": None,
        "control_state": "ready",
        "pkeys": [0xFFFF],
    }


def _port(name: str, peer: str, gbps: float, rng: Random) -> dict[str, Any]:
    counters = dict.fromkeys(_COUNTERS, 0)
    for counter in _COUNTERS[:4]:
        counters[counter] = rng.randrange(1 << 40)
    return {
        "name": name,
        "peer": peer,
        "state": "ACTIVE",
        "width": "x4" if gbps == GBPS else "x16",
        "speed": "Gen5",
        "nominal_gbps": gbps,
        "counters": counters,
    }


def furnished(found: Snapshot) -> Snapshot:
    """Adds tenants, resources, faults, a port that is down, and events, as pictures show them."""
    shown = found.fabric
    names = [host["name"] for host in shown["hosts"]]
    colours = ("red", "green", "blue")
    for at, host in enumerate(shown["hosts"]):
        tenant = colours[at * 4 // len(names)] if at * 4 // len(names) < 3 else None
        host["tenant"] = tenant
        host["pkeys"] = [0x8001 + colours.index(tenant)] if tenant else [0xFFFF]
    shown["name"] = f"{names[0].rstrip('0123456789')}{len(names)}"
    shown["tenants"] = [
        {
            "name": name,
            "id": at + 1,
            "rate": 0 if at else 5_000_000_000,
            "quotas": {"qps": 512, "mrs": 1024, "pool_bytes": 64 << 30},
            "used": {"qps": 96 + at, "mrs": 61, "registered_bytes": 3 << 30, "pool_bytes": 9 << 30},
            "hosts": [host["name"] for host in shown["hosts"] if host["tenant"] == name],
            "partitions": [f"{name}-data"],
        }
        for at, name in enumerate(colours)
    ]
    shown["partitions"] = [
        {
            "name": f"{name}-data",
            "pkey": at + 1,
            "tenant": name,
            "kind": "partition",
            "members": [
                {"kind": "host", "name": host, "membership": "full", "rate": 0, "service_level": 0}
                for host in shown["tenants"][at]["hosts"]
            ],
        }
        for at, name in enumerate(colours)
    ]
    down, faulty = names[9], names[13]
    shown["hosts"][9]["state"] = "DOWN"
    for port in shown["ports"]:
        if down in (port["name"].partition("/")[0], port["peer"].partition("/")[0]):
            port["state"] = "DOWN"
            found.rates.ports[port["name"]] = TrafficRate()  # type: ignore[union-attr]
    shown["faults"] = [
        _fault(1, f"{faulty}/1", "delay", duration_ns=2_000_000, seen=48112, hits=481)
    ]
    shown["qps"] = [_qp(shown["hosts"], number) for number in range(64)]
    events = [
        ("ok", "tenant.added", "red", "rate 40 Gb/s"),
        ("ok", "member.added", names[0], "joined red-data, full"),
        ("warning", "fault.added", f"{faulty}/1", "delay of 2ms, probability 1%"),
        ("critical", "port.down", f"{down}/1", "the link went down"),
    ]
    return found._replace(
        events=[
            dict(zip(("seq", "time_ns", "severity", "kind", "subject", "text"), row, strict=True))
            for at, (severity, *rest) in enumerate(events, 1)
            for row in [(at, TIME_NS - (9 - at) * 700_000_000, severity, *rest)]
        ]
    )


def _fault(number: int, port: str, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "port": port,
        "kind": kind,
        "probability": 0.01,
        "count": 0,
        "after": 0,
        "for_ns": 0,
        "duration_ns": 0,
        "bytes_per_s": 0,
        "seed": 7,
        "seen": 0,
        "hits": 0,
        "ended": False,
        **more,
    }


def _qp(hosts: list[dict[str, Any]], number: int) -> dict[str, Any]:
    here, there = hosts[number % len(hosts)], hosts[(number + 6) % len(hosts)]
    return {
        "host": here["name"],
        "pid": here["processes"][0]["pid"],
        "comm": "train",
        "number": 0x20010 + number,
        "type": "RC",
        "state": "RTS",
        "mover": "cma",
        "pkey": here["pkeys"][0],
        "partner": {
            "host": there["name"],
            "qpn": 0x30010 + number,
            "comm": "train",
            "pid": there["processes"][0]["pid"],
        },
    }


def now_ns() -> int:
    return time.time_ns()
