# SPDX-License-Identifier: BSD-3-Clause
"""Memory of others, used by load, store and atomics: whatever the link between.

Knows windows, requests for bytes and words, and in which order they are done; never queue pairs,
registers of CXL or packets.  Atomics, and what each window can do (Access), are here; import the
rest from where it is: `nupa.accel.ualink` (Pod), `nupa.accel.nvlink` (Node).
"""

from nupa.memory.access import Access, Atomic
from nupa.memory.atomic import (
    atomic_compare_swap,
    atomic_fetch_add,
    atomic_fetch_and,
    atomic_fetch_or,
    atomic_fetch_xor,
    atomic_load,
    atomic_store,
    atomic_swap,
)

__all__ = [
    "Access",
    "Atomic",
    "atomic_compare_swap",
    "atomic_fetch_add",
    "atomic_fetch_and",
    "atomic_fetch_or",
    "atomic_fetch_xor",
    "atomic_load",
    "atomic_store",
    "atomic_swap",
]
