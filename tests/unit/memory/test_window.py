# SPDX-License-Identifier: BSD-3-Clause
"""Windows on regions and on pieces: addresses, loss, caches, and views after close()."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nupa._engine import ffi
from nupa.fabric import Fabric, FabricError, LocalError
from nupa.memory import atomic_fetch_add, atomic_load
from nupa.memory.access import Access
from nupa.memory.region import Region
from nupa.memory.window import Window, WindowError
from nupa.verbs import Context
from tests.unit.child import failure_in_child

PAGE = 4096


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with Fabric(hosts=3) as fabric:
        yield fabric


@pytest.fixture
def region(fabric: Fabric) -> Iterator[Region]:
    region = fabric.pool.alloc(3 * PAGE + 100, "test", share=["host1"])
    yield region
    region.free(force=True)


def watchers() -> set[str]:
    """Lists the threads that wait for a loss: one for each fabric with windows."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            if (task / "comm").read_text() == "nupa-windows\n":
                found.add(task.name)
    return found


def await_that(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        os.sched_yield()


def test_hosts_see_each_others_stores_by_every_face(fabric: Fabric, region: Region) -> None:
    with fabric.host("host0").map(region) as here, fabric.host("host1").map(region) as there:
        assert isinstance(here, Access)
        assert len(here) == 3 * PAGE + 100
        assert here.address != there.address
        here[0:5] = b"slice"
        assert there[0:5] == b"slice"
        here.memory[100:106] = b"memory"
        assert bytes(memoryview(there).cast("B")[100:106]) == b"memory"
        here.array("u4")[50] = 0xCAFE
        assert there.read(200, 4) == b"\xfe\xca\0\0"
        there.write(len(there) - 3, b"end")
        assert here[-3:] == b"end"
        ffi.cast("uint64_t *", here.pointer)[40] = 77
        assert atomic_fetch_add(there, 320, 1) == 77
        assert atomic_load(here, 320) == 78
        assert int(ffi.cast("uintptr_t", here.pointer)) == here.address
        assert repr(here) == "<window of host0 on region test: 12388 bytes>"


def test_a_host_that_does_not_share_the_region_has_no_window(
    fabric: Fabric, region: Region
) -> None:
    with pytest.raises(LocalError, match="not shared with host 2"):
        fabric.host("host2").map(region)


def test_a_region_that_is_gone_has_no_window(fabric: Fabric) -> None:
    region = fabric.pool.alloc(PAGE)
    region.free()
    with pytest.raises(WindowError, match="it is gone"):
        fabric.host(0).map(region)


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, -1), (3 * PAGE + 100, 1), (1 << 70, 8)])
def test_what_is_not_inside_is_refused(
    fabric: Fabric, region: Region, offset: int, size: int
) -> None:
    with fabric.host(0).map(region) as window:
        for call in (window.read, window.flush, window.invalidate):
            with pytest.raises(LocalError, match="it has 0x3064"):
                call(offset, size)
        with pytest.raises(LocalError, match="it has 0x3064"):
            window.write(offset if size >= 0 else len(window), b"x")


def test_arrays_are_of_whole_items(fabric: Fabric, region: Region) -> None:
    with fabric.host(0).map(region) as window, pytest.raises(LocalError, match="not a multiple"):
        window.array("u8")


def test_a_region_taken_away_reads_as_ones_and_raises_where_that_was_asked_for(
    fabric: Fabric,
) -> None:
    region = fabric.pool.alloc(PAGE, share=["host1"])
    quiet = fabric.host(0).map(region)
    loud = fabric.host(1).map(region, on_loss="raise")
    array = quiet.array()
    with pytest.raises(LocalError, match="it has windows"):
        region.free()
    region.free(force=True)
    # The next allocation gets the same memory.
    with fabric.pool.alloc(PAGE) as other, fabric.host(0).map(other) as theirs:
        theirs[0:5] = b"later"
        assert quiet.revoked
        assert loud.revoked
        assert (array == 0xFF).all()
        assert quiet[0:8] == loud[0:8] == b"\xff" * 8
        assert quiet.read(0, 4) == b"\xff" * 4
        quiet.write(0, b"nobody sees")
        assert quiet.atomic("fetch_add", 0, 1) == 2**64 - 1
        quiet.flush()
        quiet.invalidate()
        for call in (
            lambda: loud.read(0, 4),
            lambda: loud.write(0, b"x"),
            lambda: atomic_load(loud, 0),
            loud.flush,
            loud.invalidate,
        ):
            with pytest.raises(WindowError, match="its memory was taken away"):
                call()
        assert theirs[0:5] == b"later"
    quiet.close()
    loud.close()


