# SPDX-License-Identifier: BSD-3-Clause
"""Barriers and stores for registers of a device, by pyverbs' names.

This device has no registers.  The stores go to memory, where whoever reads it sees them in order.
"""

from nupa.verbs.mem_alloc import writebe32, writebe64

__all__ = [
    "mmio_write32_as_be",
    "mmio_write64_as_be",
    "udma_from_dev_barrier",
    "udma_to_dev_barrier",
]


def mmio_write32_as_be(addr: int, val: int) -> None:
    writebe32(addr, val)


def mmio_write64_as_be(addr: int, val: int) -> None:
    writebe64(addr, val)


def udma_to_dev_barrier() -> None:
    """Nothing: the interpreter's lock has ordered what was stored before."""


def udma_from_dev_barrier() -> None:
    """Nothing: the interpreter's lock has ordered what is loaded after."""
