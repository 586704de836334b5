# SPDX-License-Identifier: BSD-3-Clause
"""Parts of memory, and interrupts, without devices around them."""

from __future__ import annotations

import gc
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.base.errors import LocalError
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.interrupts import PENDING_AT
from nupa.cxl.media.media import MediaError
from nupa.cxl.media.parts import LINE_BYTES, Memory, Part, PartedMedia
from nupa.cxl.registers.config import ConfigSpace

LINES = 16
BYTES = LINES * LINE_BYTES
Cut = tuple[int, int, int, bool]


def media_of(cuts: list[Cut], memory: Memory) -> PartedMedia:
    """Make media of cuts: lines left out, lines taken, the first line of the memory, shared or
    not."""
    parts, at = [], 0
    for gap, lines, offset, shared in cuts:
        at += gap * LINE_BYTES
        size = min(lines, LINES - offset) * LINE_BYTES
        parts.append(Part(at, size, memory, offset * LINE_BYTES, shared))
        at += size
    return PartedMedia(at + LINE_BYTES, parts)


@settings(max_examples=50, derandomize=True)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, LINES - 1), st.booleans()),
        min_size=1,
        max_size=5,
    ),
    st.data(),
)
def test_each_byte_is_where_its_part_says_or_nowhere(cuts: list[Cut], data: st.DataObject) -> None:
    memory = Memory(bytearray(range(256)) * (BYTES // 256))
    media = media_of(cuts, memory)
    there = {part.dpa + i: part.offset + i for part in media.parts for i in range(part.size)}
    dpa = data.draw(st.integers(0, media.size - 1))
    size = data.draw(st.integers(1, media.size - dpa))
    places = [there.get(at) for at in range(dpa, dpa + size)]
    if None in places:
        for call in (media.read, media.check):
            with pytest.raises(MediaError):
                call(dpa, size)
        with pytest.raises(MediaError):
            media.write(dpa, bytes(size))
    else:
        media.check(dpa, size)
        assert media.read(dpa, size) == bytes(at % 256 for at in places if at is not None)
    media.clear(dpa, size)
    own = {
        there[at]
        for part in media.parts
        if not part.shared
        for at in range(part.dpa, part.end)
        if dpa <= at < dpa + size
    }
    wanted = bytes(0 if at in own else at % 256 for at in range(BYTES))
    assert memory.read(0, BYTES) == wanted


def test_poison_goes_with_what_is_cleared_and_lies_in_parts_alone() -> None:
    memory = Memory.anonymous(8192)
    media = PartedMedia(16384, [Part(4096, 4096, memory)])
    media.set_poison(4096 + 64, True)
    assert memory.is_poisoned(64)
    assert media.is_poisoned(4096 + 100)
    assert not media.is_poisoned(0)
    with pytest.raises(MediaError):
        media.set_poison(0, True)
    memory.write(4000, b"kept")
    memory.clear(0, 96)  # lines in part are not whole
    assert memory.is_poisoned(64)
    memory.clear(0, 4096)
    assert not memory.is_poisoned(64)
    assert memory.read(4000, 4) == bytes(4)


def test_parts_that_cannot_be_are_refused_and_nothing_changes() -> None:
    memory, calls = Memory.anonymous(4096), []
    media = PartedMedia(8192, [Part(0, 64, memory)])
    media.on_change(lambda: calls.append(media.parts))
    for part in (Part(8192, 64, memory), Part(32, 64, memory), Part(64, 64, memory, 4096)):
        with pytest.raises(MediaError):
            media.set_parts([*media.parts, part])
    media.set_parts(media.parts)
    assert calls == []
    media.set_parts([])
    assert calls == [()]
    with pytest.raises(LocalError):
        Memory(bytearray(100))


def test_memory_in_a_loop_is_collected() -> None:
    """Python's collector crashes on a memoryview in a loop (gh-77894), so none is kept."""
    for _ in range(20):
        loop: list[object] = []
        loop += [loop, Memory(memoryview(bytearray(4096))), Memory.anonymous(4096)]
        del loop
    assert gc.collect() > 0


@pytest.fixture
def device() -> Type3:
    device = Type3(256 << 20)
    write = device.msix.space.write
    for offset, value in ((0, 0xFEE0_1000), (8, 7), (12, 0)):
        write(16 * 3 + offset, 4, value)
    return device


def enable(config: ConfigSpace, bits: int) -> None:
    config["msix"].write(2, 2, bits)


def test_an_interrupt_is_a_write_of_address_and_data(device: Type3) -> None:
    heard: list[tuple[int, int]] = []
    device.msix.wire = lambda address, data: heard.append((address, data))
    device.msix.send(3)  # MSI-X is not enabled
    enable(device.config, 1 << 15)
    assert heard == []
    device.msix.send(3)
    assert heard == [(0xFEE0_1000, 7)]


@pytest.mark.parametrize(
    ("mask", "unmask"),
    [
        (lambda d: enable(d.config, 3 << 14), lambda d: enable(d.config, 1 << 15)),
        (lambda d: d.msix.space.write(60, 4, 1), lambda d: d.msix.space.write(60, 4, 0)),
    ],
)
def test_a_masked_message_stays_pending_until_it_is_unmasked(
    device: Type3, mask: Callable[[Type3], None], unmask: Callable[[Type3], None]
) -> None:
    """PCIe 6.0 6.1.4.5: by the function mask, and by the mask of one vector."""
    heard: list[int] = []
    device.msix.wire = lambda _address, data: heard.append(data)
    enable(device.config, 1 << 15)
    mask(device)
    device.msix.send(3)
    assert heard == []
    assert device.msix.space.read(PENDING_AT, 8) == 1 << 3
    unmask(device)
    assert heard == [7]
    assert device.msix.space.read(PENDING_AT, 8) == 0
