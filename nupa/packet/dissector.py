# SPDX-License-Identifier: BSD-3-Clause
"""The Wireshark dissector of NUPA's link type: nupa.lua beside this file.

Its code is written by hand; its tables, between two marks, are written from ours, and so are those
of the documentation:

    python -m nupa.packet.dissector docs/packet.md      writes the tables of both anew
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from nupa.base.errors import LocalError
from nupa.packet.tables import cxl_cache as cache_tables
from nupa.packet.tables import cxl_mem as cxl_tables
from nupa.packet.tables import pcie as pcie_tables
from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables import record
from nupa.packet.tables.layout import Field, Layout

FILE = Path(__file__).with_name("nupa.lua")
LAYOUTS: tuple[Layout, ...] = (
    record.HEADER,
    *pcie_tables.LAYOUTS,
    *cxl_tables.LAYOUTS,
    *cache_tables.LAYOUTS,
    *queue_tables.LAYOUTS,
)
_BEGIN = "-- tables: begin (written by python -m nupa.packet.dissector)\n"
_END = "-- tables: end\n"
_DOC_BEGIN = "<!-- tables: begin (written by python -m nupa.packet.dissector) -->\n"
_DOC_END = "<!-- tables: end -->\n"
_MARK = "NUPA's link type"  # stands in the first lines of the file, and so of what was installed


def is_shown(field: Field) -> bool:
    """Reserved bits are not shown."""
    return not field.name.startswith("reserved")


def tables() -> str:
    """The Lua tables of all layouts."""
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
    """The tables of docs/packet.md."""
    return "".join(line + "\n" for layout in LAYOUTS for line in _described(layout))


def _described(layout: Layout) -> Iterator[str]:
    yield f"\n### {layout.name}: {layout.text}, {layout.bytes} bytes ({layout.cite})\n"
    yield "| byte | bits | field | what it is | filter |"
    yield "|---|---|---|---|---|"
    at = 0
    for field in layout.fields:
        first, last = at // 8, (at + field.bits - 1) // 8
        at += field.bits
        where = f"{first}" if first == last else f"{first}-{last}"
        high = 8 * (last + 1) - 1 - (at - field.bits)
        text = field.text + (f"; its low {field.shift} bits are left out" if field.shift else "")
        for value, name in field.values.items() if field.values else ():
            text += f"; {f'bit {value}' if field.flags else int(value)}: {name}"
        show = f"`{layout.abbrev_of(field)}`" if is_shown(field) else ""
        low = high - field.bits + 1
        bits = f"{high}" if high == low else f"{high}-{low}"
        yield f"| {where} | {bits} | `{field.name}` | {text} | {show} |"


def rendered(text: str) -> str:
    """*text*, of nupa.lua or docs/packet.md, with its tables written anew."""
    for begin, end, write in ((_BEGIN, _END, tables), (_DOC_BEGIN, _DOC_END, documentation)):
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if found and closed:
            return before + begin + write() + end + after
    raise LocalError("the file has no marks of tables")


def plugin_folder() -> Path:
    """Where this user's Wireshark looks for Lua scripts, as `tshark -G folders` says."""
    tshark = shutil.which("tshark")
    if tshark is None:
        return Path.home() / ".local/lib/wireshark/plugins"  # Wireshark's default on Unix
    try:
        done = subprocess.run(
            [tshark, "-G", "folders"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalError(f"`tshark -G folders` failed: {error}") from error
    for line in done.stdout.splitlines():
        name, _, folder = line.partition("\t")
        if name.strip().rstrip(":") == "Personal Lua Plugins" and folder.strip():
            return Path(folder.strip())
    raise LocalError(
        "`tshark -G folders` names no folder for personal Lua plugins: this Wireshark has no Lua; "
        f"use one that has, or copy {FILE} yourself"
    )


def install(folder: Path) -> Path:
    """Puts the dissector into *folder*, in place of an older one; returns its path there."""
    target = folder / FILE.name
    _refuse_foreign(target)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".nupa-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(FILE.read_bytes())
            Path(name).chmod(0o644)
            Path(name).replace(target)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise LocalError(f"{target} cannot be written: {error}") from error
    return target


def uninstall(folder: Path) -> Path | None:
    """Removes the dissector from *folder*; its former path, or None if it was not there."""
    target = folder / FILE.name
    _refuse_foreign(target)
    try:
        target.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LocalError(f"{target} cannot be removed: {error}") from error
    return target


def _refuse_foreign(target: Path) -> None:
    try:
        begin = target.read_bytes()[:1000].decode(errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise LocalError(f"{target} cannot be read: {error}") from error
    if _MARK not in begin:
        raise LocalError(f"{target} is not NUPA's dissector: move it away first")


def main(paths: list[str]) -> int:
    for path in (FILE, *map(Path, paths)):
        path.write_text(rendered(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
