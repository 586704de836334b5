# SPDX-License-Identifier: BSD-3-Clause
"""Kernel modules for tests: ELF files with nothing but a section of facts."""

import struct


def module_bytes(*facts: str, section: str = ".modinfo") -> bytes:
    """Returns an ELF64 file whose *section* has those strings KEY=VALUE (see elf(5))."""
    modinfo = b"".join(fact.encode() + b"\0" for fact in facts)
    names = b"\0" + section.encode() + b"\0.shstrtab\0"
    modinfo_at = 64
    names_at = modinfo_at + len(modinfo)
    table_at = (names_at + len(names) + 7) // 8 * 8

    def header(name: int, kind: int, at: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0)

    table = header(0, 0, 0, 0) + header(1, 1, modinfo_at, len(modinfo))
    table += header(len(section) + 2, 3, names_at, len(names))
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    # A relocatable file for x86-64 with three sections, the last of them the names.
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 1, 62, 1, 0, 0, table_at, 0, 64, 0, 0, 64, 3, 2)
    body = head + modinfo + names
    return body + bytes(table_at - len(body)) + table
