# SPDX-License-Identifier: BSD-3-Clause
"""Predicts what a program, a collective or a storage cluster takes on another fabric.

Knows profiles, networks, work and three engines; nothing below knows it.  A prediction takes a
work and a network, and returns an Answer, which explains itself:

    import nupa.model
    answer = nupa.model.predict("allreduce:1G", "nvlink4", ranks=8)

`predict`, `compare`, `difference` and `sweep` are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nupa.model.study.compare import compare as compare
    from nupa.model.study.difference import difference as difference
    from nupa.model.study.question import predict as predict
    from nupa.model.study.sweep import sweep as sweep

_MODULES = {
    "predict": "question",
    "compare": "compare",
    "difference": "difference",
    "sweep": "sweep",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.study.{_MODULES[name]}"), name)
