# SPDX-License-Identifier: BSD-3-Clause
"""Rates: what changed between two snapshots, per second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nupa.fabric.counters import BYTES_PER_WORD, HW_TRAFFIC, NET_DROPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nupa.live.snapshot import Snapshot

#: Counters of a port that count what did not arrive.
_PORT_ERRORS = ("port_xmit_discards", "link_downed")
#: Of HW_NAMES, those that count what arrived as well.
_NO_ERRORS = HW_TRAFFIC | {"rx_injected"}
# Fields of struct nupa_net_counters (csrc/segment/layout/layout.h).
_TRAFFIC = ("tx_bytes", "tx_packets", "rx_bytes", "rx_packets")
_NS = 1_000_000_000


class TrafficRate(NamedTuple):
    """Traffic of a port, a host, a link's direction, a tenant or an interface, per second."""

    xmit_bytes: float = 0.0
    xmit_packets: float = 0.0
    rcv_bytes: float = 0.0
    rcv_packets: float = 0.0
    errors: float = 0.0

    def plus(self, other: TrafficRate) -> TrafficRate:
        return TrafficRate(*map(sum, zip(self, other, strict=True)))


class LinkRate(NamedTuple):
    """A link.  xmit: from *port* to *peer*; rcv: the other way.

    xmit_load, rcv_load: of the nominal speed, 1.0 is all of it.  It may pass 1.0, since nothing
    enforces the nominal speed.
    """

    port: str
    peer: str
    rate: TrafficRate
    xmit_load: float
    rcv_load: float

    def as_dict(self) -> dict[str, Any]:
        return self._asdict() | {"rate": self.rate._asdict()}


class FabricRates(NamedTuple):
    """Rates over *seconds*: by port, host, tenant and interface (by its host), and of each link."""

    seconds: float
    ports: dict[str, TrafficRate]
    hosts: dict[str, TrafficRate]
    tenants: dict[str, TrafficRate]
    interfaces: dict[str, TrafficRate]
    links: list[LinkRate]

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""

        def plain(rates: dict[str, TrafficRate]) -> dict[str, Any]:
            return {name: rate._asdict() for name, rate in rates.items()}

        return {
            "seconds": self.seconds,
            "ports": plain(self.ports),
            "hosts": plain(self.hosts),
            "tenants": plain(self.tenants),
            "interfaces": plain(self.interfaces),
            "links": [link.as_dict() for link in self.links],
        }


def between(before: Snapshot, after: Snapshot) -> FabricRates | None:
    """Returns the rates from one snapshot to a later one; none is negative.

    A counter that is lower than before has been reset: what it has now came since.  None: the
    fabric is another one, or no time has passed.
    """
    seconds = (after.monotonic_ns - before.monotonic_ns) / _NS
    if seconds <= 0 or not after.generation or after.generation != before.generation:
        return None
    old_ports = {port["name"]: port["counters"] for port in before.fabric["ports"]}
    old_hosts = {host["name"]: host["hw_counters"] for host in before.fabric["hosts"]}
    ports = {
        port["name"]: _port(old_ports.get(port["name"], {}), port["counters"], seconds)
        for port in after.fabric["ports"]
    }
    hosts = {
        host["name"]: ports[host["port"]].plus(
            TrafficRate(
                errors=_errors(old_hosts.get(host["name"], {}), host["hw_counters"], seconds)
            )
        )
        for host in after.fabric["hosts"]
    }
    return FabricRates(
        seconds,
        ports,
        hosts,
        _tenants(after, hosts),
        _interfaces(before, after, seconds),
        _links(after, ports),
    )


def steady(before: Snapshot, after: Snapshot) -> Snapshot:
    """Returns *after* with no counter of the fabric below that of *before*.

    What a process counted moves to the counters of former processes when it ends.  A reader may
    miss it for a moment.
    """
    if after.generation != before.generation:
        return after
    for kind, counters in (("ports", "counters"), ("hosts", "hw_counters")):
        old = {row["name"]: row[counters] for row in before.fabric[kind]}
        for row in after.fabric[kind]:
            for name, value in old.get(row["name"], {}).items():
                row[counters][name] = max(value, row[counters].get(name, 0))
    return after


def _port(old: Mapping[str, int], new: Mapping[str, int], seconds: float) -> TrafficRate:
    def per_second(name: str) -> float:
        return _grown(old, new, name) / seconds

    return TrafficRate(
        per_second("port_xmit_data") * BYTES_PER_WORD,
        per_second("port_xmit_packets"),
        per_second("port_rcv_data") * BYTES_PER_WORD,
        per_second("port_rcv_packets"),
        sum(per_second(name) for name in _PORT_ERRORS),
    )


def _grown(old: Mapping[str, int], new: Mapping[str, int], name: str) -> int:
    then, now = old.get(name, 0), new.get(name, 0)
    return now - then if now >= then else now


def _errors(old: Mapping[str, int], new: Mapping[str, int], seconds: float) -> float:
    return sum(_grown(old, new, name) for name in new if name not in _NO_ERRORS) / seconds


def _tenants(after: Snapshot, hosts: Mapping[str, TrafficRate]) -> dict[str, TrafficRate]:
    sums = {tenant["name"]: TrafficRate() for tenant in after.fabric["tenants"]}
    for host in after.fabric["hosts"]:
        if (tenant := host.get("tenant")) in sums:
            sums[tenant] = sums[tenant].plus(hosts[host["name"]])
    return sums


def _interfaces(before: Snapshot, after: Snapshot, seconds: float) -> dict[str, TrafficRate]:
    old = {row["host"]: row["counters"] for row in before.interfaces}

    def rate(host: str, new: Mapping[str, int]) -> TrafficRate:
        def per_second(names: Iterable[str]) -> float:
            return sum(_grown(old.get(host, {}), new, name) for name in names) / seconds

        return TrafficRate(*[*(per_second([name]) for name in _TRAFFIC), per_second(NET_DROPS)])

    return {row["host"]: rate(row["host"], row["counters"]) for row in after.interfaces}


def _links(after: Snapshot, ports: Mapping[str, TrafficRate]) -> list[LinkRate]:
    found = []
    seen: set[str] = set()
    for port in after.fabric["ports"]:
        if port["name"] in seen:
            continue
        seen.add(port["peer"])
        rate, back = ports[port["name"]], ports[port["peer"]]
        nominal = port["nominal_gbps"] * 1e9 / 8
        found.append(
            LinkRate(
                port["name"],
                port["peer"],
                rate._replace(errors=rate.errors + back.errors),
                rate.xmit_bytes / nominal if nominal else 0.0,
                rate.rcv_bytes / nominal if nominal else 0.0,
            )
        )
    return found
