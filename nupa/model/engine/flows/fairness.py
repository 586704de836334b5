# SPDX-License-Identifier: BSD-3-Clause
"""Max-min fair rates by progressive filling (Bertsekas, Gallager: Data Networks, 6.5.2).

All rates grow alike; where a resource is full, the flows over it keep their rate.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class FlowDemand(NamedTuple):
    """*flows* equal flows: which part of each flow's rate every resource carries.

    *limit* is the rate that one of them can use at most.
    """

    uses: Mapping[Hashable, float]
    flows: float = 1.0
    limit: float = float("inf")


def max_min(
    capacity: Mapping[Hashable, float], demands: Sequence[FlowDemand]
) -> tuple[list[float], list[Hashable]]:
    """Returns the rate of one flow of each demand, and the resource that bounds it.

    The resource is None where the demand's own limit bounds it.
    """
    users: dict[Hashable, list[int]] = {}
    weight: dict[Hashable, float] = {}
    for index, demand in enumerate(demands):
        for resource, part in demand.uses.items():
            users.setdefault(resource, []).append(index)
            weight[resource] = weight.get(resource, 0.0) + part * demand.flows
    free = {resource: float(capacity[resource]) for resource in users}
    waiting = {resource: len(found) for resource, found in users.items()}
    rates = [-1.0] * len(demands)
    bound: list[Hashable] = [None] * len(demands)
    # A level at which a resource is full only rises as flows over it are bounded elsewhere, so an
    # entry that is too low is put back when it is met.
    heap: list[tuple[float, int, Hashable]] = [
        (free[resource] / weight[resource], order, resource)
        for order, resource in enumerate(users)
        if weight[resource] > 0
    ]
    order = len(users)
    for index, demand in enumerate(demands):
        if demand.limit < float("inf") or not demand.uses:
            heap.append((demand.limit, order + index, (None, index)))
    heapify(heap)
    left = len(demands)
    filled = 0.0  # rates only grow: a lower level is rounding
    while heap and left:
        level, place, resource = heappop(heap)
        level = max(level, filled)
        if place >= order:
            index = place - order
            if rates[index] < 0:
                left -= 1
                filled = level
                _keep(demands, rates, index, level, free, weight, waiting)
            continue
        if weight[resource] <= 0:
            continue
        now = free[resource] / weight[resource]
        if now > level * (1 + 1e-12):
            heappush(heap, (now, place, resource))
            continue
        filled = level
        for index in users[resource]:
            if rates[index] < 0:
                bound[index] = resource
                left -= 1
                _keep(demands, rates, index, level, free, weight, waiting)
        weight[resource] = 0.0
    return [max(rate, 0.0) for rate in rates], bound


def _keep(
    demands: Sequence[FlowDemand],
    rates: list[float],
    index: int,
    rate: float,
    free: dict[Hashable, float],
    weight: dict[Hashable, float],
    waiting: dict[Hashable, int],
) -> None:
    """Takes the rate of a demand's flows from the resources that they use."""
    rates[index] = rate
    demand = demands[index]
    for resource, part in demand.uses.items():
        free[resource] = max(0.0, free[resource] - rate * part * demand.flows)
        waiting[resource] -= 1
        weight[resource] = weight[resource] - part * demand.flows if waiting[resource] else 0.0
