# SPDX-License-Identifier: BSD-3-Clause
"""Shared memory, used by load, store and atomics over any link: pool, regions, windows.

Knows windows, requests for bytes and words, and their order; never queue pairs, registers of CXL or
packets.  Access (the operations of any window) and atomics are here.  Other modules are imported by
name: `nupa.memory.region` (Region), `nupa.memory.window` (Window), `nupa.memory.pool` (Pool).
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