def test_views_of_a_closed_window_are_ones_until_the_last_is_gone(fabric: Fabric) -> None:
    region = fabric.pool.alloc(PAGE)
    window = fabric.host(0).map(region)
    window[0:4] = b"data"
    view, array = window.memory, window.array("u8")
    window.close()
    window.close()
    region.free()  # not mapped
    with pytest.raises(LocalError, match="is closed"):
        window.read(0, 4)
    assert not window.revoked
    del window
    gc.collect()
    assert view[0:4] == b"\xff" * 4
    array[0] = 1  # ours alone
    del view
    assert array[1] == 2**64 - 1


def test_the_thread_is_there_while_windows_are(fabric: Fabric, region: Region) -> None:
    before = watchers()  # also of a fabric that has just ended
    with fabric.host(0).map(region), fabric.host(1).map(region):
        await_that(lambda: len(watchers() - before) == 1)
        ours = watchers() - before
    await_that(lambda: not watchers() & ours)


def test_a_child_has_none_of_the_windows_and_maps_its_own(fabric: Fabric, region: Region) -> None:
    with fabric.host(0).map(region, on_loss="raise") as window:
        window[0:4] = b"data"

        def check() -> None:
            with fabric.host(1).map(region) as own:
                found = own.read(0, 4)
                own[0:4] = b"both"
            assert window[0:4] == b"\xff" * 4
            assert found == b"data"
            refused(lambda: window.read(0, 4), "the parent process's")

        assert failure_in_child(check) == ""
        assert window.read(0, 4) == b"both"


def test_a_child_of_a_process_that_is_attached_opens_the_fabric_again(
    fabric: Fabric, region: Region
) -> None:
    with Context(fabric=fabric, host=0):

        def check() -> None:
            refused(lambda: fabric.host(1).map(region), "open it again")

        assert failure_in_child(check) == ""


def refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(WindowError, match=why):
        call()


def test_a_window_outlives_its_fabric_object() -> None:
    with Fabric(hosts=1) as alone:
        region = alone.pool.alloc(PAGE)
        window = alone.host(0).map(region)
    window[0:4] = b"here"
    assert window.read(0, 4) == b"here"
    window.close()


# Coherence by software


def test_a_stale_read_is_stale_each_time(fabric: Fabric) -> None:
    with (
        fabric.pool.alloc(PAGE, share=["host1"], coherence="software") as region,
        fabric.host(0).map(region) as here,
        fabric.host(1).map(region) as there,
    ):
        assert here.coherence == "software"
        here[0:5] = b"fresh"
        assert there[0:5] == bytes(5)
        here.flush(0, 64)
        for _ in range(100):
            assert there.read(0, 5) == bytes(5)
        there.invalidate(0, 5)
        assert there[0:5] == b"fresh"
        assert atomic_fetch_add(here, 64, 3) == 0
        assert atomic_load(there, 64) == 0  # as a CPU's in its own cache


LINES = 8
step = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["store", "flush", "invalidate"]),
    st.integers(0, LINES - 1),
    st.integers(1, 255),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(step, max_size=40))
