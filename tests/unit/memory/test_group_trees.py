# SPDX-License-Identifier: BSD-3-Clause
"""Groups over several switches: the order of reductions, and what each link carries."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from nupa.base.errors import FabricError
from nupa.fabric import Fabric
from nupa.memory.group import GroupWindow
from nupa.memory.window import WindowError
from nupa.topology.file import load
from nupa.topology.topology import HostConfig, SwitchConfig, Topology, TrunkConfig
from tests.unit.memory.test_group import bf16_of, data_bytes, drawn

COUNT = 1500  # several blocks


def topology(places: str, trunks: str) -> Topology:
    """Makes hosts at the switches that *places* names by a letter each, and *trunks* (AB CD)."""
    names = sorted({*places, *trunks} - {" "})
    return Topology(
        "tree",
        tuple(SwitchConfig(name, 20) for name in names),
        tuple(HostConfig(f"h{i}", name) for i, name in enumerate(places)),
        tuple(TrunkConfig((pair[0], pair[1])) for pair in trunks.split()),
    )


TOPOLOGIES = {
    "two": topology("ABABA", "AB"),
    "row": topology("CABBDCA", "AB BC CD"),
    "ring": topology("DABCDDB", "AB BC CD DA"),
    "leaves": topology("ABCABC", "AX BX CX AY BY CY"),
    "deep": topology("AFFA", "AB BC CD DE EF"),
    "bare": topology("AA", "AB"),
}


def wide(type_: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if type_ == "bf16":
        return (array.astype("u4") << 16).view("f4")
    return array.astype("f4")


def expected(
    made: Topology, hosts: list[int], type_: str, arrays: dict[int, np.ndarray[Any, Any]]
) -> bytes:
    """Adds as the page says: each switch its own hosts, then the switches below it."""
    routes = {host: made.routes[hosts[0]][host] for host in hosts}
    ways = {
        host: tuple(made.ports[port].node for port in route[1:-1:2]) or (None,)
        for host, route in routes.items()
    }
    root = made.ports[made.ports[hosts[0]].peer].node
    ways[hosts[0]] = (root,)

    def total(way: tuple[Any, ...]) -> np.ndarray[Any, Any]:
        parts = [wide(type_, arrays[host]) for host in hosts if ways[host] == way]
        below: list[tuple[Any, ...]] = []
        for host in hosts:
            onward = ways[host][: len(way) + 1]
            if len(onward) > len(way) and onward[: len(way)] == way and onward not in below:
                below.append(onward)
        parts += [total(onward) for onward in below]
        found = parts[0].copy()
        for part in parts[1:]:
            found = found + part
        return found

    found = total((root,))
    if type_ == "bf16":
        return bf16_of(found).tobytes()
    return found.astype({"f16": "f2", "f32": "f4"}[type_]).tobytes()


def mapped(fabric: Fabric, hosts: list[int], stack: ExitStack, size: int) -> list[GroupWindow]:
    group = stack.enter_context(fabric.group(hosts, size))
    return [stack.enter_context(group.map(host)) for host in hosts]


@pytest.mark.parametrize("type_", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_order_is_by_switch_then_up_the_tree_bit_by_bit(name: str, type_: str) -> None:
    made = TOPOLOGIES[name]
    rng = random.Random(name)
    everyone = list(range(len(made.hosts)))
    with Fabric(topology=made) as fabric:
        for hosts in (everyone, sorted(rng.sample(everyone, max(1, len(everyone) - 2)))):
            arrays = {host: drawn(type_, COUNT, host) for host in hosts}
            with ExitStack() as stack:
                windows = mapped(fabric, hosts, stack, 4 * COUNT)
                for host, window in zip(hosts, windows, strict=True):
                    window.window.write(0, arrays[host].tobytes())
                result = expected(made, hosts, type_, arrays)
                for window in windows:
                    assert window.load_reduce(0, len(result), type_) == result
                windows[-1].reduce_store(0, len(result), type_)
                for window in windows:
                    assert window.window.read(0, len(result)) == result


def test_orders_of_switches_differ_from_that_of_one_switch() -> None:
    """1 + (2^24 + 1) is 2^24 where the far switch adds first; (1 + 1) + 2^24 is 2^24 + 2."""
    values = (1, 2.0**24, 1)
    found = []
    for places in ("AAA", "ABB", "ABA"):
        with Fabric(topology=topology(places, "AB")) as fabric, ExitStack() as stack:
            windows = mapped(fabric, [0, 1, 2], stack, 4)
            for window, value in zip(windows, values, strict=True):
                window.window.write(0, np.float32(value).tobytes())
            found.append(float(np.frombuffer(windows[1].load_reduce(0, 4, "f32"), "f4")[0]))
    assert found == [2.0**24, 2.0**24, 2.0**24 + 2]


S = 4096  # bytes of f16
#: Bytes that leave by the trunk's ends (towards the root, away from it), for a requester at the
#: root's switch and one below the trunk.
TRUNK = {
    "store": ((0, S), (S, 0)),
    "reduce": ((0, S), (S, 0)),
    "load_reduce": ((2 * S, 0), (2 * S, S)),  # accumulators of f16 have twice its bytes
    "reduce_store": ((2 * S, S), (2 * S, S)),
}


def ask(window: GroupWindow, request: str) -> None:
    data = np.zeros(S // 2, "f2")
    if request == "store":
        window.store(0, data)
    elif request == "reduce":
        window.reduce(0, data, "f16")
    elif request == "load_reduce":
        window.load_reduce(0, S, "f16")
    else:
        window.reduce_store(0, S, "f16")


@pytest.mark.parametrize("request_", TRUNK)
@pytest.mark.parametrize("far", [False, True])
def test_a_trunk_carries_each_request_once(request_: str, far: bool) -> None:
    made = topology("ABBA", "AB")
    up, down = (
        next(i for i, port in enumerate(made.ports) if i >= 8 and port.node == node)
        for node in (1, 0)
    )
    with Fabric(topology=made) as fabric, ExitStack() as stack:
        windows = mapped(fabric, [0, 1, 2, 3], stack, S)
        ask(windows[2 if far else 3], request_)
        found = data_bytes(fabric)
        ends = found[made.ports[up].name], found[made.ports[down].name]
        assert (ends[0][0], ends[1][0]) == TRUNK[request_][far]
        assert ends[0] == ends[1][::-1]


def test_each_host_of_stacked_switches_carries_s_of_an_all_reduce() -> None:
    made = load("gpu24")
    with Fabric(topology=made) as fabric, ExitStack() as stack:
        windows = mapped(fabric, list(range(24)), stack, S)
        windows[17].reduce_store(0, S, "f32")
        found = data_bytes(fabric)
        assert [found[f"gpu{i}/1"] for i in range(24)] == [(S, S)] * 24
        trunks = [found[port.name] for port in made.ports[48:]]
        used = [each for each in trunks if any(each)]
        assert used == [(S, S)] * 2 * (len(made.switches) - 1)  # both ends of a tree's links


def test_a_trunk_that_went_down_ends_the_group() -> None:
    with Fabric(topology=topology("AAB", "AB")) as fabric, ExitStack() as stack:
        near, _, far = mapped(fabric, [0, 1, 2], stack, S)
        group = near.group
        near.store(0, b"before")
        fabric.set_port("A-B", up=False)
        for window in (near, far):
            with pytest.raises(WindowError, match="between the switches on the way to h2"):
                window.load_reduce(0, 4, "u32")
        with pytest.raises(FabricError):
            group.map(0)
        fabric.set_port("A-B", up=True)
        with pytest.raises(WindowError, match="map the group again"):
            near.store(0, b"after")
        with group.map(0) as again:
            again.store(0, b"after")
