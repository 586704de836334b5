# SPDX-License-Identifier: BSD-3-Clause
"""Arrays as collectives see them: bytes, an element type, and how they are split among ranks."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nupa.base.errors import LocalError
from nupa.memory import reduction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Octets = NDArray[np.uint8]
    Array = NDArray[Any]


def numpy() -> Any:
    """Returns the module.  LocalError: NumPy is not installed."""
    try:
        import numpy as module
    except ImportError as error:
        raise LocalError("collectives need NumPy: `pip install numpy`") from error
    return module


@dataclass(frozen=True)
class Elements:
    """A contiguous array: its bytes, and its element type by name and size."""

    octets: Octets
    type_: str
    each: int

    @property
    def count(self) -> int:
        return len(self.octets) // self.each

    def part(self, first: int, count: int) -> Elements:
        """Returns *count* elements from *first* on, of the same memory."""
        at = first * self.each
        return Elements(self.octets[at : at + count * self.each], self.type_, self.each)

    def split(self, parts: int) -> list[Elements]:
        """Returns equal parts; the first ones have an element more where they cannot be equal."""
        bounds = [self.count * i // parts for i in range(parts + 1)]
        return [self.part(a, b - a) for a, b in pairwise(bounds)]

    def like(self) -> Elements:
        """Returns as many elements of new memory."""
        return Elements(numpy().empty(len(self.octets), "u1"), self.type_, self.each)

    def take(self, other: Elements, operator: str) -> None:
        """Reduces *other* into this."""
        if len(self.octets):
            reduction.reduce_into(self.octets, other.octets, self.type_, operator)


def elements(array: Array, type_: str | None, *, writable: bool, what: str) -> Elements:
    """Returns the elements of a NumPy array.  *type_*: where the dtype does not tell (bf16).

    LocalError: not an array, not contiguous, read-only, or of another dtype.
    """
    np = numpy()
    if not isinstance(array, np.ndarray):
        raise LocalError(
            f"{what}: {type(array).__name__}: give a NumPy array (numpy.asarray)", errno.EINVAL
        )
    if not array.flags.c_contiguous:
        raise LocalError(
            f"{what}: the array is not contiguous: numpy.ascontiguousarray copies it", errno.EINVAL
        )
    if writable and not array.flags.writeable:
        raise LocalError(f"{what}: the array that takes the result is read-only", errno.EINVAL)
    name = type_ or _type_of(array.dtype)
    if name is None:
        raise LocalError(
            f"{what}: elements of {array.dtype}: use one of {', '.join(reduction.OF_DTYPES)}",
            errno.EINVAL,
        )
    each = reduction.bytes_of(name)
    if array.dtype.itemsize != each:
        raise LocalError(
            f"{what}: {name} has {each} bytes, {array.dtype} has {array.dtype.itemsize}",
            errno.EINVAL,
        )
    return Elements(array.reshape(-1).view(np.uint8), name, each)


@cache
def _type_of(dtype: np.dtype[Any]) -> str | None:
    """Returns the name of a type; NumPy takes microseconds for that of a dtype."""
    return reduction.OF_DTYPES.get(dtype.name) if dtype.isnative else None
