# SPDX-License-Identifier: BSD-3-Clause
"""Limits of groups, with a test one past each, and names."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

from nupa.base.errors import FabricError, LocalError
from nupa.fabric import Fabric
from nupa.memory import reduction
from nupa.memory.group import MEMBERS_MAX, NAME_BYTES_MAX, Group
from nupa.topology.topology import star
from tests.unit.memory.grouped import SIZE, grouped


def test_a_group_has_64_hosts_and_not_65() -> None:
    with Fabric(hosts=MEMBERS_MAX + 1) as fabric:
        hosts = range(MEMBERS_MAX)
        with fabric.group(hosts, 64) as group, group.map(63) as window:
            window.store(0, np.ones(1, "u4"))
            assert window.load_reduce(0, 4, "u32") == (64).to_bytes(4, "little")
        with pytest.raises(LocalError, match="give 1 to 64 hosts"):
            fabric.group(range(MEMBERS_MAX + 1), 64)
        with pytest.raises(LocalError, match="give 1 to 64 hosts"):
            fabric.group([], 64)


def test_requests_end_where_the_group_does() -> None:
    with grouped(2) as (_, (window, _two)):
        window.store(SIZE - 4, bytes(4))
        window.load_reduce(SIZE - 4, 4, "u32")
        window.store(SIZE, b"")
        for ask in (
            lambda: window.store(SIZE - 3, bytes(4)),
            lambda: window.load_reduce(SIZE - 3, 4, "u32"),
            lambda: window.reduce(SIZE, bytes(4), "u32"),
            lambda: window.reduce_store(-4, 4, "u32"),
        ):
            with pytest.raises(LocalError, match="it has 0x4000"):
                ask()


def test_elements_are_aligned() -> None:
    with grouped(2) as (_, (window, _two)):
        for offset, size in ((2, 4), (0, 6)):
            with pytest.raises(LocalError, match="multiples of the element's bytes"):
                window.load_reduce(offset, size, "f32")
        window.load_reduce(2, 6, "f16")


@pytest.mark.parametrize("operator", ["and", "or", "xor"])
@pytest.mark.parametrize("type_", ["f16", "bf16", "f32", "f64"])
def test_floats_have_no_bitwise_operators(type_: str, operator: str) -> None:
    with grouped(2) as (_, (window, _two)), pytest.raises(LocalError, match="are of integers"):
        window.reduce_store(0, 8, type_, operator)


def test_names_of_types_and_operators_are_checked() -> None:
    with grouped(2) as (_, (window, _two)):
        with pytest.raises(LocalError, match="no type 'f8': choose one of f16, bf16"):
            window.load_reduce(0, 8, "f8")
        with pytest.raises(LocalError, match="no operator 'mul'"):
            window.load_reduce(0, 8, "f32", "mul")


def test_members_are_hosts_of_the_fabric_once_each() -> None:
    with Fabric(hosts=3) as fabric:
        with pytest.raises(LocalError, match="host1 is given twice"):
            fabric.group(["host0", "host1", 1], SIZE)
        with pytest.raises(LocalError, match="no host 'host9'"):
            fabric.group(["host9"], SIZE)
        with (
            fabric.group(["host0", "host1"], SIZE) as group,
            pytest.raises(LocalError, match="host2 is no member"),
        ):
            group.map("host2")


def test_groups_are_found_by_name() -> None:
    longest = "n" * NAME_BYTES_MAX
    with Fabric(hosts=2) as fabric:
        with fabric.group([1, 0], SIZE, longest) as group:
            assert group.hosts == ("host0", "host1")
            found = fabric.find_group(longest)
            assert isinstance(found, Group)
            assert [r.id for r in found.regions] == [r.id for r in group.regions]
            with pytest.raises(LocalError, match="there is one"):
                fabric.group([0], SIZE, longest)
        with pytest.raises(LocalError, match="there is no group"):
            fabric.find_group(longest)
        with pytest.raises(LocalError, match="at most 23 bytes"):
            fabric.group([0], SIZE, longest + "n")


def test_regions_of_a_group_that_was_never_whole_are_no_group() -> None:
    """A process that dies while it makes a group leaves the first regions of it."""
    with Fabric(hosts=3) as fabric, ExitStack() as stack:
        pool = fabric.pool
        for place in (0, 1, 2):
            tag = f"{place}/4 half"
            stack.enter_context(pool.alloc(SIZE, tag, "all", host=fabric.hosts[place]))
        with pytest.raises(LocalError, match="there is no group 'half'"):
            fabric.find_group("half")
        with fabric.group([1, 2], SIZE, "half") as group:
            assert [r.id for r in fabric.find_group("half").regions] == [
                r.id for r in group.regions
            ]
        for tag in ("0/0 none", "5/2 none", "0/2 none"):
            stack.enter_context(pool.alloc(SIZE, tag, "all", host=fabric.hosts[0]))
        with pytest.raises(LocalError, match="there is no group 'none'"):
            fabric.find_group("none")


def test_a_group_without_room_leaves_nothing_behind() -> None:
    small = star(2, "small")
    small.segment = small.segment._replace(pool_bytes=1 << 20)
    with Fabric(topology=small) as fabric:
        with pytest.raises(FabricError, match="no run of free memory"):
            fabric.group([0, 1], 768 << 10)
        assert fabric.pool.regions() == []


def test_a_closed_window_says_so() -> None:
    with grouped(2) as (_, (window, _two)):
        window.close()
        window.close()
        with pytest.raises(LocalError, match="is closed"):
            window.store(0, b"")


def test_reduce_into_checks_its_buffers() -> None:
    with pytest.raises(LocalError, match="give as many of both"):
        reduction.reduce_into(bytearray(8), bytes(4), "f32", "add")
    with pytest.raises(LocalError, match="give as many of both"):
        reduction.reduce_into(bytearray(6), bytes(6), "f32", "add")
    assert reduction.permits("u64", "xor")
    assert not reduction.permits("f64", "xor")
