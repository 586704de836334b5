# SPDX-License-Identifier: BSD-3-Clause
"""One body of tests for each kind of window on memory: CXL, UALink, NVLink, a plain buffer."""

from __future__ import annotations

import doctest
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.accel import nvlink as nvlink_module
from nupa.accel import ualink as ualink_module
from nupa.accel.local import BufferWindow
from nupa.accel.nvlink import Node
from nupa.accel.ualink import Pod
from nupa.base.errors import LocalError
from nupa.fabric import Fabric
from nupa.memory import (
    Access,
    Atomic,
    atomic_compare_swap,
    atomic_fetch_add,
    atomic_fetch_and,
    atomic_fetch_or,
    atomic_fetch_xor,
    atomic_load,
    atomic_store,
    atomic_swap,
)
from nupa.memory.access import WORD, WindowBase
from nupa.memory.window import Coherence, Window

SIZE = 4 * mmap.PAGESIZE
AT = 64 + 8  # the start of a window in the memory behind it


def memory_file(size: int) -> int:
    """Makes a descriptor of memory that no window outlives."""
    fd = os.memfd_create("windows")
    os.ftruncate(fd, size)
    return fd


@contextmanager
def cxl(coherence: Coherence = "hardware") -> Iterator[Access]:
    """Makes a window on two places of one file, interleaved by pages, as two devices would be."""
    fd = memory_file(SIZE)
    pieces = (2 * mmap.PAGESIZE, 0)
    try:
        with Window.of_pieces(fd, pieces, SIZE, mmap.PAGESIZE, coherence=coherence) as window:
            yield window
    finally:
        os.close(fd)


@contextmanager
def cxl_software() -> Iterator[Access]:
    with cxl("software") as window:
        yield window


@contextmanager
def plain() -> Iterator[Access]:
    with BufferWindow(bytearray(SIZE)) as window:
        yield window


def pod_window(seed: int | None, *, posted: bool = False) -> WindowBase:
    pod = Pod(random=None if seed is None else Random(seed))
    one, two = pod.attach(5, bytearray(64)), pod.attach(1023, bytearray(AT + SIZE + 56))
    return one.window(two, AT, SIZE, posted=posted)


@contextmanager
def ualink() -> Iterator[Access]:
    with pod_window(seed=3) as window:
        yield window


@contextmanager
def ualink_posted() -> Iterator[Access]:
    with pod_window(seed=4, posted=True) as window:
        yield window


@contextmanager
def nvlink() -> Iterator[Access]:
    node = Node()
    one, two = node.attach(0, bytearray(64)), node.attach(1, bytearray(AT + SIZE))
    one.enable_peer_access(two)
    with one.map(two, AT, SIZE) as window:
        yield window


Kind = Callable[[], AbstractContextManager[Access]]
KINDS = (plain, cxl, cxl_software, ualink, ualink_posted, nvlink)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__)

RANGES = st.tuples(st.integers(0, SIZE), st.integers(0, 700)).map(
    lambda pair: (pair[0], min(pair[1], SIZE - pair[0]))
)
WORDS = st.integers(0, WORD)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), RANGES),
        st.tuples(st.just("write"), RANGES, st.binary(min_size=1, max_size=8)),
        st.tuples(
            st.sampled_from(list(Atomic)),
            st.integers(0, 20).map(lambda index: index * 8),
            WORDS,
            st.sampled_from([0, 1, WORD]),
        ),
        st.tuples(st.just("flush")),
    ),
    max_size=25,
)


def expected(operation: Atomic, was: int, operand: int, compare: int) -> int:
    """Returns the model's own arithmetic."""
    return {
        Atomic.LOAD: was,
        Atomic.STORE: operand,
        Atomic.FETCH_ADD: (was + operand) % 2**64,
        Atomic.FETCH_AND: was & operand,
        Atomic.FETCH_OR: was | operand,
        Atomic.FETCH_XOR: was ^ operand,
        Atomic.SWAP: operand,
        Atomic.COMPARE_SWAP: operand if was == compare else was,
    }[operation]


