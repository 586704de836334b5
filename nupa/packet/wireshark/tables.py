# SPDX-License-Identifier: BSD-3-Clause
"""The tables of the dissector, in Lua, and of docs/packet-tables.md, which this writes there:

python -m nupa.packet.wireshark.tables docs/packet-tables.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nupa.base.errors import LocalError
from nupa.packet.tables import cxl_cache as cache_tables
from nupa.packet.tables import cxl_mem as cxl_tables
from nupa.packet.tables import pcie as pcie_tables
from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables import record
from nupa.packet.tables.layout import Field, Layout

LAYOUTS: tuple[Layout, ...] = (
    record.HEADER,
    *pcie_tables.LAYOUTS,
    *cxl_tables.LAYOUTS,
    *cache_tables.LAYOUTS,
    *queue_tables.LAYOUTS,
)
_BEGIN = "<!-- tables: begin (written by python -m nupa.packet.wireshark.tables) -->\n"
_END = "<!-- tables: end -->\n"


def is_shown(field: Field) -> bool:
    """Tells whether a field is shown: all but reserved bits."""
    return not field.name.startswith("reserved")


def tables() -> str:
    """Returns the Lua tables of all layouts."""
    lines = [
        f"local LINKTYPE_USER = {record.LINKTYPE_NUPA - 147}",
        f"local VERSION = {record.VERSION}",
        f"local TLP_TYPES = {_pairs({f << 5 | t: v for (f, t), v in pcie_tables.TYPES.items()})}",
        f"local PARTIAL_WRITES = {_pairs(dict.fromkeys(cxl_tables.PARTIAL_WRITES, True))}",
        f"local ROUTING = {_pairs(pcie_tables.ROUTING)}",
        f"local META_EMS = {cxl_tables.META_EMS}",
        f"local CHANNELS = {_names(cxl_tables.MESSAGES)}",
        f"local CACHE_CHANNELS = {_names(cache_tables.MESSAGES)}",
        f"local SEGMENTS = {_names(queue_tables.SEGMENT_LAYOUTS)}",
        "-- name, bits, shift, show",
        "local LAYOUTS = {",
        *(f"\t{line}" for layout in LAYOUTS for line in _layout(layout)),
        "}",
        "-- text, bits (with those shifted in), base, names, names of bits",
        "local FIELDS = {",
        *(f"\t{line}" for line in _fields()),
        "}",
    ]
    return "".join(line + "\n" for line in lines)


def _names(layouts: Mapping[Any, Layout]) -> str:
    return _pairs({key: layout.name for key, layout in layouts.items()})


def _layout(layout: Layout) -> Iterator[str]:
    yield f"{layout.name} = {{ text = {_quoted(layout.text)}, bytes = {layout.bytes},"
    for field in layout.fields:
        show = _quoted(layout.abbrev_of(field)) if is_shown(field) else "nil"
        yield f"\t{{ {_quoted(field.name)}, {field.bits}, {field.shift}, {show} }},"
    yield "},"


def _fields() -> Iterator[str]:
    found: dict[str, Field] = {}
    for layout in LAYOUTS:
        for field in filter(is_shown, layout.fields):
            abbrev = layout.abbrev_of(field)
            if abbrev not in found or found[abbrev].bits < field.bits:
                found[abbrev] = field
    for abbrev, field in found.items():
        names = _pairs(field.values) if field.values else "nil"
        values, bits = ("nil", names) if field.flags else (names, "nil")
        base = "ipv6" if field.kind == "ipv6" else "hex" if field.hex or field.flags else "dec"
        width = field.bits + field.shift
        yield (
            f"[{_quoted(abbrev)}] = "
            f"{{ {_quoted(field.text)}, {width}, {_quoted(base)}, {values}, {bits} }},"
        )


def _pairs(values: Mapping[int, str | bool]) -> str:
    inner = ", ".join(
        f"[{int(key)}] = {_quoted(value) if isinstance(value, str) else str(value).lower()}"
        for key, value in values.items()
    )
    return f"{{ {inner} }}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def documentation() -> str:
    """Returns the tables of docs/packet-tables.md."""
    return "".join(line + "\n" for layout in LAYOUTS for line in _described(layout))


def _described(layout: Layout) -> Iterator[str]:
    yield f"\n## {layout.name}: {layout.text}, {layout.bytes} bytes ({layout.cite})\n"
    yield "| byte | bits | field | meaning | filter |"
    yield "|---|---|---|---|---|"
    at = 0
    for field in layout.fields:
        first, last = at // 8, (at + field.bits - 1) // 8
        at += field.bits
        where = f"{first}" if first == last else f"{first}-{last}"
        high = 8 * (last + 1) - 1 - (at - field.bits)
        text = field.text + (f"; its lowest {field.shift} bits are not sent" if field.shift else "")
        for value, name in field.values.items() if field.values else ():
            text += f"; {f'bit {value}' if field.flags else int(value)}: {name}"
        show = f"`{layout.abbrev_of(field)}`" if is_shown(field) else ""
        low = high - field.bits + 1
        bits = f"{high}" if high == low else f"{high}-{low}"
        yield f"| {where} | {bits} | `{field.name}` | {text} | {show} |"


def rendered(page: str) -> str:
    """Returns *page*, docs/packet-tables.md, with its tables written again."""
    before, found, rest = page.partition(_BEGIN)
    _, closed, after = rest.partition(_END)
    if not (found and closed):
        raise LocalError("the file has no marks around its tables: restore them")
    return before + _BEGIN + documentation() + _END + after


def main(paths: list[str]) -> int:
    for path in map(Path, paths):
        path.write_text(rendered(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
