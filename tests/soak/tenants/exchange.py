# SPDX-License-Identifier: BSD-3-Clause
"""One exchange between two hosts, and the verdict on it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from .host import SoakHost

KINDS = ("write", "read", "send")
_FULL = 0x8000
_SUCCESS = "IBV_WC_SUCCESS"

#: The P_Key table of a host, by its name.
Tables = Callable[[str], list[int]]


class Verdict(NamedTuple):
    """*outcome*: inside, across or changing; *wrong*: why the exchange should not have ended so."""

    outcome: str
    status: str
    wrong: str | None


def matches(a: int, b: int) -> bool:
    """Returns whether two P_Keys match (IBTA 10.9.3): one partition, not both limited."""
    return a & ~_FULL != 0 and a & ~_FULL == b & ~_FULL and bool((a | b) & _FULL)


def _entry(table: list[int], rng: Random) -> int:
    """Returns the index of a valid entry, or 0 of a table that has none."""
    return rng.choice([index for index, pkey in enumerate(table) if pkey] or [0])


def _at(table: list[int], index: int) -> int:
    return table[index] if index < len(table) else 0


def exchange(a: SoakHost, b: SoakHost, tables: Tables, rng: Random) -> Verdict:
    """Lets *a* execute one request on *b*, by random entries of their tables."""
    done = a.changes_done(), b.changes_done()
    table_a, table_b = tables(a.name), tables(b.name)
    at_a, at_b = _entry(table_a, rng), _entry(table_b, rng)
    shared = matches(_at(table_a, at_a), _at(table_b, at_b))
    if not shared and rng.random() < 0.7:  # more of those that may pass
        pairs = [
            (i, j)
            for i, key in enumerate(table_a)
            for j, other in enumerate(table_b)
            if matches(key, other)
        ]
        if pairs:
            (at_a, at_b), shared = rng.choice(pairs), True
    kind = rng.choice(KINDS)
    status, target, problem = _carry_out(a, b, kind, (at_a, at_b), rng)
    steady = done == (a.changes_begun(), b.changes_begun())
    outcome = ("inside" if shared else "across") if steady else "changing"
    what = f"{kind} from {a.name}[{at_a}] to {b.name}[{at_b}]: {status}"
    if problem is not None:
        return Verdict(outcome, status, f"{what}, {outcome}: {problem}")
    if steady and not shared and target != "old":
        return Verdict(outcome, status, f"{what}, across partitions: the target is {target}")
    if steady and (status == _SUCCESS) != shared:
        return Verdict(outcome, status, f"{what}, {outcome} a partition")
    return Verdict(outcome, status, None)


def _carry_out(
    a: SoakHost, b: SoakHost, kind: str, at: tuple[int, int], rng: Random
) -> tuple[str, str, str | None]:
    """Returns the status, the state of the target's memory, and what is wrong with others."""
    own_a, old_a, own_b, old_b = (rng.getrandbits(48) for _ in range(4))
    a.ask("fill", own=own_a, got=old_a)
    b.ask("fill", own=own_b, got=old_b)
    end_a, end_b = a.ask("open"), b.ask("open")
    try:
        refused = b.ask("connect", peer=end_a["address"], pkey_index=at[1]).get("refused")
        if refused is None and kind == "send":
            b.ask("receive")
        refused = a.ask("connect", peer=end_b["address"], pkey_index=at[0]).get("refused", refused)
        if refused is None:
            status = a.ask("post", kind=kind, at=end_b["at"], rkey=end_b["rkey"])["status"]
        else:
            status = f"errno {refused}"
    finally:
        a.ask("close")
        b.ask("close")
    seen_a = a.ask("check", own=own_a, old=old_a, new=own_b)
    seen_b = b.ask("check", own=own_b, old=old_b, new=own_a)
    target, other = (seen_a, seen_b) if kind == "read" else (seen_b, seen_a)
    # A request may be executed although its requester does not learn of it.
    allowed = ("new",) if status == _SUCCESS else ("old", "partly new", "new")
    problem = None
    if not (seen_a["kept"] and seen_b["kept"]):
        problem = "memory that is no target has changed"
    elif other["got"] != "old":
        problem = f"memory that is no target is {other['got']}"
    elif target["got"] not in allowed:
        problem = f"the target is {target['got']}"
    return status, target["got"], problem
