# SPDX-License-Identifier: BSD-3-Clause
"""The base of verbs objects: a C object, a parent, and an orderly close.

An object keeps its parents alive.  A parent has weak references to its children; close() closes
them first, in the order of their rank.  Closing twice does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, ClassVar, NoReturn, TypeVar
from weakref import WeakSet

from nupa._engine import ffi
from nupa.base.closing import Closing
from nupa.verbs.base.errors import PyverbsRDMAError, PyverbsUserError, check

T = TypeVar("T")


class PyverbsObject:
    """The base of all; its logger is named after the class."""

    __slots__ = ()
    _c: Any = None

    @property
    def logger(self) -> logging.Logger:
        return logging.getLogger(type(self).__name__)

    def set_log_level(self, val: int | str) -> None:
        self.logger.setLevel(val)


class PyverbsValue(PyverbsObject, Closing):
    """The base of objects that live in this process alone: closing them is allowed, not needed."""

    __slots__ = ()

    def close(self) -> None:
        """Does nothing: its memory goes with the object."""


class PyverbsCM(PyverbsObject, Closing):
    """The base of objects that have to be closed: context managers, closed when collected, too."""

    # The order of closing: in C, users go before the objects that they use.
    RANK_QP, RANK_AH, RANK_MW, RANK_MR, RANK_SRQ, RANK_CQ, RANK_CHANNEL, RANK_PD = range(8)
    _rank: ClassVar[int] = RANK_QP
    _children: WeakSet[PyverbsCM] | None = None
    _n_children = 0
    _adopters: tuple[PyverbsCM, ...] = ()

    def __del__(self) -> None:
        if self._n_children:
            # The collector of a cycle may take the parent first, and clears its weak references:
            # the parent is closed after the last of its children.
            _late.append(self)
        else:
            self.close()

    def close(self) -> None:
        """Closes the children, then the object itself.  PyverbsRDMAError if C refuses."""
        if self._c is None:
            return
        self._close_children()
        check(self._destroy(self._c), f"Failed to close {type(self).__name__}")
        self._c = None
        self._forget()
        for parent in self._adopters:
            parent._n_children -= 1
        self._adopters = ()
        ready = [obj for obj in _late if not obj._n_children]
        _late[:] = [obj for obj in _late if obj._n_children]  # before close() comes here again
        for parent in ready:
            parent.close()

    def _destroy(self, c: Any) -> int:
        """Destroys the C object.  Returns an errno, or -1 with errno set, if C refuses."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Drops references to the parents, after the C object is gone."""

    def _adopt(self, child: PyverbsCM) -> None:
        if self._children is None:
            self._children = WeakSet()
        self._children.add(child)
        self._n_children += 1
        child._adopters += (self,)

    def _disown(self, child: PyverbsCM) -> None:
        if self._children is not None and child in self._children:
            self._children.discard(child)
            self._n_children -= 1
            child._adopters = tuple(parent for parent in child._adopters if parent is not self)

    def _close_children(self) -> None:
        if self._children:
            for child in sorted(self._children, key=lambda child: child._rank):
                child.close()


#: Parents that were collected before their children.
_late: list[PyverbsCM] = []


def closed(obj: PyverbsObject) -> NoReturn:
    """Raises PyverbsUserError: the object has no C object any more."""
    raise PyverbsUserError(
        f"This {type(obj).__name__} is closed: closing an object closes what was made from it"
    )


def expect(value: object, kind: type[T], argument: str) -> T:
    """Returns *value* if it is a *kind*.  TypeError, in pyverbs' words, if not."""
    if not isinstance(value, kind):
        raise TypeError(
            f"Argument '{argument}' has incorrect type (expected "
            f"{kind.__module__}.{kind.__name__}, got {type(value).__name__})"
        )
    return value


def address_of(c: Any) -> int:
    """Returns the address of a C object, by which events find its Python object."""
    return int(ffi.cast("uintptr_t", c))


def inc_rkey(rkey: int) -> int:
    """Increments the variable part (8 bits) of a key, as ibv_inc_rkey."""
    return (rkey & 0xFFFFFF00) | ((rkey + 1) & 0xFF)


def PyverbsRDMAErrno(msg: str) -> PyverbsRDMAError:  # noqa: N802
    """Returns a PyverbsRDMAError with the errno of the last verb."""
    return PyverbsRDMAError(msg, ffi.errno)


def close_weakrefs(iterables: Iterable[Iterable[PyverbsCM] | None]) -> None:
    """Closes all objects in all *iterables*."""
    for iterable in iterables:
        for item in list(iterable or ()):
            item.close()
