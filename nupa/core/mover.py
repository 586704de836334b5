# SPDX-License-Identifier: BSD-3-Clause
"""Movers: the ways in which bulk goes from one attachment to another."""

from __future__ import annotations

from enum import IntEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class Mover(IntEnum):
    """How bulk moves, best first: `enum nupa_mover`.  Small payloads travel in the ring itself.

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
        """As NUPA_MOVER and --mover have it."""
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Self:
        """The mover of that name.  LocalError says which there are."""
        for mover in cls:
            if text == str(mover):
                return mover
        # Here: a command line is read, and its help printed, also where the engine does not load.
        import errno

        from nupa.base.errors import LocalError

        known = ", ".join(map(str, cls))
        raise LocalError(f"there is no mover {text!r}: choose one of {known}", errno.EINVAL)


#: What two processes can be told to use.
BETWEEN_PROCESSES = (Mover.POOL, Mover.SHARED, Mover.CMA, Mover.RELAY)
