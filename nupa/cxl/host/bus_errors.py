# SPDX-License-Identifier: BSD-3-Clause
"""Registers and logs of failed requests: poison, viral devices, links that are down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nupa.cxl.device.viral import report
from nupa.cxl.host.decode import DeadEnd, Leaf
from nupa.cxl.media.parts import LINE_BYTES
from nupa.cxl.registers.pcie_tables import PortType

if TYPE_CHECKING:
    from nupa.cxl.function.port import Port
    from nupa.cxl.host.bus import Bus

_POISON_RAS = 10  # 8.2.4.17.1, Poison Received


def leave_traces(bus: Bus, asked: range) -> None:
    """Records the failure of a request to *asked* addresses."""
    isolated = False
    for hpa in range(asked.start - asked.start % LINE_BYTES, asked.stop, LINE_BYTES):
        way = bus.map.way(hpa)
        if way is None:
            continue
        if isinstance(way, DeadEnd) or any(map(bus.is_down, way.hops)):
            isolated |= _time_out(way.hops[0])
        elif way.device.viral.active:
            _viral(way)
        elif bus.media(way.device).is_poisoned(way.dpa(hpa)):
            way.device.poison_read(way.dpa(hpa))
            _poison(way.hops[0])
    if isolated:
        bus.refresh()


def is_isolated(port: Port) -> bool:
    """Tells whether a root port is isolated: it blocks requests until software clears its status
    (12.3)."""
    return "isolation" in port.component and bool(
        port.component["isolation"]["status.mem_isolation"]
    )


def isolate(port: Port) -> None:
    """Isolates a root port whose link is down (12.3), if software has enabled that (8.2.4.24.2)."""
    if "isolation" in port.component:
        isolation = port.component["isolation"]
        if isolation["control.mem_isolation"]:
            isolation["status.mem_isolation"] = isolation["status.mem_isolation_link_down"] = 1


def _time_out(root: Port) -> bool:
    """Records a timeout in the root port, if enabled; returns whether it isolates itself."""
    if "isolation" not in root.component:
        return False
    isolation = root.component["isolation"]
    if not isolation["control.mem_timeout"]:
        return False
    isolation["status.mem_timeout"] = 1
    if isolation["control.mem_isolation"] and not isolation["status.mem_isolation"]:
        isolation["status.mem_isolation"] = 1
        return True
    return False


def _viral(way: Leaf) -> None:
    """Records viral in the ports on the way, where software has enabled it (8.1.5.1, 8.1.5.2)."""
    for port in way.hops:
        extensions = port.config["port_extensions"]
        if extensions["control.viral_enable"]:
            extensions["status.viral"] = 1


def _poison(port: Port) -> None:
    """Records poison that is received, as an uncorrected error if software has enabled that
    (8.2.4.17.6)."""
    ras = port.component["ras"]
    if port.port_type is PortType.ROOT and ras["control.poison_enabled"]:
        report(ras, "poison_received", _POISON_RAS)
    else:
        ras["correctable_status.mem_poison_received"] = 1