def test_two_caches_do_what_a_model_of_lines_does(
    fabric: Fabric, steps: list[tuple[int, str, int, int]]
) -> None:
    with (
        fabric.pool.alloc(PAGE, share=["host1"], coherence="software") as region,
        fabric.host(0).map(region) as a,
        fabric.host(1).map(region) as b,
    ):
        home = [bytes(64)] * LINES
        caches = [home.copy(), home.copy()]
        fetched = [home.copy(), home.copy()]
        for who, what, line, value in steps:
            window, cache = (a, b)[who], caches[who]
            at = line * 64
            if what == "store":
                window[at + value % 64 : at + value % 64 + 1] = bytes([value])
                changed = bytearray(cache[line])
                changed[value % 64] = value
                cache[line] = bytes(changed)
            elif what == "flush":
                window.flush(at, 64)
                if cache[line] != fetched[who][line]:
                    home[line] = fetched[who][line] = cache[line]
            else:
                window.invalidate(at + 63, 1)
                cache[line] = fetched[who][line] = home[line]
            assert a.read(0, 64 * LINES) == b"".join(caches[0])
            assert b.read(0, 64 * LINES) == b"".join(caches[1])
    with fabric.host(0).map(fabric.pool.alloc(PAGE)) as clean:
        assert clean.read(0, PAGE) == bytes(PAGE)


# Pieces


@contextmanager
def memory_file(size: int) -> Iterator[int]:
    fd = os.memfd_create("test-window")
    try:
        os.ftruncate(fd, size)
        yield fd
    finally:
        os.close(fd)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.permutations(range(8)), st.sampled_from([1, 2, 4]), st.data())
def test_pieces_take_turns_as_arithmetic_says(
    order: list[int], ways: int, data: st.DataObject
) -> None:
    turns_each = 8 // ways
    granularity = PAGE * data.draw(st.sampled_from([1, 2]))
    with memory_file(8 * 2 * PAGE) as fd:
        places = [place for place in order if place < ways]
        pieces = [place * turns_each * granularity for place in places]
        size = ways * turns_each * granularity
        with Window.of_pieces(fd, pieces, size, granularity) as window:
            for offset in range(0, size, PAGE):
                turn, rest = divmod(offset, granularity)
                at = pieces[turn % ways] + turn // ways * granularity + rest
                window[offset : offset + 8] = b"%8d" % offset
                assert os.pread(fd, 8, at) == b"%8d" % offset


def test_pieces_finer_than_a_page_name_the_other_way(fabric: Fabric) -> None:
    with fabric.alloc(2 * PAGE) as memory, pytest.raises(LocalError, match="read and write of the"):
        Window.of_pieces(fabric, [memory.offset, memory.offset + PAGE], 2 * PAGE, 256)


def test_pieces_of_pool_memory_are_where_it_is(fabric: Fabric) -> None:
    with (
        fabric.alloc(4 * PAGE) as memory,
        Window.of_pieces(
            fabric, [memory.offset + 2 * PAGE, memory.offset], 4 * PAGE, PAGE
        ) as window,
    ):
        for turn, at in enumerate((2, 0, 3, 1)):
            window[turn * PAGE : turn * PAGE + 1] = bytes([turn + 1])
            assert memory[at * PAGE : at * PAGE + 1] == bytes([turn + 1])


def test_pieces_of_the_pool_are_somebodys(fabric: Fabric) -> None:
    with pytest.raises((LocalError, FabricError)):
        Window.of_pieces(fabric, [1 << 29], PAGE)


def test_a_window_of_pieces_is_revoked_by_who_has_them() -> None:
    with memory_file(PAGE) as fd, Window.of_pieces(fd, [0], PAGE, on_loss="raise") as window:
        array = np.frombuffer(window, "u8")
        array[0] = 5
        window.revoke()
        assert array[0] == 2**64 - 1
        assert os.pread(fd, 1, 0) == b"\5"
        with pytest.raises(WindowError):
            window.read(0, 1)


@pytest.mark.parametrize("wrong", [{"coherence": "none"}, {"on_loss": "sigbus"}])
def test_options_that_there_are_not_are_refused(wrong: dict[str, str]) -> None:
    with memory_file(PAGE) as fd, pytest.raises(LocalError, match="choose one"):
        Window.of_pieces(fd, [0], PAGE, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pieces", "size", "granularity"),
    [([], PAGE, 0), ([-1], PAGE, 0), ([0], -1, 0), ([0], 1 << 64, 0), ([PAGE], PAGE, 0)],
)
def test_pieces_that_are_none_are_refused(pieces: list[int], size: int, granularity: int) -> None:
    with memory_file(PAGE) as fd, pytest.raises(LocalError):
        Window.of_pieces(fd, pieces, size, granularity)
