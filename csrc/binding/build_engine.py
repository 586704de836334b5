# SPDX-License-Identifier: BSD-3-Clause
"""Writes the C source of `nupa._engine` from the engine's own headers.

    build_engine.py OUT.c

A declaration is written once, in C.  cffi gets the text between `/* cffi: begin */` and
`/* cffi: end */` in the headers below.  The text is preprocessed by $CC, and inline functions
become declarations.  CMake runs this at build time.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cffi import FFI

CSRC = Path(__file__).resolve().parents[1]

# In the order of their dependence.
HEADERS = (
    "segment/layout/trunk_layout.h",
    "segment/layout/layout.h",
    "segment/layout/wire_layout.h",
    "segment/segment.h",
    "segment/trunk.h",
    "segment/rate.h",
    "segment/slot/counters.h",
    "segment/slot/machine.h",
    "segment/slot/wire.h",
    "segment/control/pkey.h",
    "segment/layout/rate_layout.h",
    "segment/control/rate.h",
    "segment/control/admit.h",
    "segment/layout/control_layout.h",
    "segment/control/control.h",
    "segment/control/event.h",
    "segment/control/share.h",
    "segment/control/quota.h",
    "segment/layout/resource_layout.h",
    "segment/resource/resource.h",
    "segment/ring/lines.h",
    "region/slot_life.h",
    "region/pool.h",
    "region/region.h",
    "abi/verbs_abi_enums.h",
    "binding/verbs_cdef.h",
    "abi/verbs_abi_types.h",
    "abi/verbs_abi_inline.h",
    "engine/core/nupa.h",
    "engine/device/batch.h",
    "engine/fault/fault.h",
    "engine/inject/inject.h",
    "perf/perf.h",
    "abi/rdma_abi.h",
    "binding/rdma_cdef.h",
    "netdev/netdev.h",
    "trunk/trunk.h",
    "wire/keeper.h",
    "packet/pcapng.h",
    "packet/opcodes.h",
    "packet/decode.h",
    "packet/records.h",
    "capture/expand/packet.h",
    "capture/watch.h",
    "capture/watch_index.h",
    "capture/inject_frame.h",
    "region/view/view.h",
    "region/group/reduce.h",
    "region/group/group.h",
    "cxl/hdm.h",
    "cxl/poison.h",
    "cxl/transact.h",
    "cxl/snoop.h",
    "cxl/cache.h",
    "cxl/rate.h",
)
_MARK = re.compile(r"^/\* cffi: (begin|end) \*/$", re.MULTILINE)
_INLINE = re.compile(r"\bstatic inline ([^{;]*\))\s*\{[^}]*\}")


class MarkError(Exception):
    """cffi marks of a header without a partner; the message names the file and line."""


def marked(text: str, name: str) -> str:
    """Return the parts of *text* between the marks, joined.  MarkError: a mark has no partner."""
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


def declarations(text: str) -> str:
    """Return *text* without macros, and its inline functions without bodies."""
    command = [*shlex.split(os.environ.get("CC", "cc")), "-E", "-P", "-x", "c", "-"]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    return _INLINE.sub(r"\1;", done.stdout)


def source(module: str, headers: Sequence[str]) -> FFI:
    """Return the FFI whose emit_c_code() writes *module* from the marked parts of *headers*."""
    ffi = FFI()
    texts = (marked((CSRC / header).read_text(), header) for header in headers)
    ffi.cdef(declarations("\n".join(texts)))
    ffi.set_source(module, "".join(f'#include "{header}"\n' for header in headers))
    return ffi


def engine_source() -> FFI:
    return source("nupa._engine", HEADERS)


def main(argv: Sequence[str], made: Callable[[], FFI] = engine_source) -> int:
    if len(argv) != 2:
        print(f"usage: {Path(argv[0]).name} OUT.c", file=sys.stderr)
        return 2
    made().emit_c_code(argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
