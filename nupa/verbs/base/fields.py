# SPDX-License-Identifier: BSD-3-Clause
"""Attributes that are fields of an object's C structure, `_c`."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, overload

if TYPE_CHECKING:

    class Field:
        """An integer in C.  Assigning a value that does not fit raises OverflowError."""

        def __init__(self, path: str, names: Mapping[int, int] | None = None) -> None: ...
        @overload
        def __get__(self, obj: None, owner: type) -> Self: ...
        @overload
        def __get__(self, obj: object, owner: type) -> int: ...
        def __get__(self, obj: object, owner: type) -> Self | int: ...
        def __set__(self, obj: object, value: int) -> None: ...

    class ReadOnly:
        """An integer in C that only the engine writes."""

        def __init__(self, path: str, names: Mapping[int, int] | None = None) -> None: ...
        @overload
        def __get__(self, obj: None, owner: type) -> Self: ...
        @overload
        def __get__(self, obj: object, owner: type) -> int: ...
        def __get__(self, obj: object, owner: type) -> Self | int: ...

else:
    # Plain properties: reading one costs no more than reading the C field.

    def Field(path: str, names: Mapping[int, int] | None = None) -> property:  # noqa: N802
        owner, _, leaf = f"_c.{path}".rpartition(".")
        struct = attrgetter(owner)

        def assign(self: Any, value: int) -> None:
            setattr(struct(self), leaf, value)

        return ReadOnly(path, names).setter(assign)

    def ReadOnly(path: str, names: Mapping[int, int] | None = None) -> property:  # noqa: N802
        get = attrgetter(f"_c.{path}")
        if names is None:
            return property(get)

        def named(self: Any) -> int:
            value = get(self)
            return names.get(value, value)

        return property(named)


def table(rows: Mapping[str, object], width: int = 22) -> str:
    """Formats lines of `label: value`, as pyverbs prints its objects."""
    return "".join(f"{label:{width}}: {value!s:<20}\n" for label, value in rows.items())
