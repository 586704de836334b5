# SPDX-License-Identifier: BSD-3-Clause
"""A series of snapshots: who follows gets the latest, and nobody disturbs another."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.live import Snapshot, Snapshots
from nupa.topology.topology import star

S = 1_000_000_000


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 1000 * S

    def __call__(self) -> int:
        return self.now_ns

    def go(self, seconds: float) -> None:
        self.now_ns += int(seconds * S)


@pytest.fixture
def up(folder: Path) -> Iterator[Fabric]:
    with Fabric.create("live", star(2)) as fabric:
        yield fabric
    if (folder / Path(fabric.path).name).exists():
        Fabric.remove("live")


@pytest.mark.usefixtures("up")
def test_a_series_has_rates_from_the_second_on() -> None:
    clock = Clock()
    with Snapshots("live", clock=clock) as snapshots:
        assert snapshots.tick().rates is None
        clock.go(2)
        rates = snapshots.tick().rates
        assert rates is not None
        assert rates.seconds == 2


@pytest.mark.usefixtures("up")
def test_the_latest_is_taken_anew_where_it_is_too_old_or_lacks_lists() -> None:
    clock = Clock()
    with Snapshots("live", clock=clock) as snapshots:
        first = snapshots.latest(1)
        clock.go(1)
        assert snapshots.latest(1) is first
        clock.go(0.001)
        second = snapshots.latest(1)
        assert second is not first
        assert not second.lists
        assert snapshots.latest(1, lists=True).lists


def test_a_fabric_that_goes_and_comes_is_told(up: Fabric) -> None:
    with Snapshots("live") as snapshots:
        first = snapshots.tick()
        up.close()
        Fabric.remove("live")
        gone = snapshots.tick()
        assert "no fabric is named 'live'" in gone.error
        assert gone.rates is None
        assert gone.fabric["hosts"] == []
        with Fabric.create("live", star(3)):
            again = snapshots.tick()
        assert again.error == ""
        assert again.rates is None
        assert again.generation != first.generation
        assert len(again.fabric["hosts"]) == 3


@pytest.mark.usefixtures("up")
def test_all_who_follow_get_the_same_snapshots() -> None:
    with Snapshots("live", 0.01) as snapshots:
        one, other = snapshots.follow(), snapshots.follow(lists=False)
        found = [next(one) for _ in range(3)]
        assert next(other).lists
        assert [snapshot.rates is not None for snapshot in found[1:]] == [True, True]
        assert found[0].monotonic_ns < found[1].monotonic_ns < found[2].monotonic_ns


@pytest.mark.usefixtures("up")
def test_a_slow_follower_gets_the_latest() -> None:
    with Snapshots("live", 3600) as snapshots:
        follower = snapshots.follow()
        next(follower)
        snapshots.tick()
        latest = snapshots.tick()
        assert next(follower) is latest


@pytest.mark.usefixtures("up")
def test_nothing_is_read_while_nobody_follows() -> None:
    with Snapshots("live", 0.001) as snapshots:
        follower = snapshots.follow()
        next(follower)
        follower.close()  # type: ignore[attr-defined]
        taken = {snapshots.latest(1e9).monotonic_ns for _ in _turns(0.1)}
        assert len(taken) <= 2  # one may have been under way


def _turns(seconds: float) -> Iterator[None]:
    end, never = time.monotonic() + seconds, threading.Event()
    while time.monotonic() < end:
        never.wait(0.001)
        yield


@pytest.mark.usefixtures("up")
def test_followers_end_when_the_series_is_closed() -> None:
    snapshots = Snapshots("live", 3600)
    first, rest = threading.Event(), []

    def follow() -> None:
        for snapshot in snapshots.follow():
            rest.append(snapshot)
            first.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert first.wait(30)
    snapshots.close()
    thread.join(30)
    assert not thread.is_alive()
    assert len(rest) == 1
    assert list(snapshots.follow()) == []


@pytest.mark.usefixtures("up")
def test_an_event_loop_can_follow() -> None:
    async def follow(snapshots: Snapshots) -> list[Snapshot]:
        found = []
        async for snapshot in snapshots.stream(lists=False):
            found.append(snapshot)
            if len(found) == 3:
                await asyncio.to_thread(snapshots.close)
        return found

    found = asyncio.run(follow(Snapshots("live", 0.01)))
    assert len(found) >= 3
    assert not any(snapshot.error for snapshot in found)


@pytest.mark.usefixtures("up")
def test_a_follower_that_is_behind_ends_too() -> None:
    snapshots = Snapshots("live", 3600)
    follower = snapshots.follow()
    next(follower)
    latest = snapshots.tick()
    snapshots.close()
    assert list(follower) == [latest]
