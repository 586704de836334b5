# SPDX-License-Identifier: BSD-3-Clause
"""Plans without phases of their own: requests that circulate, and steps of several parts.

Requests are a closed queueing network, by mean value analysis after Bard and Schweitzer: an
arriving request finds the queue that there is on average, less its own part of it.  All streams are
alike, so one equation in their rate remains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nupa.model.answer.answer import StageTime
from nupa.model.engine.message import message, serialisation_ns, wire_bytes
from nupa.model.network.energy import BITS, path_energy
from nupa.model.network.network import Network
from nupa.model.work.phase import Cycle, Plan, Station

_HALVINGS = 200


class PlanCost(NamedTuple):
    """The time and the energy of a plan on a network."""

    ns: float
    energy_pj: float = 0.0


#: Returns what a plan takes on a network.
Timer = Callable[[Network, Plan], PlanCost]


class StationDemand(NamedTuple):
    """The demand of a request at a station: *ns* a visit; see Station."""

    name: str
    ns: float
    visits: float = 1.0
    among: int = 1
    streams: int = 1
    wire: str = ""


def _longest(demands: Sequence[StationDemand], each: list[float]) -> list[float]:
    """Returns the waits, but of one wire only the longest."""
    most: dict[str, int] = {}
    for index, demand in enumerate(demands):
        if demand.wire and each[index] > each[most.setdefault(demand.wire, index)]:
            most[demand.wire] = index
    return [
        wait if not demand.wire or most[demand.wire] == index else 0.0
        for index, (demand, wait) in enumerate(zip(demands, each, strict=True))
    ]


def waits(alone_ns: float, depth: int, demands: Sequence[StationDemand]) -> list[float]:
    """Returns what a request waits at each station, beside the *alone_ns* that it takes alone.

    With the rate x of a stream, a request's visits v of d ns to a station of which it sees c
    requests for each of its stream, q = x v d (1 + c q) are there: so q = x v d / (1 - x v d c).
    The rate is that at which depth = x (alone + waits); both sides are monotonic, so halving
    the interval finds it.
    """
    seen = [(each.streams - 1 / depth) / each.among for each in demands]
    busy = [each.visits * each.ns for each in demands]

    def all_waits(rate: float) -> list[float]:
        each = [d * c * rate * d / (1 - rate * d * c) for d, c in zip(busy, seen, strict=True)]
        return _longest(demands, each)

    low = 0.0
    high = min(
        [depth / alone_ns, *(1 / (d * c) for d, c in zip(busy, seen, strict=True) if d * c > 0)]
    )
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        if rate in (low, high):
            break
        full = any(rate * d * c >= 1 for d, c in zip(busy, seen, strict=True))
        if full or rate * (alone_ns + sum(all_waits(rate))) > depth:
            high = rate
        else:
            low = rate
    return all_waits(low)


def demand(network: Network, station: Station) -> StationDemand:
    """Returns a station's demand in ns, with the time of its bytes on a port."""
    ns = station.ns
    if station.level is not None:
        base = network.levels[network.base(station.level)]
        ns += serialisation_ns(base.profile, station.bytes) / (station.ports * base.ways)
    return StationDemand(
        station.name, ns, station.visits, station.among, station.streams, station.wire
    )


def cycle_stages(cycle: Cycle) -> tuple[StageTime, ...]:
    """Returns the stages of the requests of a place in a queue: alone, and their waits."""
    total: dict[str, float] = {}

    def add(name: str, ns: float) -> None:
        if ns:
            total[name] = total.get(name, 0.0) + ns

    for each in cycle.sent:
        path = cycle.network.level_path(each.phase.level)
        for stage in message(path, each.phase.operation, each.phase.bytes):
            add(stage.name, stage.ns * each.share * each.phase.steps)
    for spent in cycle.spent:
        add(spent.name, spent.ns)
    demands = [demand(cycle.network, station) for station in cycle.stations]
    alone = sum(total.values())
    for one, wait in zip(demands, waits(alone, cycle.depth, demands), strict=True):
        add(f"wait: {one.name}", wait)
    return tuple(StageTime(name, ns * cycle.loops) for name, ns in total.items())


def cycle_energy_pj(cycle: Cycle) -> float:
    """Returns the energy of all messages of all requests, on their way."""
    total = 0.0
    for sent in cycle.sent:
        path = cycle.network.level_path(sent.phase.level)
        size = wire_bytes(path.profile, sent.phase.bytes, sent.phase.operation)
        total += size * BITS * path_energy(path).total * sent.share * sent.copies
    return total * cycle.streams * cycle.depth * cycle.loops


def parts_stages(plan: Plan, timer: Timer) -> tuple[tuple[StageTime, ...], float]:
    """Returns a stage for each part and for the pipeline's bubble, and the energy in pJ.

    A part's time is what is left of it beside the computation that hides it.  All groups of ranks
    have the energy of the part's group.
    """
    found: dict[str, float] = {}
    piped = energy = 0.0
    for part in plan.parts:
        cost = PlanCost(0.0)
        if part.plan is not None and part.network is not None:
            cost = timer(part.network, part.plan)
            energy += cost.energy_pj * part.times * plan.ranks / part.network.endpoints
        ns = max(0.0, (part.ns + cost.ns) * part.times - part.hidden_ns)
        piped += ns if part.piped else 0.0
        found[part.name] = found.get(part.name, 0.0) + ns
    found["pipeline bubble"] = plan.bubble * piped
    return tuple(StageTime(name, ns) for name, ns in found.items() if ns), energy
