# SPDX-License-Identifier: BSD-3-Clause
"""Max-min fair rates against an exact solver in fractions, and by what defines them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.model.engine.flows.fairness import FlowDemand, max_min


def _exact(capacity: list[int], flows: list[dict[int, int]]) -> list[Fraction]:
    """Fills link by link: the one with the least rate for its flows bounds them."""
    rates: dict[int, Fraction] = {}
    while len(rates) < len(flows):
        best: tuple[Fraction, list[int]] | None = None
        for link, size in enumerate(capacity):
            waiting = [f for f, uses in enumerate(flows) if link in uses and f not in rates]
            if not waiting:
                continue
            taken = sum((rates[f] * uses[link] for f, uses in enumerate(flows)
                         if link in uses and f in rates), Fraction(0))  # fmt: skip
            share = (size - taken) / sum(flows[f][link] for f in waiting)
            if best is None or share < best[0]:
                best = (share, waiting)
        assert best is not None
        for flow in best[1]:
            rates[flow] = best[0]
    return [rates[flow] for flow in range(len(flows))]


NETWORKS = st.integers(1, 6).flatmap(
    lambda links: st.tuples(
        st.lists(st.integers(1, 20), min_size=links, max_size=links),
        st.lists(
            st.dictionaries(
                st.integers(0, links - 1), st.integers(1, 4), min_size=1, max_size=links
            ),
            min_size=1,
            max_size=9,
        ),
    )
)


@given(NETWORKS)
def test_rates_are_those_of_an_exact_solver(
    network: tuple[list[int], list[dict[int, int]]],
) -> None:
    capacity, flows = network
    rates, _ = max_min(dict(enumerate(capacity)), [FlowDemand(uses) for uses in flows])
    assert rates == pytest.approx([float(rate) for rate in _exact(capacity, flows)], rel=1e-9)


@given(NETWORKS, st.lists(st.integers(1, 5), min_size=9, max_size=9))
def test_a_class_of_equal_flows_is_so_many_flows(
    network: tuple[list[int], list[dict[int, int]]], counts: list[int]
) -> None:
    capacity, flows = network
    links = dict(enumerate(capacity))
    classes, _ = max_min(links, [FlowDemand(f, n) for f, n in zip(flows, counts, strict=False)])
    single = [FlowDemand(f) for f, n in zip(flows, counts, strict=False) for _ in range(n)]
    rates, _ = max_min(links, single)
    expected = [rate for rate, n in zip(classes, counts, strict=False) for _ in range(n)]
    assert rates == pytest.approx(expected, rel=1e-9)


@given(NETWORKS, st.lists(st.floats(0.1, 30), min_size=9, max_size=9))
def test_each_flow_has_a_full_link_where_none_is_faster_or_its_own_limit(
    network: tuple[list[int], list[dict[int, int]]], limits: list[float]
) -> None:
    capacity, flows = network
    links = dict(enumerate(capacity))
    demands = [FlowDemand(f, 1, limit) for f, limit in zip(flows, limits, strict=False)]
    rates, bounds = max_min(links, demands)
    loads = [
        sum(rate * uses.get(link, 0) for rate, uses in zip(rates, flows, strict=True))
        for link in links
    ]
    for link, load in enumerate(loads):
        assert load <= capacity[link] * (1 + 1e-9), "no link is above its rate"
    for flow, (rate, bound) in enumerate(zip(rates, bounds, strict=True)):
        if bound is None:
            assert rate == limits[flow]
        else:
            assert isinstance(bound, int)
            assert loads[bound] == pytest.approx(capacity[bound])
            users = [r for r, uses in zip(rates, flows, strict=True) if bound in uses]
            assert rate == pytest.approx(max(users))


def test_a_dumbbell_shares_its_middle_link_alike() -> None:
    links = {"middle": 10.0} | {f"{side}{i}": 40.0 for side in "ab" for i in range(4)}
    demands = [FlowDemand({f"a{i}": 1, "middle": 1, f"b{i}": 1}) for i in range(4)]
    assert max_min(links, demands) == ([2.5] * 4, ["middle"] * 4)


def test_a_parking_lot_gives_the_long_flow_half_of_each_link() -> None:
    links = dict.fromkeys(range(3), 1.0)
    demands = [
        FlowDemand(dict.fromkeys(links, 1.0)),
        *(FlowDemand({index: 1.0}) for index in links),
    ]
    rates, _ = max_min(links, demands)
    assert rates == [0.5] * 4


def test_bertsekas_and_gallagers_example() -> None:
    # Data Networks, figure 6.12: unit links; sessions 2 to 4 share link 3-5, and 1 gets the rest.
    links = {"1-2": 1.0, "2-3": 1.0, "3-5": 1.0, "2-4": 1.0}
    demands = [
        FlowDemand({"2-3": 1}), FlowDemand({"1-2": 1, "2-3": 1, "3-5": 1}), FlowDemand({"3-5": 1}),
        FlowDemand({"3-5": 1}), FlowDemand({"2-4": 1}),
    ]  # fmt: skip
    rates, _ = max_min(links, demands)
    assert rates == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3, 1])
