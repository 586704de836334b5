# SPDX-License-Identifier: BSD-3-Clause
"""Attributes that are fields of an object's C structure, `_c`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar, overload

from nupa._engine import ffi
from nupa.verbs.base import PyverbsObject, closed

Read = TypeVar("Read")
Written = TypeVar("Written")
Object = TypeVar("Object", bound=PyverbsObject)

if TYPE_CHECKING:

    class Attribute(Generic[Read, Written]):
        """A property, with the types of what is read and of what is assigned."""

        def __init__(
            self, read: Callable[[Any], Read], write: Callable[[Any, Written], None] | None = None
        ) -> None: ...
        @overload
        def __get__(self, obj: None, owner: type) -> Self: ...
        @overload
        def __get__(self, obj: object, owner: type) -> Read: ...
        def __get__(self, obj: object, owner: type) -> Self | Read: ...
        def __set__(self, obj: object, value: Written) -> None: ...

else:
    Attribute = property  # reading one costs no more than reading the C field


def Field(path: str, names: Mapping[int, int] | None = None) -> Attribute[int, int]:  # noqa: N802
    """Makes an integer in C.  Assigning a value that does not fit raises OverflowError."""
    owner, _, leaf = f"_c.{path}".rpartition(".")
    struct = attrgetter(owner)

    def write(obj: Any, value: int) -> None:
        setattr(struct(obj), leaf, value)

    return Attribute(_reader(path, names), write)


def ReadOnly(  # noqa: N802
    path: str, names: Mapping[int, int] | None = None
) -> Attribute[int, Never]:
    """Makes an integer in C that only the engine writes."""
    return Attribute(_reader(path, names))


def WhileOpen(name: str) -> Attribute[int, Never]:  # noqa: N802
    """Makes an integer in C that only an object that is not closed has."""
    get = attrgetter(name)
    return Attribute(lambda obj: get(obj._c or closed(obj)))


def _reader(path: str, names: Mapping[int, int] | None) -> Callable[[Any], int]:
    get = attrgetter(f"_c.{path}")
    if names is None:
        return get

    def named(obj: Any) -> int:
        value = get(obj)
        return names.get(value, value)

    return named


def pointer_of(obj: PyverbsObject) -> Any:
    return obj._c or closed(obj)


def link(
    name: str, pointer: Callable[[Object], Any] = pointer_of
) -> Attribute[Object | None, Object | None]:
    """Makes an object whose pointer is the field *name* in C; the attributes keep it alive."""
    kept = f"_{name}"

    def write(obj: Any, value: Object | None) -> None:
        setattr(obj._c, name, ffi.NULL if value is None else pointer(value))
        setattr(obj, kept, value)

    return Attribute(lambda obj: getattr(obj, kept, None), write)


def table(rows: Mapping[str, object], width: int = 22, indent: str = "") -> str:
    """Formats lines of `label: value`, as pyverbs prints its objects."""
    return "".join(f"{indent}{label:{width}}: {value!s:<20}\n" for label, value in rows.items())
