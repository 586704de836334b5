# SPDX-License-Identifier: BSD-3-Clause
"""Collective operations of processes on a fabric: all-reduce, reduce-scatter, all-gather,
broadcast, barrier, on NumPy arrays.

Knows ranks, algorithms, and ways to move bytes between ranks (verbs, windows, groups); never how a
fabric or a queue pair works.  `Communicator` is the way in.
"""

from nupa.collectives.communicator import Communicator
from nupa.collectives.rank import RankError

__all__ = ["Communicator", "RankError"]
