# SPDX-License-Identifier: BSD-3-Clause
"""The parts of one message's time, for engines that run single operations by the closed form."""

from __future__ import annotations

from typing import NamedTuple

from nupa.model.answer.answer import StageTime
from nupa.model.engine.message import message, one_way, serialisation_ns
from nupa.model.engine.moves import MeasuredMove, move_of
from nupa.model.network.network import Network
from nupa.model.network.path import Path
from nupa.model.work.phase import ANSWERED


class MessageCost(NamedTuple):
    """One message on an idle path, in ns.

    *post*: the program is busy.  *lead*: from its start until the data enters the first link, of
    the target if *answered* (a read).  *wire*: what the message takes of a port.  *flight*: from
    there until the data has arrived.  *tail*: until the program at the far end sees it.  *back*:
    from the arrival until the requester sees its completion, which may
    be earlier.
    """

    post: float
    lead: float
    wire: float
    flight: float
    tail: float
    back: float
    answered: bool
    stages: tuple[StageTime, ...]


class Costs:
    """Looks costs up by level, operation and size: a program repeats itself."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._found: dict[tuple[int, str, int], MessageCost] = {}
        self._of_pair: dict[tuple[int, int, str, int], MessageCost] = {}

    def of(self, rank: int, peer: int, operation: str, size_bytes: int) -> MessageCost:
        """Returns the cost of a message from endpoint *rank* to *peer*."""
        near = (rank, peer, operation, size_bytes)
        cost = self._of_pair.get(near)
        if cost is None:
            level = self._network.level_between(rank, peer)
            key = (level, operation, size_bytes)
            cost = self._found.get(key)
            if cost is None:
                path = self._network.level_path(level)
                cost = self._found[key] = _cost(path, operation, size_bytes)
            self._of_pair[near] = cost
        return cost


def _moved(move: MeasuredMove, stages: tuple[StageTime, ...], answered: bool) -> MessageCost:
    """Returns the cost of a measured move: the data may arrive before the post returns."""
    return MessageCost(
        post=move.post,
        lead=0.0,
        wire=move.stream,
        flight=move.whole,
        tail=0.0,
        back=0.0 if answered else move.post + move.back - move.whole,
        answered=answered,
        stages=stages,
    )


def _cost(path: Path, operation: str, size_bytes: int) -> MessageCost:
    profile = path.profile
    known = "atomic" if operation == "flush" else operation
    stages = message(path, known, size_bytes)
    answered = operation in ANSWERED
    move = move_of(profile, known, size_bytes)
    if move:
        return _moved(move, stages, answered)
    total = sum(stage.ns for stage in stages)
    rate = "read_rate" if answered and "read_rate" in profile.figures else "message_rate"
    wire = serialisation_ns(profile, size_bytes) / path.share
    limits = [wire, 1e9 / profile[rate] if rate in profile.figures else 0.0]
    for figure in ("flow_rate", "bus"):
        if figure in profile.figures:
            limits.append(size_bytes / profile[figure] * 1e9)
    tail = profile.get("write") + profile.get("completion") + profile.get("jitter")
    tail += profile.get("receive") if operation == "send" else 0.0
    ack = sum(stage.ns for stage in one_way(path, 0)) + profile.get("completion")
    post = lead = profile.get("post")
    if answered:
        lead = max(total - tail - wire - sum(s.ns for s in one_way(path, 0)), lead)
    return MessageCost(
        post=post,
        lead=lead,
        wire=max(limits),
        flight=total - tail - lead,
        tail=0.0 if answered else tail,
        back=tail if answered else ack,
        answered=answered,
        stages=stages,
    )
