# SPDX-License-Identifier: BSD-3-Clause
"""Functions of the page's modules, each alone, in the browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser import made
from tests.browser.chromium import Browser
from tests.browser.serving import serving

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def call(chromium: Browser) -> Iterator[Call]:
    """Calls a function of a module: call("say", "sayBytes", 4096)."""
    with serving("recorded", snapshots=made.Recorded(made.snapshot(2, 1))) as url:
        chromium.open(url)

        def one(module: str, function: str, *arguments: object) -> Any:
            passed = ", ".join(json.dumps(argument) for argument in arguments)
            return chromium.later(
                f"import('/page/{module}.js')"
                f".then((found) => done(found.{function}({passed}))"
                ", (error) => done(`${error}`))",
                lambda: None,
            )

        yield one


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        ("sayRate", 0, "0 b/s"),
        ("sayRate", 0.1, "0 b/s"),
        ("sayRate", 0.125, "1.00 b/s"),
        ("sayRate", 1.25e9, "10.0 Gb/s"),
        ("sayRate", 124.99e6, "1.00 Gb/s"),
        ("sayShortRate", 0, "·"),
        ("sayShortRate", 1.55e9, "12.4G"),
        ("sayBytes", 0, "0 B"),
        ("sayBytes", 1023, "1023 B"),
        ("sayBytes", 1 << 20, "1 MiB"),
        ("sayBytes", 3 << 29, "1.50 GiB"),
        ("sayBytes", 1 << 62, "4096 PiB"),
        ("sayCount", 999, "999"),
        ("sayCount", 1234567, "1\u2009234\u2009567"),
        ("sayDuration", 999, "999 ns"),
        ("sayDuration", 2_000_000, "2 ms"),
        ("sayDuration", 1500, "1.50 µs"),
        ("sayPkey", 0x12, "0x0012"),
    ],
)
def test_quantities_have_three_digits_and_a_unit(
    call: Call, function: str, value: float, text: str
) -> None:
    assert call("say", function, value) == text


def test_names_sort_as_people_do(call: Call) -> None:
    assert call("panels/tables", "compare", "host2", "host10") < 0
    assert call("panels/tables", "compare", 10, 9) > 0


def test_arcs_that_overlap_have_different_levels(call: Call) -> None:
    arcs = [{"left": 0, "right": 1}, {"left": 1, "right": 2}, {"left": 0, "right": 2}]
    assert call("drawing/layout", "levelsOf", arcs) == 2
    assert call("drawing/layout", "levelsOf", []) == 0


@pytest.mark.parametrize(
    ("hosts", "total", "items"),
    [(0, 0, 0), (64, 64, 64), (65, 65, 2), (64, 160, 64), (9, 161, 1), (8, 161, 8), (254, 254, 4)],
)
def test_hosts_become_groups_beyond_the_limits(
    call: Call, hosts: int, total: int, items: int
) -> None:
    found = call("drawing/layout", "itemsOf", [{"name": f"host{i}"} for i in range(hosts)], total)
    assert len(found) == items
    assert sum(len(item["hosts"]) for item in found) == hosts


@pytest.mark.parametrize(
    ("load", "step"), [(0, 0), (0.0099, 1), (0.01, 2), (0.1, 3), (0.5, 4), (0.9, 5), (7, 5)]
)
def test_steps_of_load_begin_at_their_limits(call: Call, load: float, step: int) -> None:
    assert call("rates", "stepOf", load) == step


def test_switches_are_in_tiers_by_their_distance_from_hosts(call: Call) -> None:
    links = [("host0", "leaf0"), ("leaf0", "spine0"), ("leaf1", "spine0"), ("host1", "leaf1")]
    links.append(("spine0", "core0"))
    found = call(
        "drawing/layout",
        "tiersOf",
        [{"name": "host0"}, {"name": "host1"}],
        [{"from": one, "to": other} for one, other in links],
    )
    assert found == [["leaf0", "leaf1"], ["spine0"], ["core0"]]


def test_accelerators_of_a_virtual_pod_are_named(call: Call) -> None:
    members = [{"kind": "accelerator", "name": "accelerator:3"}, {"kind": "host", "name": "host0"}]
    pod = {"name": "training", "kind": "vpod", "tenant": "red", "members": members}
    (found,) = call("state", "podsOf", {"partitions": [pod, {"name": "default", "members": []}]})
    assert found["name"] == "vPod training: accelerators 3"
