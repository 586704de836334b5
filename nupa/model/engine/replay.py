# SPDX-License-Identifier: BSD-3-Clause
"""Answers for schedules: each operation in order, for nominal, best and worst figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nupa.model.answer.answer import Answer, StageTime, TimelineSpan
from nupa.model.engine.choice import SPANS_MAX, span_name
from nupa.model.engine.timeline import Timeline
from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.network.text import of_profile, parse
from nupa.model.work.schedule import Schedule


@dataclass(frozen=True)
class RankTime:
    """The part of one rank: its messages, its payload, its own computation, and its end."""

    label: str
    messages: int
    bytes: int
    computation_ns: float
    end_ns: float


@dataclass(frozen=True)
class Replay:
    """An answer, and each rank's part."""

    answer: Answer
    ranks: tuple[RankTime, ...]
    recorded_ns: float
    notes: tuple[str, ...]

    def shown(self) -> dict[str, Any]:
        """Returns it as `--json` prints it: times in ns."""
        return self.answer.shown() | {
            "recorded_ns": self.recorded_ns or None,
            "per_rank": [vars(rank) for rank in self.ranks],
            "notes": list(self.notes),
        }


def network_for(schedule: Schedule, text: str) -> Network:
    """Returns the network that *text* names, with an endpoint for each rank at least.

    `here` is this machine, by the mover that was recorded: a profile of `nupa model calibrate`.
    """
    ranks = max(schedule.ranks, 2)
    name = f"here-{schedule.mover or 'shared'}" if text == "here" else text
    if not name.startswith("here-"):
        return parse(name, ranks)
    try:
        return of_profile(name, ranks)
    except ModelError as error:
        raise ModelError(f"{error}; `nupa model calibrate` measures this machine") from error


def replay(
    schedule: Schedule,
    network: Network,
    tick: Callable[[int], None] = lambda _done: None,
    *,
    spans: bool = False,
) -> Replay:
    """Returns how long the operations take on *network*; *tick* is called with how many are done.

    *spans*: the answer has a timeline of the operations.

    ModelError: they wait for each other in a circle; the network has too few endpoints.
    """
    timeline = Timeline(schedule, network)
    timeline.run(tick)
    ends = []
    for case in ("best", "worst"):
        other = Timeline(schedule, network.at(case))
        other.run(tick)
        ends.append(other.end_ns)
    ranks = _ranks(timeline)
    answer = Answer(
        work=schedule.name,
        network=network.name,
        ranks=schedule.ranks,
        bytes=schedule.bytes,
        time_ns=timeline.end_ns,
        low_ns=min(ends[0], timeline.end_ns),
        high_ns=max(ends[1], timeline.end_ns),
        stages=_added(timeline),
        algorithm="as recorded",
        reason="the operations of the program, in its order",
        engine="timeline",
        engine_reason="each operation waits for what it waited for when it was recorded",
        warnings=tuple(_warnings(schedule, network)),
        messages=max(1, sum(rank.messages for rank in ranks)),
        spans=tuple(_spans(timeline)) if spans else (),
    )
    return Replay(answer, ranks, schedule.recorded_ns, schedule.notes)


def _added(timeline: Timeline) -> tuple[StageTime, ...]:
    total: dict[str, float] = {}
    for stage in timeline.critical():
        total[stage.name] = total.get(stage.name, 0.0) + stage.ns
    return tuple(StageTime(name, ns) for name, ns in total.items() if ns > 0)


def _spans(timeline: Timeline) -> Iterator[TimelineSpan]:
    for index, step in enumerate(timeline.steps[:SPANS_MAX]):
        start = timeline.start[index]
        end = max(timeline.seen[index], timeline.arrived[index])
        yield TimelineSpan(step.rank, span_name(step), start, end - start)


def _ranks(timeline: Timeline) -> tuple[RankTime, ...]:
    schedule = timeline.schedule
    messages = [0] * schedule.ranks
    size = [0] * schedule.ranks
    computation = [0.0] * schedule.ranks
    end = [0.0] * schedule.ranks
    for index, step in enumerate(timeline.steps):
        if step.peer == step.rank:
            computation[step.rank] += step.compute_ns
        else:
            messages[step.rank] += 1
            size[step.rank] += step.bytes
        end[step.rank] = max(end[step.rank], timeline.seen[index])
    return tuple(
        RankTime(schedule.label(rank), messages[rank], size[rank], computation[rank], end[rank])
        for rank in range(schedule.ranks)
    )


def _warnings(schedule: Schedule, network: Network) -> list[str]:
    """Returns what lies outside what the profiles were measured with, once for each kind."""
    profile = network.levels[0].profile
    kinds = {(step.operation, step.bytes) for step in schedule.steps if step.peer != step.rank}
    found: dict[str, None] = {}
    for operation, size_bytes in sorted(kinds):
        for warning in profile.envelope.outside(operation, size_bytes, schedule.ranks):
            found[f"{profile.name}: {warning}"] = None
    shown = list(found)
    return shown[:4] + ([f"{len(shown) - 4} more of this kind"] if len(shown) > 4 else [])
