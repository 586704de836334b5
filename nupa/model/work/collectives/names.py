# SPDX-License-Identifier: BSD-3-Clause
"""The names of collectives and algorithms, and the bus factors of nccl-tests."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from nupa.model.errors import ModelError

PROTOCOLS = ("LL", "LL128", "Simple")


class CollectiveOperation(NamedTuple):
    """A collective: what nccl-tests multiplies its algbw with, and the algorithms that do it.

    The first algorithm of *algorithms* serves where no library chooses.
    """

    bus_factor: Callable[[int], float]
    algorithms: tuple[str, ...]


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


def _whole(_ranks: int) -> float:
    return 1.0


_ANY = ("ring", "halving-doubling", "direct", "hierarchical")
_IN_NETWORK = ("in-network", "nvls", "ualink", "sharp")

#: nccl-tests, doc/PERFORMANCE.md.  *bytes* is the whole vector: of an all-gather what a rank has at
#: the end, of a reduce-scatter what it has at the start, of an all-to-all what it sends to all.
OPERATIONS: Mapping[str, CollectiveOperation] = {
    "all-reduce": CollectiveOperation(
        lambda ranks: 2 * _share(ranks),
        (*_ANY, "tree", "double-tree", *_IN_NETWORK, "nvls-tree", "collnet"),
    ),
    "all-gather": CollectiveOperation(_share, (*_ANY, "pat", *_IN_NETWORK)),
    "reduce-scatter": CollectiveOperation(_share, (*_ANY, "pat", *_IN_NETWORK)),
    "broadcast": CollectiveOperation(_whole, ("ring", "tree", "double-tree", *_IN_NETWORK)),
    "reduce": CollectiveOperation(_whole, ("ring", "tree", "double-tree", *_IN_NETWORK)),
    "all-to-all": CollectiveOperation(_share, ("direct", "ring", "hierarchical")),
    "send-recv": CollectiveOperation(_whole, ("direct",)),
    "barrier": CollectiveOperation(_whole, ("tree", "ring", "halving-doubling", *_IN_NETWORK)),
}

ALIASES: Mapping[str, str] = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "sendrecv": "send-recv",
}


def operation(name: str) -> str:
    """Returns a collective's name; nccl-tests' names are taken too.  ModelError: unknown."""
    found = name.replace("_", "-").lower()
    found = ALIASES.get(found.replace("-", ""), found)
    if found not in OPERATIONS:
        near = difflib.get_close_matches(found, OPERATIONS, 1)
        raise ModelError(
            f"no collective {name!r}"
            + (f": is {near[0]!r} meant?" if near else "")
            + f" There are {', '.join(OPERATIONS)}"
        )
    return found


def check_algorithm(name: str, of: str, known: Sequence[str] = ()) -> str:
    """Returns the name of an algorithm of a collective.  ModelError: it has none of that name.

    *known*: the library's, where they are not NCCL's.
    """
    known = known or OPERATIONS[of].algorithms
    if name not in known:
        raise ModelError(f"{of} has no algorithm {name!r}: it has {', '.join(known)}")
    return name


def check_protocol(name: str) -> str:
    """Returns a protocol of NCCL in its spelling.  ModelError: there is none of that name."""
    for known in PROTOCOLS:
        if known.lower() == name.lower():
            return known
    raise ModelError(f"no protocol {name!r}: there are {', '.join(PROTOCOLS)}")
