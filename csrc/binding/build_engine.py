# SPDX-License-Identifier: BSD-3-Clause
"""Writes the C source of `nupa._engine` from the engine's own headers.

    build_engine.py OUT.c

A declaration is written once, in C: what stands between `/* cffi: begin */` and `/* cffi: end */`
in the headers below is given to cffi as it is, so it must be plain declarations (no macros, array
sizes as literals).  CMake runs this at build time.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cffi import FFI

BINDING = Path(__file__).resolve().parent
ENGINE = BINDING.parent / "engine"
NETDEV = BINDING.parent / "netdev"
PACKET = BINDING.parent / "packet"
CAPTURE = BINDING.parent / "capture"
CXL = BINDING.parent / "cxl"

# In the order of their dependence.
HEADERS = (
    ENGINE / "layout.h",
    ENGINE / "segment.h",
    ENGINE / "region.h",
    BINDING / "verbs_cdef.h",
    ENGINE / "nupa.h",
    ENGINE / "batch.h",
    ENGINE / "fault.h",
    ENGINE / "inject.h",
    BINDING / "perf.h",
    BINDING / "rdma_cdef.h",
    NETDEV / "netdev.h",
    PACKET / "pcapng.h",
    PACKET / "opcodes.h",
    PACKET / "decode.h",
    PACKET / "records.h",
    CAPTURE / "watch.h",
    CAPTURE / "watch_index.h",
    ENGINE / "view.h",
    CXL / "hdm.h",
    CXL / "poison.h",
    CXL / "transact.h",
    CXL / "snoop.h",
    CXL / "cache.h",
    CXL / "flit.h",
    CXL / "flit_way.h",
    CXL / "rate.h",
)
_MARK = re.compile(r"^/\* cffi: (begin|end) \*/$", re.MULTILINE)


class MarkError(Exception):
    """A header's cffi marks do not pair up; the message names the file and line."""


def marked(text: str, name: str) -> str:
    """The parts of *text* between the marks, joined.  MarkError if a mark lacks its other half."""
    parts: list[str] = []
    start: int | None = None
    for mark in _MARK.finditer(text):
        line = text.count("\n", 0, mark.start()) + 1
        if (mark[1] == "begin") != (start is None):
            raise MarkError(f"{name}:{line}: `cffi: {mark[1]}` without its other half before it")
        if start is None:
            start = mark.end()
        else:
            parts.append(text[start : mark.start()])
            start = None
    if start is not None:
        raise MarkError(f"{name}: the last `cffi: begin` has no `cffi: end`")
    if not parts:
        raise MarkError(f"{name}: has no `/* cffi: begin */` line")
    return "\n".join(parts)


def engine_source() -> FFI:
    """The FFI whose emit_c_code() writes the module."""
    ffi = FFI()
    headers = [header for header in HEADERS if header.exists()]
    for header in headers:
        ffi.cdef(marked(header.read_text(), header.name))
    includes = "".join(f'#include "{header.name}"\n' for header in headers)
    ffi.set_source("nupa._engine", includes)
    return ffi


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print("usage: build_engine.py OUT.c", file=sys.stderr)
        return 2
    engine_source().emit_c_code(argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
