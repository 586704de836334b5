# SPDX-License-Identifier: BSD-3-Clause
"""Families of metrics: a snapshot as Prometheus takes it, with node_exporter's names and ours.

Names: https://prometheus.io/docs/practices/naming.  Labels name hosts, ports, tenants and kinds,
whose number the fabric bounds; queue pairs and processes are no labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from nupa.fabric.counters import NET_DROPS
from nupa.live.adapter import BOARD_ID, FIRMWARE, HCA_TYPE, PORT, adapters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from nupa.live.adapter import Adapter
    from nupa.live.snapshot import Snapshot
    from nupa.serve.tenant_totals import TenantTotals

_WORD_BYTES = 4
# Of node_exporter's collector of InfiniBand: the name, the counter of sysfs, its unit, the help.
_NODE_COUNTERS = (
    ("port_data_received_bytes", "port_rcv_data", _WORD_BYTES, "Bytes that came."),
    ("port_data_transmitted_bytes", "port_xmit_data", _WORD_BYTES, "Bytes that left."),
    ("port_packets_received", "port_rcv_packets", 1, "Packets that came."),
    ("port_packets_transmitted", "port_xmit_packets", 1, "Packets that left."),
    ("port_transmit_wait", "port_xmit_wait", 1, "Operations that found the path down."),
    (
        "port_discards_transmitted",
        "port_xmit_discards",
        1,
        "Operations given up because the path was down.",
    ),
    ("link_downed", "link_downed", 1, "Times that the link went down."),
    ("unicast_packets_received", "unicast_rcv_packets", 1, "Packets that came to this host alone."),
    ("unicast_packets_transmitted", "unicast_xmit_packets", 1, "Packets that left for one host."),
    ("multicast_packets_received", "multicast_rcv_packets", 1, "Packets of groups that came."),
    ("multicast_packets_transmitted", "multicast_xmit_packets", 1, "Packets of groups that left."),
)


# Of a tenant: its quota, the metric of its use, and the help.
_QUOTAS = {
    "qps": ("nupa_tenant_queue_pairs", "Queue pairs of its hosts"),
    "mrs": ("nupa_tenant_memory_regions", "Memory regions of its hosts"),
    "registered_bytes": ("nupa_tenant_registered_bytes", "Bytes of these regions"),
    "pool_bytes": ("nupa_pool_bytes", "Bytes of the pool that it has"),
    "attachments": ("nupa_tenant_attachments", "Processes attached to its hosts"),
}


class _Family(NamedTuple):
    """A family of ours: its name, help and labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    def gauge(self) -> Any:
        return GaugeMetricFamily(self.name, self.help, labels=self.labels)

    def counter(self) -> Any:
        return CounterMetricFamily(self.name, self.help, labels=self.labels)


def families(snapshot: Snapshot, totals: TenantTotals) -> Iterator[Metric]:
    """Iterates over all families.

    Without a fabric there is nupa_fabric_up alone, which is 0.
    """
    up = _Family("nupa_fabric_up", "Whether the fabric can be read.").gauge()
    up.add_metric([], 0 if snapshot.error else 1)
    yield up
    if snapshot.error:
        return
    yield from _node(list(adapters(snapshot)))
    yield from _fabric(snapshot)
    yield from _links(snapshot)
    yield from _hosts(snapshot)
    yield from _tenants(snapshot, totals)
    yield from _faults(snapshot)
    yield from _interfaces(snapshot)


def _node(found: list[Adapter]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "node_infiniband_info",
        "Adapter of a host; its value is always 1.",
        labels=("device", "board_id", "firmware_version", "hca_type"),
    )
    state = _at_port("state_id", "State of the port: 1 is down, 4 is active.")
    physical = _at_port("physical_state_id", "Physical state: 3 is disabled, 5 is link up.")
    rate = _at_port("rate_bytes_per_second", "Nominal rate, which nothing enforces.")
    for adapter in found:
        info.add_metric([adapter.name, BOARD_ID, FIRMWARE, HCA_TYPE], 1)
        state.add_metric([adapter.name, PORT], adapter.state_id)
        physical.add_metric([adapter.name, PORT], adapter.physical_state_id)
        rate.add_metric([adapter.name, PORT], adapter.rate_bytes_per_s)
    yield from (info, state, physical, rate)
    for name, counter, unit, text in _NODE_COUNTERS:
        family = CounterMetricFamily(f"node_infiniband_{name}", text, labels=("device", "port"))
        for adapter in found:
            family.add_metric([adapter.name, PORT], adapter.counters[counter] * unit)
        yield family


def _at_port(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"node_infiniband_{name}", text, labels=("device", "port"))


def _fabric(snapshot: Snapshot) -> Iterator[Metric]:
    fabric = snapshot.fabric
    info = _Family(
        "nupa_fabric_info", "Fabric; its value is always 1.", ("fabric", "generation")
    ).gauge()
    info.add_metric([fabric["name"], snapshot.generation], 1)
    created = _Family("nupa_fabric_created_timestamp_seconds", "Time when it was made.").gauge()
    created.add_metric([], fabric["created_ns"] / 1e9)
    took = _Family("nupa_snapshot_duration_seconds", "Time that reading all of it took.").gauge()
    took.add_metric([], snapshot.cost_ns / 1e9)
    events = _Family("nupa_events", "Events of the fabric.").counter()
    events.add_metric([], max((event["seq"] for event in snapshot.events), default=0))
    yield from (info, created, took, events)


