# SPDX-License-Identifier: BSD-3-Clause
"""Writes the tables of nupa.lua and of docs/packet-tables.md, each between two marks:

python -m nupa.packet.wireshark.tables docs/packet-tables.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from nupa.base.errors import LocalError
from nupa.packet.tables import cxl_cache as cache_tables
from nupa.packet.tables import cxl_mem as cxl_tables
from nupa.packet.tables import pcie as pcie_tables
from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables import record
from nupa.packet.tables.layout import Field, Layout
from nupa.packet.wireshark.dissector import FILE

LAYOUTS: tuple[Layout, ...] = (
    record.HEADER,
    *pcie_tables.LAYOUTS,
    *cxl_tables.LAYOUTS,
    *cache_tables.LAYOUTS,
    *queue_tables.LAYOUTS,
)
_BEGIN = "-- tables: begin (written by python -m nupa.packet.wireshark.tables)\n"
_END = "-- tables: end\n"
_DOC_BEGIN = "<!-- tables: begin (written by python -m nupa.packet.wireshark.tables) -->\n"
_DOC_END = "<!-- tables: end -->\n"


def is_shown(field: Field) -> bool:
    """Whether a field is shown: all but reserved bits."""
    return not field.name.startswith("reserved")


def tables() -> str:
    """Returns the Lua tables of all layouts."""
    lines = [
        f"local LINKTYPE_USER = {record.LINKTYPE_NUPA - 147}",
        f"local VERSION = {record.VERSION}",
        f"local TLP_TYPES = {_pairs({_tlp_key(*k): v for k, v in pcie_tables.TYPES.items()})}",
        f"local PARTIAL_WRITES = {_pairs(dict.fromkeys(cxl_tables.PARTIAL_WRITES, True))}",
        f"local ROUTING = {_pairs(pcie_tables.ROUTING)}",
        f"local META_EMS = {cxl_tables.META_EMS}",
        *_choices("CHANNELS", {k: v.name for k, v in cxl_tables.MESSAGES.items()}),
        *_choices("CACHE_CHANNELS", {k: v.name for k, v in cache_tables.MESSAGES.items()}),
        *_choices("SEGMENTS", {k: v.name for k, v in queue_tables.SEGMENT_LAYOUTS.items()}),
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


def _tlp_key(fmt: int, kind: int) -> int:
    return fmt << 5 | kind


def _choices(name: str, values: Mapping[int, str]) -> Iterator[str]:
    yield f"local {name} = {_pairs(values)}"


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


def rendered(text: str) -> str:
    """Returns *text*, of nupa.lua or docs/packet-tables.md, with its tables generated again."""
    for begin, end, write in ((_BEGIN, _END, tables), (_DOC_BEGIN, _DOC_END, documentation)):
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if found and closed:
            return before + begin + write() + end + after
    raise LocalError("the file has no marks around its tables: restore them")


def main(paths: list[str]) -> int:
    for path in (FILE, *map(Path, paths)):
        path.write_text(rendered(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
