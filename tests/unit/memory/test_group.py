# SPDX-License-Identifier: BSD-3-Clause
"""Groups: requests that a switch executes on the memory of several hosts, judged by NumPy."""

from __future__ import annotations

import doctest
import threading
from typing import Any

import numpy as np
import pytest

from nupa.base.errors import FabricError
from nupa.fabric import Fabric
from nupa.memory import group as group_module
from nupa.memory import reduction
from nupa.memory.group import GroupWindow
from nupa.memory.window import WindowError
from tests.unit.memory.grouped import SIZE, grouped

DTYPES = {
    "f16": "f2", "f32": "f4", "f64": "f8", "i32": "i4", "u32": "u4", "i64": "i8", "u64": "u8",
}  # fmt: skip
INTEGERS = ("i32", "u32", "i64", "u64")
UFUNCS = {
    "add": np.add, "min": np.fmin, "max": np.fmax,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
PAIRS = [
    (type_, operator)
    for type_ in reduction.TYPES
    for operator in reduction.OPERATORS
    if operator in ("add", "min", "max") or type_ in INTEGERS
]


def bf16_of(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rounds float32 to nearest even, in another way than the C code: by comparing distances."""
    bits = values.astype("f4").view("u4")
    low, high = bits & 0xFFFF0000, (bits & 0xFFFF0000) + np.uint32(0x10000)
    part = bits & 0xFFFF
    up = (part > 0x8000) | ((part == 0x8000) & (bits >> 16 & 1 == 1))
    return (np.where(up & ~np.isnan(values), high, low) >> 16).astype("u2")


def drawn(type_: str, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Draws elements, of bf16 as u2: any finite bits, so that orders and roundings show."""
    rng = np.random.default_rng(seed)
    if type_ in INTEGERS:
        kind = np.dtype(DTYPES[type_])
        return np.frombuffer(rng.bytes(count * kind.itemsize), kind).copy()
    values = rng.normal(size=count) * 10.0 ** rng.integers(-6, 5, count)
    if type_ == "bf16":
        return bf16_of(values.astype("f4"))
    return values.astype(DTYPES[type_])


def reduced(type_: str, operator: str, arrays: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Reduces in the order of hosts, in the accumulator that reduce.h states."""
    if type_ in ("f16", "bf16"):
        wide = [
            a.astype("f4") if type_ == "f16" else (a.astype("u4") << 16).view("f4") for a in arrays
        ]
    else:
        wide = arrays
    total = wide[0].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for other in wide[1:]:
            total = UFUNCS[operator](total, other)
        if type_ == "f16":
            return total.astype("f2")
    return bf16_of(total) if type_ == "bf16" else total


@pytest.mark.parametrize(("type_", "operator"), PAIRS)
@pytest.mark.parametrize("hosts", [1, 2, 5])
def test_load_reduce_is_what_numpy_makes_bit_by_bit(type_: str, operator: str, hosts: int) -> None:
    count = 1031  # more than a block of the kernel, and odd
    arrays = [drawn(type_, count, seed) for seed in range(hosts)]
    expected = reduced(type_, operator, arrays).tobytes()
    each = arrays[0].itemsize
    with grouped(hosts) as (_, windows):
        for window, array in zip(windows, arrays, strict=True):
            window.window.write(5 * each, array.tobytes())
        for window in windows:
            assert window.load_reduce(5 * each, count * each, type_, operator) == expected
        windows[-1].reduce_store(5 * each, count * each, type_, operator)
        for window in windows:
            assert window.window.read(5 * each, count * each) == expected
            assert window.window.read(0, 5 * each) == bytes(5 * each)


@pytest.mark.parametrize(("type_", "operator"), PAIRS)
def test_reduce_changes_each_member_as_numpy_would(type_: str, operator: str) -> None:
    count = 33
    before = [drawn(type_, count, seed) for seed in range(3)]
    given = drawn(type_, count, 9)
    with grouped(3) as (_, windows):
        for window, array in zip(windows, before, strict=True):
            window.window.write(0, array.tobytes())
        windows[1].reduce(0, given, type_, operator)
        for window, array in zip(windows, before, strict=True):
            expected = reduced(type_, operator, [array, given])
            assert window.window.read(0, expected.nbytes) == expected.tobytes()


def test_the_order_is_that_of_hosts_whoever_asks() -> None:
    """(2^24 + 1) + 1 is 2^24 in float32, 1 + 1 + 2^24 is 2^24 + 2."""
    with grouped(3) as (_, windows):
        for values, expected in (((2.0**24, 1, 1), 2.0**24), ((1, 1, 2.0**24), 2.0**24 + 2)):
            for window, value in zip(windows, values, strict=True):
                window.window.write(0, np.float32(value).tobytes())
            for window in windows:
                found = np.frombuffer(window.load_reduce(0, 4, "f32"), "f4")[0]
                assert found == expected


def test_halves_are_rounded_once_not_at_each_host() -> None:
    """2048 + 1 is 2048 in float16; 2048 + 1 + 1 is 2050 in the accumulator."""
    with grouped(3) as (_, windows):
        for window, value in zip(windows, (2048, 1, 1), strict=True):
            window.window.write(0, np.float16(value).tobytes())
        assert np.frombuffer(windows[0].load_reduce(0, 2, "f16"), "f2")[0] == 2050


def test_all_halves_survive_a_reduction_with_one_member() -> None:
    """Each of the 65536 bit patterns, widened and rounded, is itself; NaNs stay NaNs."""
    patterns = np.arange(65536, dtype="u4").astype("u2")
    with grouped(1, patterns.nbytes) as (_, (window,)):
        for type_, infinity in (("f16", 0x7C00), ("bf16", 0x7F80)):
            window.window.write(0, patterns.tobytes())
            found = np.frombuffer(window.load_reduce(0, patterns.nbytes, type_), "u2")
            nans = (patterns & 0x7FFF) > infinity
            assert (found[~nans] == patterns[~nans]).all()
            assert ((found[nans] & 0x7FFF) > infinity).all()


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_sums_are_rounded_to_nearest_even(type_: str) -> None:
    """Sums in float32 of halves have up to 24 bits: ties, subnormals and overflows are drawn."""
    rng = np.random.default_rng(7)
    halves = [rng.integers(0, 65536, 60000).astype("u2") for _ in range(2)]
    infinity = 0x7C00 if type_ == "f16" else 0x7F80
    for half in halves:
        half[(half & 0x7FFF) > infinity] = 1  # no NaNs, but infinities
    arrays = [half.view("f2") if type_ == "f16" else half for half in halves]
    expected = reduced(type_, "add", arrays).view("u2")
    with grouped(2, halves[0].nbytes) as (_, windows):
        for window, half in zip(windows, halves, strict=True):
            window.window.write(0, half.tobytes())
        found = np.frombuffer(windows[0].load_reduce(0, halves[0].nbytes, type_), "u2")
    with np.errstate(invalid="ignore"):
        nans = (expected & 0x7FFF) > infinity  # infinity - infinity
    assert (found[~nans] == expected[~nans]).all()
    assert ((found[nans] & 0x7FFF) > infinity).all()


@pytest.mark.parametrize("operator", ["min", "max"])
def test_a_number_beats_a_nan_and_zeros_have_an_order(operator: str) -> None:
    with grouped(2) as (_, (one, two)):
        one.window.write(0, np.array([np.nan, 1, 0.0, -0.0], "f4").tobytes())
        two.window.write(0, np.array([1, np.nan, -0.0, 0.0], "f4").tobytes())
        found = np.frombuffer(one.load_reduce(0, 16, "f32", operator), "f4")
    assert (found[:2] == 1).all()
    assert (np.signbit(found[2:]) == (operator == "min")).all()


def test_a_store_reaches_all_members_at_any_offset() -> None:
    data = bytes(range(1, 256)) * 9
    with grouped(3) as (_, windows):
        for offset in range(9):
            windows[0].store(offset, bytes(offset))
            windows[offset % 3].store(offset, data)
            for window in windows:
                assert window.window.read(offset, len(data)) == data
                assert window.window.read(offset + len(data), 16) == bytes(16)


def test_reductions_at_the_same_time_lose_nothing() -> None:
    rounds, count = 300, 8
    given = np.ones(count, "u4")
    with grouped(4) as (_, windows):

        def add(window: GroupWindow) -> None:
            for _ in range(rounds):
                window.reduce(0, given, "u32")

        threads = [threading.Thread(target=add, args=(window,)) for window in windows]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for window in windows:
            found = np.frombuffer(window.window.read(0, 4 * count), "u4")
            assert (found == 4 * rounds).all()


# --- links


def data_bytes(fabric: Fabric) -> dict[str, tuple[int, int]]:
    """Returns the bytes that left and entered each port."""
    return {
        port["name"]: (
            4 * port["counters"]["port_xmit_data"],
            4 * port["counters"]["port_rcv_data"],
        )
        for port in fabric.show()["ports"]
    }


@pytest.mark.parametrize(
    ("request_", "requester", "others"),
    [
        ("store", (8192, 8192), (0, 8192)),
        ("load_reduce", (8192, 8192), (8192, 0)),
        ("reduce", (8192, 8192), (0, 8192)),
        ("reduce_store", (8192, 8192), (8192, 8192)),
    ],
)
def test_each_link_counts_what_passes_it_once(
    request_: str, requester: tuple[int, int], others: tuple[int, int]
) -> None:
    with grouped(3) as (fabric, windows):
        data = np.zeros(2048, "f4")
        if request_ == "store":
            windows[1].store(0, data)
        elif request_ == "reduce":
            windows[1].reduce(0, data, "f32")
        elif request_ == "load_reduce":
            windows[1].load_reduce(0, 8192, "f32")
        else:
            windows[1].reduce_store(0, 8192, "f32")
        found = data_bytes(fabric)
        for host in range(3):
            moved = requester if host == 1 else others
            assert found[f"host{host}/1"] == moved
            assert found[f"switch0/{host + 1}"] == moved[::-1]
        packets = fabric.show()["ports"][1]["counters"]["port_xmit_packets"]
        assert packets == 2  # of 4096 bytes


def test_the_counters_outlive_the_group() -> None:
    with Fabric(hosts=2) as fabric:
        with fabric.group([0, 1], SIZE) as group, group.map(0) as window:
            window.store(0, bytes(64))
        assert data_bytes(fabric)["host1/1"] == (0, 64)


def test_a_link_that_went_down_ends_the_group_for_all() -> None:
    with Fabric(hosts=3) as fabric:
        group = fabric.group([0, 1, 2], SIZE)
        with group.map(0) as one:
            one.store(0, b"before")
            fabric.set_port("host2", up=False)
            for ask in (
                lambda: one.store(0, b"after"),
                lambda: one.load_reduce(0, 4, "u32"),
                lambda: one.reduce(0, bytes(4), "u32"),
                lambda: one.reduce_store(0, 4, "u32"),
            ):
                with pytest.raises(WindowError, match="the link of host2 went down"):
                    ask()
            fabric.set_port("host2", up=True)
            with pytest.raises(WindowError, match="host2"):
                one.store(0, b"after")
            assert one.window.read(0, 6) == b"before"
        with group.map(0) as again:
            again.store(0, b"after")
        group.free()


def test_a_group_cannot_be_mapped_over_a_link_that_is_down() -> None:
    with Fabric(hosts=2) as fabric, fabric.group([0, 1], SIZE) as group:
        fabric.set_port("host1", up=False)
        with pytest.raises(FabricError, match="the link of host 1 is down"):
            group.map(0)


def test_memory_that_was_taken_away_is_an_error() -> None:
    with Fabric(hosts=2) as fabric:
        group = fabric.group([0, 1], SIZE)
        with group.map(0) as window:
            group.regions[1].free(force=True)
            with pytest.raises(WindowError, match="the memory of host1 is gone"):
                window.load_reduce(0, 4, "f32")
        group.free()


def test_examples() -> None:
    failed, tried = doctest.testmod(group_module)
    assert tried
    assert not failed
