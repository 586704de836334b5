# SPDX-License-Identifier: BSD-3-Clause
"""Writes the C source of `nupa._model` from the headers of the performance model.

    build_model.py OUT.c

As build_engine.py does for `nupa._engine`, whose marks and preprocessing it uses.
"""

from __future__ import annotations

import sys

from build_engine import CSRC, declarations, marked
from cffi import FFI

HEADERS = ("model/packets.h", "model/flows.h")


def model_source() -> FFI:
    """Return the FFI whose emit_c_code() writes the module."""
    ffi = FFI()
    texts = (marked((CSRC / header).read_text(), header) for header in HEADERS)
    ffi.cdef(declarations("\n".join(texts)))
    ffi.set_source("nupa._model", "".join(f'#include "{header}"\n' for header in HEADERS))
    return ffi


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print("usage: build_model.py OUT.c", file=sys.stderr)
        return 2
    model_source().emit_c_code(argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
