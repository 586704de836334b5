# SPDX-License-Identifier: BSD-3-Clause
"""Movers: the ways of moving bulk data from one attachment to another."""

from __future__ import annotations

from enum import IntEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class Mover(IntEnum):
    """A way of moving bulk data, best first: `enum nupa_mover`.  The ring carries small payloads.

    >>> str(Mover.CMA), Mover.parse("relay")
    ('cma', <Mover.RELAY: 5>)
    """

    what: str  #: in one line

    LOCAL = 1, "both ends in one process: memcpy"
    POOL = 2, "memory of the fabric: load and store"
    SHARED = 3, "private memory that its owner shares in place: load and store"
    CMA = 4, "process_vm_readv, process_vm_writev: one copy, by the kernel"
    RELAY = 5, "through the channel: the target's engine copies"

    def __new__(cls, value: int, what: str) -> Self:
        mover = int.__new__(cls, value)
        mover._value_ = value
        mover.what = what
        return mover

    def __str__(self) -> str:
        """Returns the name that NUPA_MOVER and --mover take."""
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the mover of that name.  LocalError lists the names."""
        for mover in cls:
            if text == str(mover):
                return mover
        # Imported here: help is printed where the engine does not load, too.
        import errno

        from nupa.base.errors import LocalError

        known = ", ".join(map(str, cls))
        raise LocalError(f"there is no mover {text!r}: choose one of {known}", errno.EINVAL)


#: Movers that two processes can be told to use.
BETWEEN_PROCESSES = (Mover.POOL, Mover.SHARED, Mover.CMA, Mover.RELAY)
