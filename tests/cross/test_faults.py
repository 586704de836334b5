# SPDX-License-Identifier: BSD-3-Clause
"""Mixtures of faults between processes: nothing is lost, doubled or damaged on an RC."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from nupa.fabric import Fabric, Fault
from tests.unit.fault_mixtures import mixtures, under

from .conftest import Pair
from .node import pattern

MakePair = Callable[..., Pair]
Mixture = list[tuple[str, Fault]]

#: What is lost is sent again after 17 ms (4.096 us * 2^12), seven times.
HASTY = {"timeout": 12, "retry_cnt": 7}
#: One folder of fabrics serves all examples of a test.
FEW = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
COUNT = 150


@pytest.mark.parametrize("length", [64, 20_000])
@given(mixture=mixtures())
@FEW
def test_messages_arrive_once_in_order_and_intact(
    fabric: Fabric, make_pair: MakePair, length: int, mixture: Mixture
) -> None:
    pair = make_pair(path=HASTY)
    with under(fabric, mixture):
        pair.b.prepare_stream_in(length)
        receiving = pair.b.begin("stream_in", length, COUNT)
        assert pair.a.stream_out(length, COUNT) == (COUNT, "SUCCESS")
        assert receiving.result() == (COUNT, "SUCCESS")


@given(mixture=mixtures())
@FEW
def test_atomics_are_executed_once(fabric: Fabric, make_pair: MakePair, mixture: Mixture) -> None:
    pair = make_pair(path=HASTY)
    with under(fabric, mixture):
        # Each looks at what it found, and fails if that is not one more.
        assert pair.a.stream_ops("faa", 8, pair.b_region, COUNT) == (COUNT, "SUCCESS")
    assert int.from_bytes(pair.b.load(0, 0, 8), "little") == COUNT


@pytest.mark.parametrize("mover", ["shared", "cma", "relay", "pool"])
@given(mixture=mixtures())
@FEW
def test_what_is_written_and_read_is_intact(
    fabric: Fabric, make_pair: MakePair, mover: str, mixture: Mixture
) -> None:
    pair = make_pair(mover=mover, path=HASTY)
    half = pair.a_region.length // 2
    data = pattern(len(mixture), half)
    pair.a.store(data)
    with under(fabric, mixture):
        pair.a.post("write", 0, 0, half, to=pair.b_region, at=0)
        pair.a.post("read", 0, half, half, to=pair.b_region, at=0)
        assert [done.status for done in pair.a.wait(2)] == ["SUCCESS", "SUCCESS"]
    assert pair.b.load(0, 0, half) == data
    assert pair.a.load(0, half, half) == data
