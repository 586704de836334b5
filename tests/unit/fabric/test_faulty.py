# SPDX-License-Identifier: BSD-3-Clause
"""Faulty: faults for the time of a block; other faults stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from nupa.fabric import Fabric, Fault, Faulty, LocalError
from nupa.fabric.faulty import FabricPort


@pytest.fixture
def port(fabric: Fabric) -> Iterator[FabricPort]:
    """host0's port; no fault is left at the end."""
    yield fabric.port("host0")
    assert fabric.faults() == []


def kinds(port: FabricPort) -> list[str]:
    return [str(entry.fault.kind) for entry in port.fabric.faults()]


def test_a_fault_is_there_in_the_block_only(port: FabricPort) -> None:
    with Faulty(port, "drop", probability="1%", count=3, seed=5) as faulty:
        (entry,) = port.fabric.faults()
        assert (entry.port, entry.seen, entry.hits, entry.left) == ("host0/1", 0, 0, "3 hits")
        assert faulty.entries == (entry,)
        assert str(entry.fault) == "drop probability 1%, 3 times, seed 5"
    assert port.fabric.faults() == []
    assert faulty.entries == (entry,)


def test_several_are_added_at_once_and_blocks_nest(port: FabricPort) -> None:
    with Faulty(port, "drop", Fault("delay", duration="2ms"), "kill") as outer:
        with Faulty(port.fabric.port("host1"), "poison"):
            assert kinds(port) == ["drop", "delay", "kill", "poison"]
        assert kinds(port) == ["drop", "delay", "kill"]
        assert [str(entry.fault.kind) for entry in outer.entries] == ["drop", "delay", "kill"]


def test_only_ours_are_cleared(port: FabricPort) -> None:
    theirs = port.fabric.add_fault("host1", Fault("drop"))
    with Faulty(port, "delay"):
        pass
    assert [entry.id for entry in port.fabric.faults()] == [theirs.id]
    assert port.fabric.clear_fault(theirs.id)
    assert not port.fabric.clear_fault(theirs.id)


def test_an_exception_clears_them_and_says_how_to_repeat_it(port: FabricPort) -> None:
    with pytest.raises(ZeroDivisionError) as raised, Faulty(port, "drop", seed=77):
        1 / 0  # noqa: B018
    assert raised.value.__notes__ == ["under Faulty(host0/1: drop, seed 77)"]


def test_that_somebody_else_cleared_them_is_no_error(port: FabricPort) -> None:
    with Faulty(port, "drop", "delay") as faulty:
        port.fabric.clear_faults()
        assert faulty.hits == 0


def test_seeds_are_drawn_from_the_source_that_is_given(port: FabricPort) -> None:
    first, second = (Faulty(port, "drop", "delay", rng=Random(3)) for _ in range(2))
    assert first.faults == second.faults
    assert first.faults[0].seed != first.faults[1].seed
    assert Faulty(port, "drop").faults != Faulty(port, "drop").faults


def test_it_may_be_used_again_but_not_within_itself(port: FabricPort) -> None:
    faulty = Faulty(port, "drop")
    for _ in range(2):
        with faulty:
            assert kinds(port) == ["drop"]
            with pytest.raises(LocalError, match="in use already"):
                faulty.__enter__()


def test_if_one_cannot_be_added_none_is(port: FabricPort) -> None:
    fabric = port.fabric
    others = [fabric.add_fault("host1", Fault("drop")).id for _ in range(63)]
    with pytest.raises(Exception, match=r"cannot add delay to host0/1: .* 64 faults"):
        Faulty(port, "drop", "delay").__enter__()
    assert [entry.id for entry in fabric.faults()] == others
    fabric.clear_faults()


def test_options_are_for_names_of_kinds(port: FabricPort) -> None:
    with pytest.raises(LocalError, match="seed: a Fault has its own"):
        Faulty(port, Fault("drop"), seed=3)
    with pytest.raises(LocalError, match="no fault for host0/1"):
        Faulty(port)
    with pytest.raises(LocalError, match="drop takes no duration"):
        Faulty(port, "drop", duration=1)


def test_a_named_fabric_has_them_for_all_who_open_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nupa.topology.topology import star

    monkeypatch.setenv("NUPA_DIR", str(tmp_path_factory.mktemp("fabrics")))
    with Fabric.create("lab", star(2)) as ours, Fabric.open("lab") as theirs:
        with Faulty(ours.port("host1"), "drop", seed=9):
            assert [str(entry.fault) for entry in theirs.faults()] == ["drop, seed 9"]
        assert theirs.faults() == []
