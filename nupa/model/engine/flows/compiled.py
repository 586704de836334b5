# SPDX-License-Identifier: BSD-3-Clause
"""The flow engine in C (csrc/model/flows.h), for prepared operations."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from typing import Any

from nupa.model.engine.prepared import OperationTimes, Prepared
from nupa.model.errors import ModelError

_NONE = 0xFFFFFFFF
_IN_TURN = 2  # enum nupa_model_flow_cause


def _module() -> tuple[Any, Any] | None:
    try:
        from nupa._model import ffi, lib
    except ImportError:
        return None
    return (ffi, lib) if hasattr(lib, "nupa_model_flows_run") else None


def is_built() -> bool:
    """Returns whether the engine in C is here."""
    return _module() is not None


def run(made: Prepared) -> OperationTimes:
    """Runs the operations.  ModelError: the engine is not built, or there is no memory."""
    module = _module()
    if module is None:
        raise ModelError("the flow engine in C is not built here: `make build`")
    ffi, lib = module
    keep: list[Any] = []

    def column(kind: str, code: str, values: Iterable[float]) -> Any:
        found = array(code, values) or array(code, [0])
        keep.append(found)
        return ffi.from_buffer(f"{kind}[]", found)

    def words(values: Iterable[int]) -> Any:
        return column("uint32_t", "I", values)

    def reals(values: Iterable[float]) -> Any:
        return column("double", "d", values)

    numbers: dict[Hashable, int] = {}
    uses = [numbers.setdefault(r, len(numbers)) for each in made.classes for r in each.uses]
    resources = list(numbers)
    count = len(made.operations)
    threads: dict[tuple[int, int], int] = {}
    lanes = [threads.setdefault((each.rank, each.lane), len(threads)) for each in made.operations]
    work = ffi.new(
        "struct nupa_model_flow_work *",
        {
            "operations": count,
            "classes": len(made.classes),
            "resources": len(resources),
            "lanes": len(threads),
            "connections": max(made.connection_of, default=-1) + 1,
            "lane": words(lanes),
            "class_of": words(_NONE if each < 0 else each for each in made.class_of),
            "connection": words(_NONE if each < 0 else each for each in made.connection_of),
            "bytes": reals(each.size for each in made.known),
            "before_ns": reals(each.before for each in made.known),
            "after_ns": reals(each.after for each in made.known),
            "busy_ns": reals(each.busy for each in made.known),
            "after_start": words(_starts(len(each.after) for each in made.operations)),
            "after": words(earlier for each in made.operations for earlier in each.after),
            "limit": reals(each.limit for each in made.classes),
            "use_start": words(_starts(len(each.uses) for each in made.classes)),
            "use": words(uses),
            "part": reals(part for each in made.classes for part in each.uses.values()),
            "capacity": reals(made.routes.capacity[each] for each in resources),
        },
    )
    ready, ends = (array("d", bytes(8 * max(1, count))) for _ in range(2))
    cause, bound = (array("I", bytes(4 * max(1, count))) for _ in range(2))
    why = bytearray(max(1, count))
    result = ffi.new(
        "struct nupa_model_flow_result *",
        {
            "ready_ns": ffi.from_buffer("double[]", ready),
            "end_ns": ffi.from_buffer("double[]", ends),
            "cause": ffi.from_buffer("uint32_t[]", cause),
            "bound": ffi.from_buffer("uint32_t[]", bound),
            "why": ffi.from_buffer("uint8_t[]", why),
        },
    )
    rc = lib.nupa_model_flows_run(work, result)
    if rc == -2:
        raise ModelError(
            f"{count} operations: a size, time or rate is negative, infinite or no number"
        )
    if rc < 0:
        raise ModelError(f"no memory for {count} operations")
    return OperationTimes(
        list(ready[:count]),
        list(ends[:count]),
        [-1 if each == _NONE else each for each in cause[:count]],
        [each == _IN_TURN for each in why[:count]],
        [None if each == _NONE else resources[each] for each in bound[:count]],
        result.received_bytes,
    )


def _starts(lengths: Iterable[int]) -> Iterable[int]:
    at = 0
    yield at
    for length in lengths:
        at += length
        yield at