@each_kind
@settings(max_examples=25, derandomize=True)
@given(steps=STEPS)
def test_a_window_is_bytes_to_its_one_user(kind: Kind, steps: list[tuple[Any, ...]]) -> None:
    model = bytearray(SIZE)
    with kind() as window:
        for what, *args in steps:
            if what == "read":
                offset, size = args[0]
                assert window.read(offset, size) == model[offset : offset + size]
            elif what == "write":
                offset, size = args[0]
                data = (args[1] * size)[:size]
                window.write(offset, data)
                model[offset : offset + size] = data
            elif what == "flush":
                window.flush()
            else:
                offset, operand, compare = args
                was = int.from_bytes(model[offset : offset + 8], "little")
                operand = 0 if what is Atomic.LOAD else operand
                assert window.atomic(what, offset, operand, compare) == was
                now = expected(what, was, operand, compare)
                model[offset : offset + 8] = now.to_bytes(8, "little")
        window.flush()
        assert window.read(0, len(window)) == model


@each_kind
def test_atomic_functions_take_each_window(kind: Kind) -> None:
    with kind() as window:
        atomic_store(window, 8, WORD)
        assert atomic_fetch_add(window, 8, 3) == WORD
        assert atomic_fetch_or(window, 8, 4) == 2
        assert atomic_fetch_xor(window, 8, 5) == 6
        assert atomic_fetch_and(window, 8, 1) == 3
        assert atomic_compare_swap(window, 8, 0, 7) == 1
        assert atomic_compare_swap(window, 8, 1, 7) == 1
        assert atomic_swap(window, 8, 9) == 7
        assert atomic_load(window, 8) == 9
        assert window.read(0, 24) == bytes(8) + b"\t" + bytes(15)


def test_memory_of_the_pool_is_an_accelerators_and_a_devices() -> None:
    with Fabric(hosts=2) as fabric, fabric.alloc(4096) as memory:
        pod, node = Pod(), Node()
        one, two = pod.attach(0, bytearray(64)), pod.attach(1, memory)
        three, four = node.attach(0, bytearray(64)), node.attach(1, two.memory)
        three.enable_peer_access(four)
        with one.window(two) as ualink, three.map(four) as nvlink:
            ualink.write(60, b"one memory")
            assert nvlink.read(60, 10) == bytes(memoryview(memory)[60:70]) == b"one memory"


@pytest.mark.parametrize("memory", [b"read only", "text", 7, memoryview(bytearray(64))[::2]])
def test_what_is_no_writable_buffer_is_refused(memory: object) -> None:
    for attach in (Pod().attach, Node().attach):
        with pytest.raises(LocalError, match="give a window, or a writable contiguous buffer"):
            attach(0, memory)


@each_kind
@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (SIZE, 1), (SIZE - 8, 9), (0, SIZE + 1)])
def test_what_is_not_inside_is_refused_and_changes_nothing(
    kind: Kind, offset: int, size: int
) -> None:
    with kind() as window:
        with pytest.raises(LocalError, match="bytes at"):
            window.read(offset, size)
        with pytest.raises(LocalError, match="bytes at"):
            window.write(offset, b"x" * size)
        assert window.read(0, SIZE) == bytes(SIZE)
        assert window.read(SIZE, 0) == b""


@each_kind
@pytest.mark.parametrize(
    ("offset", "operand"), [(4, 1), (SIZE, 1), (-8, 1), (0, -1), (0, WORD + 1)]
)
def test_an_atomic_is_of_an_aligned_word_inside(kind: Kind, offset: int, operand: int) -> None:
    with kind() as window:
        with pytest.raises(LocalError):
            window.atomic(Atomic.FETCH_ADD, offset, operand)
        assert window.read(0, SIZE) == bytes(SIZE)


@each_kind
def test_a_window_that_is_closed_is_used_no_more(kind: Kind) -> None:
    with kind() as window:
        window.close()
        window.close()
        for use in (lambda: window.read(0, 1), lambda: window.write(0, b"x"), window.flush):
            with pytest.raises(LocalError, match="closed"):
                use()


@pytest.mark.parametrize("module", [nvlink_module, ualink_module], ids=lambda each: each.__name__)
def test_doctests(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
