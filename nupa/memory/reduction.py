# SPDX-License-Identifier: BSD-3-Clause
"""Element types and operators of reductions (csrc/region/group/reduce.h)."""

from __future__ import annotations

import errno
from typing import Any

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError

#: Element types by name.
TYPES: dict[str, int] = {
    "f16": lib.NUPA_REDUCE_F16,
    "bf16": lib.NUPA_REDUCE_BF16,
    "f32": lib.NUPA_REDUCE_F32,
    "f64": lib.NUPA_REDUCE_F64,
    "i32": lib.NUPA_REDUCE_I32,
    "u32": lib.NUPA_REDUCE_U32,
    "i64": lib.NUPA_REDUCE_I64,
    "u64": lib.NUPA_REDUCE_U64,
}
#: Operators by name; and, or and xor are for integers.
OPERATORS: dict[str, int] = {
    "add": lib.NUPA_REDUCE_ADD,
    "min": lib.NUPA_REDUCE_MIN,
    "max": lib.NUPA_REDUCE_MAX,
    "and": lib.NUPA_REDUCE_AND,
    "or": lib.NUPA_REDUCE_OR,
    "xor": lib.NUPA_REDUCE_XOR,
}
#: NumPy's names of the types; "bfloat16" is that of the package ml_dtypes.
OF_DTYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
}


def permits(type_: str, operator: str) -> bool:
    """Tells whether *operator* is one for elements of *type_*.  LocalError: no such name."""
    return bool(lib.nupa_reduce_permits(*numbers(type_, operator, allow=True)))


def bytes_of(type_: str) -> int:
    """Returns the bytes of an element.  LocalError: no such type."""
    return int(lib.nupa_reduce_bytes(_find("type", TYPES, type_)))


def numbers(type_: str, operator: str, *, allow: bool = False) -> tuple[int, int]:
    """Returns C's numbers.  LocalError: no such names, or (not *allow*) not for this type."""
    found = _find("type", TYPES, type_), _find("operator", OPERATORS, operator)
    if not allow and not lib.nupa_reduce_permits(*found):
        raise LocalError(
            f"{operator} of {type_}: and, or and xor are of integers; use add, min or max",
            errno.EINVAL,
        )
    return found


def reduce_into(into: Any, other: Any, type_: str, operator: str) -> None:
    """Sets each element of *into* to itself op that of *other*; both are contiguous buffers.

    The accumulator of f16 and bf16 is f32; the result is rounded.  LocalError: sizes that differ,
    or are not a multiple of the element's; ... as numbers().
    """
    found = numbers(type_, operator)
    target = ffi.from_buffer(into, require_writable=True)
    source = ffi.from_buffer(other)
    element = lib.nupa_reduce_bytes(found[0])
    if len(target) != len(source) or len(target) % element:
        raise LocalError(
            f"{operator} of {len(source)} bytes into {len(target)}: give as many of both, a "
            f"multiple of {element}",
            errno.EINVAL,
        )
    lib.nupa_reduce_into(target, source, len(target) // element, *found)


def _find(what: str, known: dict[str, int], name: str) -> int:
    if name not in known:
        raise LocalError(f"no {what} {name!r}: choose one of {', '.join(known)}", errno.EINVAL)
    return known[name]
