# SPDX-License-Identifier: BSD-3-Clause
"""Port-based routing: PIDs and their limits, ways through stacked switches, links that go down."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.cxl.switch.pbr import PIDS, PORTS, PbrError, PbrFabric, SwitchPort


def ring(size: int) -> PbrFabric:
    """Make a ring of switches s0…: port 0 leads to the next, port 1 to the one before; PID n is
    port 2 of sN."""
    fabric = PbrFabric()
    for number in range(size):
        fabric.add_switch(f"s{number}", 4)
    for number in range(size):
        fabric.link(SwitchPort(f"s{number}", 0), SwitchPort(f"s{(number + 1) % size}", 1))
    for number in range(size):
        assert fabric.assign(SwitchPort(f"s{number}", 2)) == number
    return fabric


def test_a_message_takes_the_shortest_way_and_another_once_a_link_is_down() -> None:
    fabric = ring(5)
    assert fabric.route(0, 1) == [SwitchPort("s0", 0), SwitchPort("s1", 2)]
    assert fabric.route(0, 0) == [SwitchPort("s0", 2)]
    fabric.set_link(SwitchPort("s1", 1), False)
    around = [
        SwitchPort("s0", 1),
        SwitchPort("s4", 1),
        SwitchPort("s3", 1),
        SwitchPort("s2", 1),
        SwitchPort("s1", 2),
    ]
    assert fabric.route(0, 1) == around
    fabric.set_link(SwitchPort("s3", 0), False)
    with pytest.raises(PbrError, match="no way"):
        fabric.route(0, 2)
    fabric.set_link(SwitchPort("s0", 0), True)
    assert len(fabric.route(0, 1)) == 2
    assert fabric.table("s0")[1] == 0


def test_there_are_4096_pids_and_not_one_more() -> None:
    fabric = PbrFabric()
    for number in range(PIDS // PORTS + 1):
        fabric.add_switch(f"s{number}", PORTS)
    for number in range(PIDS):
        fabric.assign(SwitchPort(f"s{number // PORTS}", number % PORTS), number)
    free = SwitchPort(f"s{PIDS // PORTS}", 0)
    with pytest.raises(PbrError, match="not below 0x1000"):
        fabric.assign(free)
    fabric.withdraw(7)
    for wrong in (PIDS, -1, 8):
        with pytest.raises(PbrError, match="taken"):
            fabric.assign(free, wrong)
    assert fabric.assign(free) == 7


def test_ports_that_are_missing_or_in_use_are_refused() -> None:
    fabric = ring(3)
    for name, ports in (("s0", 4), ("x", PORTS + 1), ("x", 0)):
        with pytest.raises(PbrError, match="a new name"):
            fabric.add_switch(name, ports)
    for at in (
        SwitchPort("s0", 0),
        SwitchPort("s0", 2),
        SwitchPort("s0", 4),
        SwitchPort("s0", -1),
        SwitchPort("s9", 0),
    ):
        with pytest.raises(PbrError):
            fabric.assign(at)
        with pytest.raises(PbrError):
            fabric.link(at, SwitchPort("s1", 3))
    with pytest.raises(PbrError, match="itself"):
        fabric.link(SwitchPort("s1", 3), SwitchPort("s1", 3))
    with pytest.raises(PbrError, match="no link"):
        fabric.set_link(SwitchPort("s1", 3), False)
    with pytest.raises(PbrError, match="no switch"):
        fabric.table("s9")
    for call in (lambda: fabric.withdraw(3), lambda: fabric.route(0, 3)):
        with pytest.raises(PbrError, match="not assigned"):
            call()


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12),
    st.lists(st.integers(0, 11), max_size=4),
)
def test_every_route_ends_at_its_destination_or_there_is_no_way(
    links: list[tuple[int, int]], down: list[int]
) -> None:
    fabric = PbrFabric()
    for number in range(6):
        fabric.add_switch(f"s{number}", 26)
        fabric.assign(SwitchPort(f"s{number}", 0))
    ends = []
    for i, (one, other) in enumerate(links):
        ends.append((SwitchPort(f"s{one}", 1 + 2 * i), SwitchPort(f"s{other}", 2 + 2 * i)))
        fabric.link(*ends[-1])
    for number in down:
        if number < len(ends):
            fabric.set_link(ends[number][0], False)
    alive = [pair for i, pair in enumerate(ends) if i not in down]
    reached = {number: {number} for number in range(6)}
    for _ in range(6):
        for one, other in alive:
            a, b = int(one.switch[1]), int(other.switch[1])
            both = reached[a] | reached[b]
            for number in both:
                reached[number] = reached[number] | both
    for source in range(6):
        for destination in range(6):
            if destination in reached[source]:
                way = fabric.route(source, destination)
                assert way[-1] == SwitchPort(f"s{destination}", 0)
                assert len({at.switch for at in way}) == len(way)
            else:
                with pytest.raises(PbrError, match="no way"):
                    fabric.route(source, destination)
