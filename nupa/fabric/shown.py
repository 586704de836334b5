# SPDX-License-Identifier: BSD-3-Clause
"""The whole state of a fabric as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nupa.fabric.counters import count, group_flows
from nupa.fabric.host import FabricHost
from nupa.fabric.resources import resources
from nupa.fabric.tenants.newcomer import newcomers
from nupa.fabric.wires.entry import entries
from nupa.memory.region import as_dict, infos
from nupa.topology.topology import speed_name

if TYPE_CHECKING:
    from nupa.core.segment import Segment, SlotInfo
    from nupa.fabric.fabric import Fabric


def show(fabric: Fabric, segment: Segment, *, lists: bool = True) -> dict[str, Any]:
    """Returns the whole state as plain values: the output of `nupa show --json`.

    Without *lists*: no channels, listeners, queue pairs, memory regions and their like.
    """
    processes = fabric.processes()
    hosts, ports = fabric.hosts, fabric.ports
    counters = count(ports, segment.flows(), segment.route, group_flows(segment.handle))
    hw_counters = fabric.hw_counters()
    cache_requests = fabric.cache_requests()
    return {
        "name": fabric.name,
        "path": fabric.path,
        "generation": fabric.generation,
        "created_ns": segment.created_ns,
        "auto": fabric.auto,
        "hosts": [
            {
                "name": host.name,
                "index": host.index,
                "ipv4": host.ipv4,
                "mac": host.mac,
                "lid": host.lid,
                "link_layer": host.link_layer,
                "port": ports[host.port].name,
                "state": ports[host.port].state,
                "tenant": (known := FabricHost.of(fabric, host)).tenant,
                "control_state": known.control_state,
                "pkeys": known.pkeys,
                "processes": [_process(slot) for slot in processes if slot.host == host.index],
                "hw_counters": hw_counters[host.index],
                "cache_requests": cache_requests[host.index],
            }
            for host in hosts
        ],
        "tenants": [tenant.as_dict() for tenant in fabric.tenants],
        "partitions": [partition.as_dict() for partition in fabric.partitions],
        **_newcomers(fabric),
        "ports": [
            {
                "name": port.name,
                "peer": ports[port.peer].name,
                "state": port.state,
                "width": f"x{port.width_lanes}",
                "speed": speed_name(port.speed_mtps),
                "nominal_gbps": port.nominal_mbps / 1000,
                "rate": port.rate,
                "counters": counters[port.index],
            }
            for port in ports
        ],
        **(_lists(fabric, segment, processes) if lists else {}),
        "wires": [wire.as_json() for wire in entries(segment)],
        "regions": [as_dict(fabric, info) for info in infos(fabric)],
        "faults": [entry.as_dict() for entry in fabric.faults()],
    }


def _newcomers(fabric: Fabric) -> dict[str, list[dict[str, Any]]]:
    known = newcomers(fabric)
    return {
        name: [each.as_dict() for each in known if each.kind == kind]
        for name, kind in (("accelerators", "accelerator"), ("devices", "device"))
    }


def _process(slot: SlotInfo) -> dict[str, Any]:
    return {
        "pid": slot.pid,
        "comm": slot.comm,
        "uid": slot.uid,
        "slot": slot.slot,
        "state": slot.state,
        "qps": slot.qps,
        "mrs": slot.mrs,
        "net_queue": slot.net_queue,
    }


def _lists(fabric: Fabric, segment: Segment, processes: list[SlotInfo]) -> dict[str, Any]:
    hosts = fabric.hosts
    by_slot = {slot.slot: slot for slot in processes}
    return {
        "movers": [
            {
                "from": {"host": hosts[a.host].name, "pid": a.pid},
                "to": {"host": hosts[b.host].name, "pid": b.pid},
                "mover": mover,
            }
            for a, b, mover in fabric.contacts()
        ],
        "listeners": [
            {
                "host": hosts[listener.host].name,
                "pid": by_slot[listener.slot].pid if listener.slot in by_slot else 0,
                "comm": by_slot[listener.slot].comm if listener.slot in by_slot else "",
                "space": listener.space,
                "port": listener.port,
                "family": "ipv6" if listener.ipv6 else "ipv4",
                "address": listener.address,
            }
            for listener in segment.listeners()
        ],
        **resources(segment.handle, hosts, by_slot),
    }
