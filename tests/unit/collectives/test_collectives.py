# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of 1 to 8 ranks, each operation by each algorithm, judged by NumPy."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nupa.collectives import Communicator, communicator
from nupa.collectives.communicator import ALGORITHMS, Algorithm
from nupa.collectives.switch import RANKS_MAX, STAGE_BYTES, refusal
from nupa.fabric import Fabric
from nupa.topology.file import load
from tests.unit.collectives.rank_threads import check_all, run_ranks

DTYPES = {
    "f16": "f2", "bf16": "u2", "f32": "f4", "f64": "f8",
    "i32": "i4", "u32": "u4", "i64": "i8", "u64": "u8",
}  # fmt: skip
INTEGERS = ("i32", "u32", "i64", "u64")
UFUNCS = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
COUNTS = (0, 1, 2, 7, 1001)


def as_type(small: np.ndarray[Any, Any], type_: str) -> np.ndarray[Any, Any]:
    if type_ == "bf16":
        return (small.astype("f4").view("u4") >> 16).astype("u2")
    return small.astype(DTYPES[type_])


def small(rank: int, count: int) -> np.ndarray[Any, Any]:
    """Integers whose sums each type has exactly, in any order."""
    return (np.arange(count) * 7 + rank * 5) % 8


def reduced(operator: str, size: int, count: int) -> np.ndarray[Any, Any]:
    return UFUNCS[operator].reduce([small(rank, count) for rank in range(size)])


def operators(type_: str) -> Iterator[str]:
    return iter(UFUNCS if type_ in INTEGERS else ("add", "min", "max"))


def one_of_each(ranks: Communicator, type_: str, count: int, algorithm: Algorithm) -> None:
    """Makes each call, out of place and in place, and checks what this rank gets."""
    size, rank = ranks.size, ranks.rank
    options: dict[str, Any] = {"algorithm": algorithm, "type_": type_}
    mine = as_type(small(rank, count), type_)
    for operator in operators(type_):
        expected = as_type(reduced(operator, size, count), type_)
        found = ranks.all_reduce(mine, operator, **options)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(mine, as_type(small(rank, count), type_))
    inside = mine.copy()
    assert ranks.all_reduce(inside, out=inside, **options) is inside
    np.testing.assert_array_equal(inside, as_type(reduced("add", size, count), type_))

    whole = as_type(small(rank, count * size), type_)
    expected = as_type(reduced("add", size, count * size), type_)
    part = slice(rank * count, (rank + 1) * count)
    np.testing.assert_array_equal(ranks.reduce_scatter(whole, **options), expected[part])

    everything = np.concatenate([as_type(small(r, count), type_) for r in range(size)])
    np.testing.assert_array_equal(ranks.all_gather(mine, **options), everything)
    inside = np.zeros(count * size, DTYPES[type_])
    inside[part] = mine
    ranks.all_gather(inside[part], out=inside, **options)
    np.testing.assert_array_equal(inside, everything)

    root = count % size
    found = mine.copy()
    ranks.broadcast(found, root, **options)
    np.testing.assert_array_equal(found, as_type(small(root, count), type_))
    ranks.barrier(algorithm=algorithm)


@pytest.mark.parametrize("over", ["verbs", "windows"])
@pytest.mark.parametrize("size", range(1, 9))
def test_each_operation_is_numpys_in_each_type_and_size(size: int, over: str) -> None:
    ways = ("ring", "tree") if over == "verbs" else ALGORITHMS

    def work(ranks: Communicator) -> None:
        for algorithm in ways:
            for place, type_ in enumerate(DTYPES):
                # Each count with each type takes too long: each meets each algorithm.
                for count in (0, 1, COUNTS[place % len(COUNTS)]):
                    one_of_each(ranks, type_, count, algorithm)

    check_all(run_ranks(size, work, over=over))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("over", ["verbs", "windows"])
