# SPDX-License-Identifier: BSD-3-Clause
"""Topologies as TOML: the presets of this package and the user's own files.

link_layer = "ethernet"      # or "infiniband"

[link]                       # the default of all links
width = 4                    # lanes
speed = "Gen5"               # or mega-transfers a second per lane

[segment]                    # sizes, if not the defaults: slots, ring_lines, pool_bytes, …

[[switch]]
name = "switch0"
ports = 24

[[host]]                     # its link: width, speed
name = "host"                # with count: host0, host1, … from `first` on
count = 2
switch = "switch0"           # port = N: a certain port, else the lowest free one

[[trunk]]                    # its link: width, speed
between = ["switch0", "switch1"]
ports = [24, 24]             # or the lowest free ones
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from nupa.fabric.topology import (
    HOSTS_MAX,
    PORTS_MAX,
    SPEEDS_MTPS,
    WIDTHS_LANES,
    Host,
    Link,
    SegmentConfig,
    Switch,
    Topology,
    TopologyError,
    Trunk,
    speed_name,
)

PRESET_FOLDER = Path(__file__).parent / "presets"
DEFAULT_PRESET = "pair"
FILE_BYTES_MAX = 1 << 20

_LINK_KEYS = ("width", "speed")
_SPEED_MTPS_MAX = 1_000_000
_U32_MAX = (1 << 32) - 1
_U64_MAX = (1 << 64) - 1
_AT_LINE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)$", re.DOTALL)


def presets() -> list[str]:
    """The names of the topologies that come with NUPA."""
    return sorted(path.stem for path in PRESET_FOLDER.glob("*.toml"))


def load(which: str | Path = DEFAULT_PRESET) -> Topology:
    """The preset of that name, else the file.  TopologyError names file, line, table and key."""
    name = str(which)
    if "/" not in name and not name.endswith(".toml"):
        if name not in presets():
            raise TopologyError(
                f"there is no preset {name!r}: choose one of {', '.join(presets())}, "
                f"or a file by a name that ends in .toml or holds a slash"
            )
        which = PRESET_FOLDER / f"{name}.toml"
    path = Path(which)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise TopologyError(f"{path}: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise TopologyError(f"{path}: a topology has at most {FILE_BYTES_MAX} bytes")
    return parse(data, str(path), path.stem)


def parse(data: bytes, source: str, name: str) -> Topology:
    """A topology from TOML; *source* stands before each message, as `SOURCE:LINE:` if it can."""
    try:
        document = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TopologyError(f"{source}:{line}: not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise TopologyError(_with_line(str(error), source, data)) from error
    try:
        return _topology(_Table(document, "the file"), name)
    except TopologyError as error:
        raise TopologyError(f"{source}: {error}") from error


def _with_line(message: str, source: str, data: bytes) -> str:
    """tomllib says `… (at line 3, column 7)`, or `(at end of document)`."""
    match = _AT_LINE.match(message)
    if match:
        return f"{source}:{match[2]}: {match[1]} (column {match[3]})"
    last_line = len(data.splitlines()) or 1
    return f"{source}:{last_line}: {message}"


class _Table:
    """A table of the file; each key is asked for once, what is left over is unknown."""

    def __init__(self, values: dict[str, Any], title: str) -> None:
        self._values = values
        self._asked: list[str] = []
        self.title = title

    def get(self, key: str, kind: type, default: Any = None, required: bool = False) -> Any:
        self._asked.append(key)
        if key not in self._values:
            if required:
                raise TopologyError(f"{self.title}: the key `{key}` is missing")
            return default
        value = self._values[key]
        # bool is a kind of int in Python, not in TOML.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            wanted = {str: "a string", int: "a whole number", list: "an array", dict: "a table"}
            raise TopologyError(f"{self.title}: `{key}` is {value!r}, not {wanted[kind]}")
        return value

    def text(self, key: str, default: str = "", required: bool = False) -> str:
        return str(self.get(key, str, default, required))

    def number(
        self, key: str, low: int, high: int, default: int = 0, required: bool = False
    ) -> int:
        value = self.get(key, int, default, required)
        if key in self._values and not low <= value <= high:
            raise TopologyError(f"{self.title}: `{key}` is {value}: choose {low} to {high}")
        return int(value)

    def table(self, key: str) -> _Table:
        return _Table(self.get(key, dict, {}), f"[{key}]")

    def tables(self, key: str) -> list[_Table]:
        values = self.get(key, list, [])
        found = []
        for i, value in enumerate(values, 1):
            if not isinstance(value, dict):
                raise TopologyError(f"`{key}` holds {value!r}: write tables, [[{key}]]")
            named = value.get("name")
            title = f"[[{key}]] {i}" + (f" ({named!r})" if isinstance(named, str) else "")
            found.append(_Table(value, title))
        return found

    def done(self) -> None:
        for key in self._values:
            if key not in self._asked:
                raise TopologyError(
                    f"{self.title}: there is no key `{key}`; the keys are: {', '.join(self._asked)}"
                )

    def link(self, default: Link) -> Link:
        width = self.get("width", int, default.width_lanes)
        if width not in WIDTHS_LANES:
            widths = ", ".join(map(str, WIDTHS_LANES))
            raise TopologyError(f"{self.title}: `width` is {width} lanes: choose one of {widths}")
        self._asked.append("speed")
        speed = self._values.get("speed", default.speed_mtps)
        if isinstance(speed, str) and speed.lower() in SPEEDS_MTPS:
            speed = SPEEDS_MTPS[speed.lower()]
        if type(speed) is not int or not 1 <= speed <= _SPEED_MTPS_MAX:
            names = ", ".join(speed_name(known) for known in SPEEDS_MTPS.values())
            raise TopologyError(
                f"{self.title}: `speed` is {speed!r}: choose one of {names}, "
                f"or 1 to {_SPEED_MTPS_MAX} mega-transfers a second per lane"
            )
        return Link(width, speed)


def _topology(top: _Table, name: str) -> Topology:
    name = top.text("name", name)
    link_layer = top.text("link_layer", "ethernet")
    link_table = top.table("link")
    link = link_table.link(Link())
    link_table.done()
    segment = _segment(top.table("segment"))
    switches = tuple(_switch(table) for table in top.tables("switch"))
    hosts = tuple(host for table in top.tables("host") for host in _hosts(table, link))
    trunks = tuple(_trunk(table, link) for table in top.tables("trunk"))
    top.done()
    return Topology(name, switches, hosts, trunks, link_layer, segment)


def _segment(table: _Table) -> SegmentConfig:
    wide = {"pool_bytes"}
    sizes = {
        name: table.number(name, 1, _U64_MAX if name in wide else _U32_MAX)
        for name in SegmentConfig._fields
    }
    table.done()
    return SegmentConfig(**sizes)


def _switch(table: _Table) -> Switch:
    switch = Switch(
        table.text("name", required=True), table.number("ports", 1, PORTS_MAX, required=True)
    )
    table.done()
    return switch


def _hosts(table: _Table, default: Link) -> list[Host]:
    name = table.text("name", required=True)
    switch = table.text("switch", required=True)
    port = table.number("port", 1, PORTS_MAX)
    count = table.number("count", 1, HOSTS_MAX)
    first = table.number("first", 0, HOSTS_MAX)
    link = table.link(default)
    table.done()
    if not count:
        return [Host(name, switch, port, link)]
    return [Host(f"{name}{first + i}", switch, port + i if port else 0, link) for i in range(count)]


def _trunk(table: _Table, default: Link) -> Trunk:
    between = table.get("between", list, required=True)
    if len(between) != 2 or not all(isinstance(name, str) for name in between):
        raise TopologyError(f"{table.title}: `between` is {between!r}: name two switches")
    ports = table.get("ports", list, [0, 0])
    if len(ports) != 2 or not all(type(port) is int and port >= 0 for port in ports):
        raise TopologyError(f"{table.title}: `ports` is {ports!r}: give two port numbers")
    link = table.link(default)
    table.done()
    return Trunk((between[0], between[1]), (ports[0], ports[1]), link)
