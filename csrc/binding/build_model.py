# SPDX-License-Identifier: BSD-3-Clause
"""Writes the C source of `nupa._model` from the headers of the performance model.

    build_model.py OUT.c

As build_engine.py does for `nupa._engine`, whose marks and preprocessing it uses.
"""

from __future__ import annotations

import sys

from build_engine import main, source
from cffi import FFI

HEADERS = ("model/packets.h", "model/flows.h")


def model_source() -> FFI:
    return source("nupa._model", HEADERS)


if __name__ == "__main__":
    sys.exit(main(sys.argv, model_source))