def _links(snapshot: Snapshot) -> Iterator[Metric]:
    """Yields what each port sends over its link: its peer's are the other direction."""
    labels = ("port", "peer")
    up = _Family("nupa_link_up", "Whether the port is active.", labels).gauge()
    speed = _Family(
        "nupa_link_rate_bytes_per_second", "Nominal rate, which nothing enforces.", labels
    ).gauge()
    counters = {
        "port_xmit_data": _Family("nupa_link_transmitted_bytes", "Bytes that left.", labels),
        "port_xmit_packets": _Family("nupa_link_transmitted_packets", "Packets that left.", labels),
        "port_xmit_discards": _Family(
            "nupa_link_discarded_operations", "Operations given up as it was down.", labels
        ),
        "link_downed": _Family("nupa_link_downed", "Times that it went down.", labels),
    }
    made = {counter: family.counter() for counter, family in counters.items()}
    for port in snapshot.fabric["ports"]:
        at = [port["name"], port["peer"]]
        up.add_metric(at, port["state"] == "ACTIVE")
        speed.add_metric(at, port["nominal_gbps"] * 1e9 / 8)
        for counter, family in made.items():
            unit = _WORD_BYTES if counter == "port_xmit_data" else 1
            family.add_metric(at, port["counters"][counter] * unit)
    yield from (up, speed, *made.values())


def _hosts(snapshot: Snapshot) -> Iterator[Metric]:
    info = _Family(
        "nupa_host_info", "Host; its value is always 1.", ("host", "tenant", "state")
    ).gauge()
    errors = _Family(
        "nupa_host_messages",
        "Messages by what `nupa show` calls errors and faults, and multicast.",
        ("host", "kind"),
    ).counter()
    gauges = {
        "nupa_attachments": "Processes that are attached to the host.",
        "nupa_queue_pairs": "Queue pairs of these processes.",
        "nupa_memory_regions": "Memory regions of these processes.",
    }
    made = {name: _Family(name, text, ("host",)).gauge() for name, text in gauges.items()}
    for host in snapshot.fabric["hosts"]:
        name = host["name"]
        info.add_metric([name, host.get("tenant") or "", host.get("control_state", "ready")], 1)
        for kind, count in host["hw_counters"].items():
            errors.add_metric([name, kind], count)
        programs = [process for process in host["processes"] if not process["net_queue"]]
        made["nupa_attachments"].add_metric([name], len(programs))
        for key, of in (("nupa_queue_pairs", "qps"), ("nupa_memory_regions", "mrs")):
            made[key].add_metric([name], sum(process[of] for process in programs))
    yield from (info, errors, *made.values())


def _tenants(snapshot: Snapshot, totals: TenantTotals) -> Iterator[Metric]:
    labels = ("tenant",)
    tenants = snapshot.fabric["tenants"]
    sent = _Family("nupa_tenant_transmitted_bytes", "Bytes that its hosts sent.", labels).counter()
    came = _Family("nupa_tenant_received_bytes", "Bytes that its hosts got.", labels).counter()
    for name, (xmit, rcv) in totals.update(snapshot).items():
        sent.add_metric([name], xmit)
        came.add_metric([name], rcv)
    yield from (sent, came)
    rate = _Family(
        "nupa_tenant_rate_limit_bytes_per_second", "Rate that it may use; 0: no limit.", labels
    ).gauge()
    for tenant in tenants:
        rate.add_metric([tenant["name"]], tenant["rate"])
    yield rate
    for key, (name, text) in _QUOTAS.items():
        used = _Family(name, f"{text}.", labels).gauge()
        quota = _Family(
            f"nupa_tenant_quota_{name.removeprefix('nupa_').removeprefix('tenant_')}",
            f"Quota: {text.lower()}; 0: no limit.",
            labels,
        ).gauge()
        for tenant in tenants:
            used.add_metric([tenant["name"]], tenant["used"][key])
            quota.add_metric([tenant["name"]], tenant["quotas"][key])
        yield from (used, quota)


def _faults(snapshot: Snapshot) -> Iterator[Metric]:
    labels = ("port", "kind")
    active = _Family("nupa_faults", "Faults that have not ended.", labels).gauge()
    hits = _Family("nupa_fault_hits", "Packets that faults of the table hit.", labels).counter()
    sums: dict[tuple[str, str], list[int]] = {}
    for fault in snapshot.fabric["faults"]:
        found = sums.setdefault((fault["port"], fault["kind"]), [0, 0])
        found[0] += not fault["ended"]
        found[1] += fault["hits"]
    for at, (count, hit) in sums.items():
        active.add_metric(list(at), count)
        hits.add_metric(list(at), hit)
    yield from (active, hits)


def _interfaces(snapshot: Snapshot) -> Iterator[Metric]:
    up = _Family("nupa_interface_up", "Whether the interface works.", ("host",)).gauge()
    names = {
        "tx_bytes": ("nupa_interface_transmitted_bytes", "Bytes of frames that left."),
        "tx_packets": ("nupa_interface_transmitted_frames", "Frames that left."),
        "rx_bytes": ("nupa_interface_received_bytes", "Bytes of frames that came."),
        "rx_packets": ("nupa_interface_received_frames", "Frames that came."),
    }
    made = {key: _Family(*words, ("host",)).counter() for key, words in names.items()}
    drops = _Family("nupa_interface_dropped_frames", "Frames dropped.", ("host",)).counter()
    for interface in snapshot.interfaces:
        at, counters = [interface["host"]], interface["counters"]
        up.add_metric(at, interface["state"] == "up")
        for key, family in made.items():
            family.add_metric(at, counters.get(key, 0))
        drops.add_metric(at, sum(counters.get(name, 0) for name in NET_DROPS))
    yield from (up, *made.values(), drops)