def test_arrays_larger_than_what_is_under_way_come_whole(over: str, algorithm: Algorithm) -> None:
    count = STAGE_BYTES // 4 + 12345  # a group takes it in two pieces

    def work(ranks: Communicator) -> None:
        options: dict[str, Any] = {"algorithm": algorithm}
        mine = np.arange(count, dtype="u4") * np.uint32(ranks.rank + 1)
        np.testing.assert_array_equal(
            ranks.all_reduce(mine, **options), np.arange(count, dtype="u4") * np.uint32(6)
        )
        given = mine[: count // 3 * 3]
        np.testing.assert_array_equal(
            ranks.reduce_scatter(given, "max", **options),
            np.split(given // np.uint32(ranks.rank + 1) * np.uint32(3), 3)[ranks.rank],
        )
        part = mine[: count // 3]
        found = ranks.all_gather(part, **options).reshape(3, -1)
        for rank in range(3):
            np.testing.assert_array_equal(
                found[rank], np.arange(count // 3, dtype="u4") * np.uint32(rank + 1)
            )
        ranks.broadcast(mine, 2, **options)
        np.testing.assert_array_equal(mine, np.arange(count, dtype="u4") * np.uint32(3))

    check_all(run_ranks(3, work, over=over))


def test_the_network_reduces_in_the_order_of_hosts() -> None:
    """The ranks are on hosts in another order: the bits are those of the order of hosts."""
    rng = np.random.default_rng(1)
    values = [(rng.normal(size=999) * 10.0 ** rng.integers(-5, 5, 999)).astype("f4") for _ in "abc"]
    hosts = [2, 0, 1]  # of ranks 0, 1, 2
    expected = (values[1] + values[2]) + values[0]

    def work(ranks: Communicator) -> bytes:
        return ranks.all_reduce(values[ranks.rank], algorithm="in-network").tobytes()

    with Fabric(hosts=3) as fabric:
        found = run_ranks(3, work, fabric=fabric, hosts=hosts)
    check_all(found)
    assert found == [expected.tobytes()] * 3


def test_two_dimensions_and_the_default_algorithm_work() -> None:
    def work(ranks: Communicator) -> str:
        found = ranks.all_reduce(np.full((3, 4), ranks.rank + 1.0))
        assert found.shape == (3, 4)
        assert (found == 3).all()
        return ranks.choose(8)

    assert run_ranks(2, work, over="windows") == ["in-network"] * 2
    with Fabric(hosts=1) as fabric:  # several ranks on a host
        assert run_ranks(2, work, fabric=fabric, over="windows") == ["tree"] * 2


# --- links

ELEMENTS = 3 * 5 * 8 * 4096  # divides into the parts of each number of ranks here


def link_bytes(size: int, algorithm: Algorithm) -> list[tuple[int, int]]:
    """Returns what left and entered each host's link in one all-reduce of ELEMENTS float32."""

    def data(fabric: Fabric) -> list[tuple[int, int]]:
        ports = fabric.show()["ports"][:size]
        counters = [port["counters"] for port in ports]
        return [(4 * c["port_xmit_data"], 4 * c["port_rcv_data"]) for c in counters]

    def work(ranks: Communicator) -> None:
        array = np.ones(ELEMENTS, "f4")
        ranks.all_reduce(array, algorithm=algorithm)

    with Fabric(hosts=size) as fabric:
        check_all(run_ranks(size, work, fabric=fabric, over="verbs"))
        return data(fabric)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_links_carry_s_in_the_network_and_nearly_two_s_in_a_ring(size: int) -> None:
    """S (2 (n - 1) / n) bytes a host become S; the barriers of the group have 8 bytes each.

    The queue pairs add a few words a chunk: what was consumed, and the engine's own.
    """
    array_bytes = 4 * ELEMENTS
    ring_bytes = array_bytes * 2 * (size - 1) // size
    for moved in link_bytes(size, "ring"):
        for octets in moved:
            assert ring_bytes <= octets <= ring_bytes * 1.001
    pieces = -(-array_bytes // STAGE_BYTES)
    for xmit, rcv in link_bytes(size, "in-network"):
        assert xmit == array_bytes + 2 * pieces * 8
        assert rcv == array_bytes + 2 * pieces * 8 * size


# --- limits that lead to a ring or a tree


class Hosts:
    """The hosts of a board, for `refusal`."""

    def __init__(self, hosts: list[int]) -> None:
        self.size = len(hosts)
        self.host = hosts.__getitem__


def refused(hosts: list[int]) -> str:
    return refusal(Hosts(hosts))  # type: ignore[arg-type]


def test_ranks_on_one_host_or_too_many_are_no_group() -> None:
    assert refused([0, 1]) == ""
    assert "several ranks are on one host" in refused([0, 1, 0])
    assert refused(list(range(RANKS_MAX))) == ""
    assert "49 ranks: 48 at most" in refused(list(range(RANKS_MAX + 1)))


def test_hosts_at_several_switches_reduce_in_the_network() -> None:
    """Ring and tree are not needed there: the links of hosts carry S, those of trunks S, too."""

    def work(ranks: Communicator) -> str:
        array = np.full(1 << 18, ranks.rank + 1, "i4")
        assert (ranks.all_reduce(array) == 10).all()
        return ranks.choose(array.nbytes)

    made = load("gpu24")
    with Fabric(topology=made) as fabric:
        hosts = [0, 1, 12, 23]
        assert len({made.ports[made.ports[host].peer].node for host in hosts}) > 1
        assert run_ranks(4, work, fabric=fabric, hosts=hosts) == ["in-network"] * 4
        for port in fabric.show()["ports"]:
            moved = 4 * port["counters"]["port_xmit_data"]
            assert moved < 64 or 1 << 20 <= moved < (1 << 20) + 100


def test_examples() -> None:
    failed, tried = doctest.testmod(communicator)
    assert tried
    assert not failed
