# SPDX-License-Identifier: BSD-3-Clause
"""Mixtures of faults: reliable connections hide them, others lose what they may lose, and say so.

A failure prints each fault with its seed, which decides what is hit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from nupa.fabric import Fabric, Fault, Faulty
from nupa.verbs import enums as e
from tests.unit.fabric.fault_mixtures import BRIEF, LOSSY, SEEDS, mixtures, under, wait_judged
from tests.unit.fabric.fault_traffic import (
    MESSAGES_MAX,
    PROGRAMS,
    Op,
    Unreliable,
    ends,
    message_sizes,
    run_both,
)

Mixture = list[tuple[str, Fault]]


def kinds(mixture: Mixture) -> set[str]:
    return {fault.kind.value for _, fault in mixture}


def is_subsequence(part: Iterable[object], whole: Iterable[object]) -> bool:
    rest = iter(whole)
    return all(item in rest for item in part)


def counted(fabric: Fabric) -> Counter[str]:
    """Adds the counters of all hosts."""
    return sum((Counter(one) for one in fabric.hw_counters().values()), Counter())


@given(mixtures(LOSSY | BRIEF), PROGRAMS, PROGRAMS, SEEDS)
@settings(max_examples=60)
def test_a_reliable_connection_delivers_once_in_order_and_intact(
    mixture: Mixture, there: Sequence[Op], back: Sequence[Op], seed: int
) -> None:
    with ends() as (fabric, pair), under(fabric, mixture):
        run_both(pair, (there, back), seed)


@given(mixtures(), message_sizes(), SEEDS, st.sampled_from([e.IBV_QPT_UC, e.IBV_QPT_UD]))
@settings(max_examples=80)
def test_what_is_lost_otherwise_is_counted(
    mixture: Mixture, sizes: list[int], seed: int, qp_type: int
) -> None:
    with ends(qp_type) as (fabric, pair):
        traffic = Unreliable(pair, sizes, seed)
        with under(fabric, mixture) as faults:
            traffic.send()
            # The first of them judges all packets.
            wait_judged(faults[0], len(sizes))
        received = traffic.received()
        counters = counted(fabric)
    assert set(received) <= set(traffic.sent)
    if qp_type == e.IBV_QPT_UC or not kinds(mixture) & {"reorder", "duplicate"}:
        assert is_subsequence(received, traffic.sent)
    doublings = [fault.kind for _, fault in mixture].count("duplicate")
    assert max(Counter(received).values(), default=0) <= 1 + doublings
    lost = ("fault_dropped", "duplicate_request", "rx_no_receive")
    came = len(traffic.sent) + counters["fault_duplicated"]
    assert len(received) == came - sum(counters[name] for name in lost)


def lost_under(seed: int) -> list[bytes]:
    with ends(e.IBV_QPT_UD) as (fabric, pair):
        traffic = Unreliable(pair, [8] * MESSAGES_MAX, 0)
        with Faulty(fabric.port("host0"), "drop", probability=0.5, seed=seed) as faulty:
            traffic.send()
            wait_judged(faulty, MESSAGES_MAX)
        received = set(traffic.received())
    return [data for data in traffic.sent if data not in received]


def test_a_seed_repeats_a_failure() -> None:
    first = lost_under(20261)
    assert 0 < len(first) < MESSAGES_MAX
    assert lost_under(20261) == first
    assert lost_under(20262) != first
