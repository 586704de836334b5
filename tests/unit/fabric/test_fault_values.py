# SPDX-License-Identifier: BSD-3-Clause
"""Faults as values: times, rates and probabilities as text, kinds and their options, places."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa._engine import ffi
from nupa.base import quantity
from nupa.core.place import find_port
from nupa.fabric import Fabric, Fault, FaultKind, LocalError
from nupa.fabric.fault import KINDS
from nupa.topology.topology import HostConfig, SwitchConfig, Topology, TrunkConfig

U64 = st.integers(0, (1 << 64) - 1)


@pytest.mark.parametrize(
    ("said", "ns"),
    [
        ("2s", 2_000_000_000),
        ("50ms", 50_000_000),
        ("1.5 us", 1500),
        (" 100ns ", 100),
        ("1e3ns", 1000),
        ("1min", 60_000_000_000),
        ("0", 0),
        (0.25, 250_000_000),
        (0, 0),
    ],
)
def test_a_time_is_read(said: str | float, ns: int) -> None:
    assert quantity.nanoseconds(said) == ns


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        ("10MB/s", 10_000_000),
        ("10Gb/s", 1_250_000_000),
        ("8kbit/s", 1000),
        ("1GiB/s", 1 << 30),
        ("300 KBps", 300_000),
        ("1B/s", 1),
        (12.0, 12),
    ],
)
def test_a_rate_is_read(said: str | float, rate: int) -> None:
    assert quantity.bytes_per_s(said) == rate


@pytest.mark.parametrize(("said", "chance"), [("1%", 0.01), ("0.01", 0.01), ("100 %", 1), (1, 1)])
def test_a_probability_is_read(said: str | float, chance: float) -> None:
    assert quantity.probability(said) == chance


@pytest.mark.parametrize("said", ["5", "s", "2 h", "-1s", "1e300s", "1.5.5s", "0.1ns", "", -1.0])
def test_what_is_no_time_is_refused(said: str | float) -> None:
    with pytest.raises(LocalError, match="is not a time"):
        quantity.nanoseconds(said)


@pytest.mark.parametrize("said", ["5", "MB/s", "1 XB/s", "0B/s", "1b/s", "2MB/min", 0, -1])
def test_what_is_no_rate_is_refused(said: str | float) -> None:
    with pytest.raises(LocalError, match="is not a rate"):
        quantity.bytes_per_s(said)


@pytest.mark.parametrize("said", ["0", "0%", "101%", "1.01", "1%%", "half", 0, 2, float("nan")])
def test_what_is_no_probability_is_refused(said: str | float) -> None:
    with pytest.raises(LocalError, match="is not a probability"):
        quantity.probability(said)


@given(U64)
def test_a_time_that_is_written_reads_back(ns: int) -> None:
    assert quantity.nanoseconds(quantity.say_time(ns)) == ns


@given(st.integers(1, (1 << 64) - 1))
def test_a_rate_that_is_written_reads_back(rate: int) -> None:
    assert quantity.bytes_per_s(quantity.say_rate(rate)) == rate


@given(st.integers(1, quantity.ALWAYS))
def test_a_probability_that_is_written_means_the_same(steps: int) -> None:
    said = quantity.say_probability(steps / quantity.ALWAYS)
    assert quantity.in_steps(quantity.probability(said)) == steps


def test_a_probability_is_written_shortly() -> None:
    said = [quantity.say_probability(chance) for chance in (0.01, 0.1, 1, 0.005, 1e-9)]
    assert said == ["1%", "10%", "100%", "0.5%", "1e-07%"]


def test_every_kind_of_the_engine_is_there() -> None:
    names = ffi.typeof("enum nupa_fault_kind").relements
    kinds = {name for name in names if name != "NUPA_FAULT_KINDS"}
    assert kinds == {f"NUPA_FAULT_{kind.name}" for kind in FaultKind}
    assert list(KINDS) == list(FaultKind)


def test_the_page_of_documentation_has_every_kind() -> None:
    page = Path(__file__).parents[3] / "docs" / "faults.md"
    rows = re.findall(r"^\| `(\w+)` \| ", page.read_text().partition("## Kinds")[2], re.MULTILINE)
    assert rows[: len(KINDS)] == [kind.value for kind in KINDS]


def faults() -> st.SearchStrategy[Fault]:
    def build(kind: FaultKind) -> st.SearchStrategy[Fault]:
        known = {
            "probability": st.integers(1, quantity.ALWAYS).map(lambda n: n / quantity.ALWAYS),
            "count": U64,
            "after": U64,
            "for_": U64.map(lambda n: f"{n}ns"),
            "duration": U64.map(lambda n: f"{n}ns"),
            "rate": st.integers(1, (1 << 64) - 1).map(lambda n: f"{n}B/s"),
            "seed": U64,
        }
        names = [name for name in known if name.removesuffix("_") in KINDS[kind].options]
        needed = {name: known.pop(name) for name in names if name == "rate"}
        optional = {name: known[name] for name in names if name in known}
        options = st.fixed_dictionaries(needed, optional=optional)
        return options.map(lambda given: Fault(kind, **given))

    return st.sampled_from(FaultKind).flatmap(build)


@given(faults())
def test_the_options_of_a_fault_make_it_again(fault: Fault) -> None:
    options = dict(fault.options)
    numbers = {
        name: int(options.pop(name)) for name in ("count", "after", "seed") if name in options
    }
    renamed = {"for_" if name == "for" else name: value for name, value in options.items()}
    again = Fault(fault.kind, **numbers, **renamed)
    assert again._replace(probability=0) == fault._replace(probability=0)
    assert quantity.in_steps(again.probability) == quantity.in_steps(fault.probability)


def test_a_fault_says_what_it_is() -> None:
    assert str(Fault("drop", probability="1%", seed=7)) == "drop probability 1%, seed 7"
    assert str(Fault("flap", duration=0.05)) == "flap of 50ms, once"
    assert str(Fault("bandwidth", rate="10MB/s")) == "bandwidth at most 10MB/s"
    assert str(Fault("delay", after=3, count=2)) == "delay of 1ms, after 3, 2 times"
    assert str(Fault("stuck", count=0)) == "stuck"


def test_a_fault_does_not_change() -> None:
    fault = Fault("drop")
    with pytest.raises(AttributeError):
        fault.count = 3  # type: ignore[misc]


def test_a_seed_is_kept_or_drawn() -> None:
    assert Fault("drop", seed=5).seeded(Random(1)).seed == 5
    drawn = Fault("drop").seeded(Random(1))
    assert drawn.seed == Random(1).getrandbits(32)
    assert Fault("drop").seed is None


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        ("drop", "duration", "1s"),
        ("kill", "rate", "1MB/s"),
        ("bandwidth", "probability", "1%"),
        ("bandwidth", "seed", 3),
        ("poison", "duration", 1),
    ],
)
def test_an_option_that_a_kind_does_not_take_is_refused(
    kind: str, option: str, value: object
) -> None:
    with pytest.raises(LocalError, match=f"{kind} takes no {option}: it takes .*for"):
        Fault(kind, **{option: value})


def test_what_is_no_fault_is_refused() -> None:
    with pytest.raises(LocalError, match="'fire' is not a kind of fault: there are drop"):
        Fault("fire")
    with pytest.raises(LocalError, match="bandwidth needs a rate"):
        Fault("bandwidth")
    for value in (-1, 1 << 64, 1.5, "3"):
        with pytest.raises(LocalError, match="whole number"):
            Fault("drop", count=value)


@pytest.fixture
def two_switches() -> Fabric:
    """gpu-0 and gpu-1 on left, with two trunks to right, on which is store."""
    topology = Topology(
        "two",
        switches=(SwitchConfig("left", 8), SwitchConfig("right", 8)),
        hosts=(
            HostConfig("gpu-0", "left"),
            HostConfig("gpu-1", "left"),
            HostConfig("store", "right", 5),
        ),
        trunks=(TrunkConfig(("left", "right")), TrunkConfig(("left", "right"))),
    )
    with Fabric(topology=topology) as fabric:
        yield fabric


@pytest.mark.parametrize(
    ("said", "port"),
    [
        ("gpu-1/1", "gpu-1/1"),
        ("left/2", "left/2"),
        ("gpu-1", "gpu-1/1"),
        ("2", "store/1"),
        (2, "store/1"),
        ("gpu-1-left", "gpu-1/1"),
        ("left-gpu-1", "left/2"),
        ("store/1-right/5", "store/1"),
        ("right-store/1", "right/5"),
        ("left/3-right/1", "left/3"),
    ],
)
def test_a_port_is_found_by_its_name_its_host_and_its_link(
    two_switches: Fabric, said: str | int, port: str
) -> None:
    assert find_port(two_switches.ports, two_switches.hosts, said).name == port
    assert two_switches.port(said).name == port


def test_a_place_that_means_several_or_none_is_refused(two_switches: Fabric) -> None:
    with pytest.raises(LocalError, match="any of these links: left/3-right/1, left/4-right/2"):
        two_switches.port("left-right")
    with pytest.raises(LocalError, match="its ports are left/1, left/2, left/3, left/4; `nupa sho"):
        two_switches.port("left")
    with pytest.raises(LocalError, match="ports are gpu-0/1, gpu-1/1, store/1, …; `nupa show` li"):
        two_switches.port("gpu-0-right")


def test_faults_that_are_added_and_cleared_are_events() -> None:
    with Fabric(hosts=2) as fabric:
        fabric.clear_faults()  # there are none: no event
        first = fabric.add_fault("host0", Fault("delay", duration="2ms", seed=7))
        fabric.clear_fault(first.id)
        assert not fabric.clear_fault(first.id)
        fabric.add_fault("host1", Fault("drop", seed=7))
        fabric.clear_faults()
        told = [(event.kind, event.subject, event.text) for event in fabric.events.read()]
    assert told == [
        ("fault.added", "host0/1", "fault 1: delay of 2ms, seed 7"),
        ("fault.cleared", "1", "fault 1 is cleared"),
        ("fault.added", "host1/1", "fault 2: drop, seed 7"),
        ("fault.cleared", "local", "all faults are cleared"),
    ]
