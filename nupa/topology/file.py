# SPDX-License-Identifier: BSD-3-Clause
"""Topologies as TOML: the presets of this package and the user's own files.

docs/topology.md lists the tables and keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nupa.topology import tenants_file, toml_table
from nupa.topology.toml_table import Table
from nupa.topology.topology import (
    HOSTS_MAX,
    PORTS_MAX,
    SPEEDS_MTPS,
    WIDTHS_LANES,
    HostConfig,
    LinkConfig,
    MemoryConfig,
    SegmentConfig,
    SwitchConfig,
    Topology,
    TopologyError,
    TrunkConfig,
    WireConfig,
    speed_name,
)

PRESET_FOLDER = Path(__file__).parent / "presets"
DEFAULT_PRESET = "pair"

_LINK_KEYS = ("width", "speed")
_SPEED_MTPS_MAX = 1_000_000
_U32_MAX = (1 << 32) - 1
_U64_MAX = (1 << 64) - 1


def presets() -> list[str]:
    """Lists the names of the topologies that come with NUPA."""
    return sorted(path.stem for path in PRESET_FOLDER.glob("*.toml"))


def load(which: str | Path = DEFAULT_PRESET) -> Topology:
    """Loads the preset of that name, else the file.  TopologyError: names file, line, table,
    key."""
    name = str(which)
    if "/" not in name and not name.endswith(".toml"):
        if name not in presets():
            raise TopologyError(
                f"there is no preset {name!r}: choose one of {', '.join(presets())}, "
                f"or a file by a name that ends in .toml or holds a slash"
            )
        which = PRESET_FOLDER / f"{name}.toml"
    path = Path(which)
    return parse(toml_table.read(path), str(path), path.stem)


def parse(data: bytes, source: str, name: str) -> Topology:
    """Parses a topology from TOML; messages begin with *source*, as `SOURCE:LINE:` if possible."""
    table = toml_table.document(data, source)
    try:
        return of_table(table, name)
    except TopologyError as error:
        raise TopologyError(f"{source}: {error}") from error


def _link(table: Table, default: LinkConfig) -> LinkConfig:
    width = table.get("width", int, default.width_lanes)
    if width not in WIDTHS_LANES:
        widths = ", ".join(map(str, WIDTHS_LANES))
        raise TopologyError(f"{table.title}: `width` is {width} lanes: choose one of {widths}")
    speed = table.any("speed", default.speed_mtps)
    if isinstance(speed, str) and speed.lower() in SPEEDS_MTPS:
        speed = SPEEDS_MTPS[speed.lower()]
    if type(speed) is not int or not 1 <= speed <= _SPEED_MTPS_MAX:
        names = ", ".join(speed_name(known) for known in SPEEDS_MTPS.values())
        raise TopologyError(
            f"{table.title}: `speed` is {speed!r}: choose one of {names}, "
            f"or 1 to {_SPEED_MTPS_MAX} mega-transfers a second per lane"
        )
    return LinkConfig(width, speed)


def of_table(top: Table, name: str, *, trunks: Sequence[Table] | None = None) -> Topology:
    """Returns the topology of a table; *trunks*: those between switches, if there are others.

    TopologyError: names table, key and the values that are allowed.
    """
    name = top.text("name", name)
    link_layer = top.text("link_layer", "ethernet")
    link_table = top.table("link")
    link = _link(link_table, LinkConfig())
    link_table.done()
    segment = _segment(top.table("segment"))
    switches = tuple(_switch(table) for table in top.tables("switch"))
    hosts = tuple(host for table in top.tables("host") for host in _hosts(table, link))
    between = top.tables("trunk") if trunks is None else trunks
    links = tuple(_trunk(table, link) for table in between)
    wires = tuple(_wire(table) for table in top.tables("wire"))
    memory = tuple(device for table in top.tables("memory") for device in _memory(table))
    tenants = tuple(tenants_file.tenant(table) for table in top.tables("tenant"))
    partitions = tuple(tenants_file.partition(table) for table in top.tables("partition"))
    policy = None
    if top.any("admission", None) is not None:
        policy = tenants_file.admission(top.table("admission"))
    top.done()
    return Topology(
        name,
        switches,
        hosts,
        links,
        link_layer,
        segment,
        memory,
        tenants=tenants,
        partitions=partitions,
        admission=policy,
        wires=wires,
    )


def _wire(table: Table) -> WireConfig:
    wire = WireConfig(
        table.text("host", required=True),
        table.text("address", required=True),
        table.text("listen"),
        table.text("frames"),
        table.get("raw", bool, False),
    )
    table.done()
    return wire


def _memory(table: Table) -> list[MemoryConfig]:
    device = MemoryConfig(
        table.number("bytes", 1, _U64_MAX, required=True),
        table.get("logical", bool, False),
        table.number("dynamic_bytes", 0, _U64_MAX),
    )
    count = table.number("count", 1, PORTS_MAX)
    table.done()
    return [device] * (count or 1)


def _segment(table: Table) -> SegmentConfig:
    wide = {"pool_bytes", "segment_bytes"}
    coherence = table.text("coherence") or "hardware"
    sizes = {
        name: table.number(name, 1, _U64_MAX if name in wide else _U32_MAX)
        for name in SegmentConfig._fields
        if name != "coherence"
    }
    table.done()
    return SegmentConfig(coherence=coherence, **sizes)


def _switch(table: Table) -> SwitchConfig:
    switch = SwitchConfig(
        table.text("name", required=True), table.number("ports", 1, PORTS_MAX, required=True)
    )
    table.done()
    return switch


def _hosts(table: Table, default: LinkConfig) -> list[HostConfig]:
    name = table.text("name", required=True)
    switch = table.text("switch", required=True)
    port = table.number("port", 1, PORTS_MAX)
    count = table.number("count", 1, HOSTS_MAX)
    first = table.number("first", 0, HOSTS_MAX)
    state = table.text("state", "ready")
    link = _link(table, default)
    table.done()
    if not count:
        return [HostConfig(name, switch, port, link, state)]
    return [
        HostConfig(f"{name}{first + i}", switch, port + i if port else 0, link, state)
        for i in range(count)
    ]


def _trunk(table: Table, default: LinkConfig) -> TrunkConfig:
    if table.has("by"):
        raise TopologyError(
            f"{table.title}: `by` is for a file of machines: `nupa trunk up FILE` starts it"
        )
    between = table.get("between", list, required=True)
    if len(between) != 2 or not all(isinstance(name, str) for name in between):
        raise TopologyError(f"{table.title}: `between` is {between!r}: name two switches")
    ports = table.get("ports", list, [0, 0])
    if len(ports) != 2 or not all(type(port) is int and port >= 0 for port in ports):
        raise TopologyError(f"{table.title}: `ports` is {ports!r}: give two port numbers")
    link = _link(table, default)
    table.done()
    return TrunkConfig((between[0], between[1]), (ports[0], ports[1]), link)
