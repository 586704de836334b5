# SPDX-License-Identifier: BSD-3-Clause
"""Names from files, other processes and shared memory, made fit for a terminal."""

from __future__ import annotations


def printable(name: str) -> str:
    """Replaces control characters.

    >>> printable("eth0\\x1b[2J")
    'eth0?[2J'
    """
    return "".join(c if c.isprintable() else "?" for c in name)
