# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of MPI: the choice of an algorithm by size and ranks, its plan and its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.profile.profile import Profile
from nupa.model.work.collectives.choice import Choice
from nupa.model.work.collectives.rounds import ROUNDS, Round
from nupa.model.work.phase import Pattern, Phase, RankOperation

#: The table of a library that has rounds: rows are rules, "all-reduce 1 ring", the first that fits.
RULES = "choice"


def has_rounds(library: Profile) -> bool:
    """Returns whether a library exchanges messages in rounds, as MPI does."""
    return RULES in library.tables


def algorithms(operation: str) -> tuple[str, ...]:
    """Returns the algorithms of MPI libraries for a collective."""
    return tuple(ROUNDS[operation])


class Rule(NamedTuple):
    """An algorithm, and the bytes and ranks that it is taken for; 0: any."""

    algorithm: str
    most_bytes: float
    least_ranks: float
    power: float
    each: float

    def holds(self, size_bytes: int, ranks: int) -> bool:
        size = size_bytes / ranks if self.each else size_bytes
        return (
            (not self.most_bytes or size <= self.most_bytes)
            and ranks >= self.least_ranks
            and (not self.power or not ranks & (ranks - 1))
        )


def _rules(library: Profile, operation: str) -> Iterator[Rule]:
    table = library.tables[RULES]
    for name, cells in table.rows.items():
        of, _, algorithm = name.split()
        if of == operation:
            cell = dict(zip(table.columns, cells, strict=True))
            yield Rule(algorithm, cell["most"], cell["ranks"], cell["power"], cell["each"])


def choose(library: Profile, operation: str, size_bytes: int, ranks: int, asked: str) -> Choice:
    """Returns the library's choice, or the algorithm that was *asked*.

    ModelError: there is 1 rank, or the library has no such collective.
    """
    if ranks < 2:
        raise ModelError(f"{library.name}: {ranks} rank: a collective has 2 ranks or more")
    if asked:
        return Choice(asked, "", f"{asked} was asked for")
    for rule in _rules(library, operation):
        if rule.holds(size_bytes, ranks):
            limits = [
                f"up to {rule.most_bytes:g} B" + (" a rank" if rule.each else "")
                if rule.most_bytes
                else "",
                f"from {rule.least_ranks:g} ranks" if rule.least_ranks else "",
                "a power of two of ranks" if rule.power else "",
            ]
            why = ", ".join(filter(None, limits)) or "no earlier rule holds"
            return Choice(rule.algorithm, "", f"{library.name}'s rule: {why}")
    raise ModelError(f"{library.name} has no rule for {operation} of {size_bytes} B, {ranks} ranks")


def _level(network: Network, one: Round) -> int:
    """Returns the level that the farthest of the partners pass."""
    used = [index for index, level in enumerate(network.levels) if level.groups > 1]
    if one.partner in ("pair", "lower", "upper"):
        for index in used:
            if network.group_size(index) > one.distance:
                return index
    return used[-1]


def _apart(network: Network, one: Round) -> Iterator[Round]:
    """Yields rounds whose partners pass one level each: several distances cross several levels."""
    if one.times == 1 or one.same or one.partner != "pair":
        yield one
        return
    distance, last = one.distance, one.distance + one.times
    while distance < last:
        size = network.group_size(_level(network, one._replace(distance=distance)))
        until = min(last, max(size, distance + 1))
        yield one._replace(distance=distance, times=until - distance)
        distance = until


def _own_ns(library: Profile, network: Network, level: int, size: int, adds: bool) -> float:
    """Returns what a message takes beside the fabric's stages: MPI itself, and the sum.

    A fabric whose stages were measured with MPI has no more of the former.
    """
    profile = network.levels[level].profile
    own = 0.0 if "software" in profile.figures else library["software"]
    if "eager" not in profile.figures and size > library["eager"]:
        own += library["rendezvous"]
    return own + (size / library["add_rate"] * 1e9 if adds else 0.0)


def plan(
    library: Profile, network: Network, operation: str, algorithm: str, size: int
) -> Iterator[Phase]:
    """Yields the phases: one for the rounds that are alike."""
    ranks = network.endpoints
    for whole in ROUNDS[operation][algorithm](ranks, size):
        if whole.partner == "all":
            yield from _at_once(library, network, whole)
            continue
        for one in _apart(network, whole):
            level, of_round = _level(network, one), max(1, ceil(one.bytes))
            yield Phase(
                algorithm, "send", level, of_round, one.times, 1, "pairs",
                _own_ns(library, network, level, of_round, one.adds),
            )  # fmt: skip


def _at_once(library: Profile, network: Network, one: Round) -> Iterator[Phase]:
    """Yields messages to all others: a processor posts and matches one after the other."""
    size = max(1, ceil(one.bytes))
    for index, level in enumerate(network.levels):
        if level.groups == 1:
            continue
        inside = network.group_size(index - 1) if index else 1
        peers = network.group_size(index) - inside
        pattern: Pattern = "all-to-all"
        each = 1e9 / library["message_rate"] * (peers - 1)
        own = _own_ns(library, network, index, size, one.adds)
        yield Phase(one.partner, "send", index, size, 1, peers, pattern, own + each)


def _partner(one: Round, distance: int, rank: int, ranks: int) -> int | None:
    """Returns the rank to which a rank sends in a round; None: it has no partner."""
    ranks = one.among or ranks
    low, place = rank // distance, rank % (2 * distance)
    peers = {
        "shift": (rank + distance) % ranks,
        "pair": rank ^ distance,
        "spread": rank + distance if not place else ranks,
        "collect": rank - distance if place == distance else ranks,
        "lower": rank - distance if low == 1 else ranks,
        "upper": rank + distance if low == 0 else ranks,
        "all": (rank + distance) % ranks,
    }
    peer = peers[one.partner]
    return peer if peer < ranks and rank < ranks else None


def operations(ranks: int, rounds: Sequence[Round]) -> Iterator[RankOperation]:
    """Yields the messages.  A rank begins a round when it has sent and received the last one's."""
    last: list[tuple[int, ...]] = [()] * ranks
    index = 0
    for one in rounds:
        at_once = one.partner == "all"
        for turn in range(ranks - 1 if at_once else one.times):
            distance = one.distance + (0 if one.same else turn)
            now: list[tuple[int, ...]] = [()] * ranks
            senders = set()
            for rank in range(ranks):
                peer = _partner(one, distance, rank, ranks)
                if peer is None:
                    continue
                size = max(1, ceil(one.bytes))
                yield RankOperation(rank, peer, size, "send", last[rank])
                senders.add(rank)
                now[rank] += (index,)
                now[peer] += (index,)
                index += 1
            if not at_once:
                last = [
                    now[each] + (() if each in senders else last[each]) for each in range(ranks)
                ]
