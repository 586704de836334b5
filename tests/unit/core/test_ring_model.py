# SPDX-License-Identifier: BSD-3-Clause
"""The ring of segment/ring/ring.h against a deque, by any operations in any order."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

FACES = Path(os.environ.get("NUPA_TEST_FACES", Path(__file__).parents[3] / "build/dev/tests"))
LINE_BYTES = 64
EPOCHS = 1 << 24
COUNTS = 1 << 40
EMPTY, MESSAGE = 0, 1

face = ctypes.CDLL(str(FACES / "libmodel_face.so"))
face.face_ring_new.restype = ctypes.c_void_p
for name, arguments in {
    "face_ring_new": [ctypes.c_uint32] * 3,
    "face_ring_free": [ctypes.c_void_p],
    "face_ring_send": [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint32],
    "face_ring_take": [ctypes.c_void_p] * 4,
    "face_ring_publish": [ctypes.c_void_p],
    "face_ring_drained": [ctypes.c_void_p],
    "face_ring_lie": [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64],
    "face_ring_tell_again": [ctypes.c_void_p],
}.items():
    getattr(face, name).argtypes = arguments


class DmaModel:
    """The DMA channel: bytes from *start* to *end*, payloads contiguous and in whole lines."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.end = 0

    def span(self, payload: int) -> int:
        lines = -(-payload // LINE_BYTES) * LINE_BYTES
        left = self.size - self.end % self.size
        return lines if lines <= left else left + lines


class RingMachine(RuleBasedStateMachine):
    """Both ends of one ring; the model keeps the messages and the producer's knowledge."""

    ring: int | None = None

    @initialize(
        lines=st.sampled_from([16, 32, 64]),
        dma_lines=st.sampled_from([64, 128]),
        epoch=st.sampled_from([1, 2, EPOCHS - 1]),
    )
    def make(self, lines: int, dma_lines: int, epoch: int) -> None:
        self.lines, self.epoch = lines, epoch
        self.dma = DmaModel(dma_lines * LINE_BYTES)
        self.payload_max = self.dma.size // 4
        self.ring = face.face_ring_new(lines, self.dma.size, epoch)
        assert self.ring
        self.queue: deque[tuple[int, bytes, int]] = deque()
        self.sent = self.taken = self.published = 0
        self.dma_taken = self.dma_published = 0
        self.lying = False

    def teardown(self) -> None:
        if self.ring:
            face.face_ring_free(self.ring)

    @precondition(lambda self: not self.lying)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        size = data.draw(st.one_of(st.just(0), st.integers(1, self.payload_max)), "bytes")
        payload = bytes((self.sent + i) & 0xFF for i in range(size))
        span = self.dma.span(size) if size else 0
        room = self.sent - self.published < self.lines and (
            not size or self.dma.end + span - self.dma_published <= self.dma.size
        )
        assert face.face_ring_send(self.ring, self.sent, payload, size) == room
        if room:
            self.queue.append((self.sent, payload, span))
            self.sent += 1
            self.dma.end += span

    @precondition(lambda self: not self.lying)
    @rule(count=st.integers(1, 64))
    def take(self, count: int) -> None:
        number, size = ctypes.c_uint32(), ctypes.c_uint32()
        payload = ctypes.create_string_buffer(self.payload_max)
        for _ in range(count):
            result = face.face_ring_take(
                self.ring, ctypes.byref(number), payload, ctypes.byref(size)
            )
            if not self.queue:
                assert result == EMPTY
                return
            assert result == MESSAGE
            wanted_number, wanted, span = self.queue.popleft()
            assert (number.value, payload.raw[: size.value]) == (wanted_number, wanted)
            self.taken += 1
            self.dma_taken += span
            if (
                self.taken - self.published >= self.lines // 8
                or self.dma_taken - self.dma_published >= self.dma.size // 8
            ):
                self.note_publish()

    @precondition(lambda self: not self.lying)
    @rule()
    def publish(self) -> None:
        face.face_ring_publish(self.ring)
        self.note_publish()

    def note_publish(self) -> None:
        self.published, self.dma_published = self.taken, self.dma_taken

    @precondition(lambda self: self.sent > self.published)
    @rule(
        epoch=st.integers(0, EPOCHS - 1),
        ahead=st.integers(1, COUNTS // 2),
        own_epoch=st.booleans(),
    )
    def lie(self, epoch: int, ahead: int, own_epoch: bool) -> None:
        """Stores heads beyond the tails, or of another epoch, which the producer must ignore."""
        if own_epoch or epoch == self.epoch:
            word = self.epoch << 40 | (self.sent + ahead) % COUNTS
            dma_word = self.epoch << 40 | (self.dma.end + ahead) % COUNTS
        else:
            word = epoch << 40 | self.taken
            dma_word = epoch << 40 | self.dma_taken
        face.face_ring_lie(self.ring, word, dma_word)
        assert not face.face_ring_drained(self.ring)
        self.lying = True

    @precondition(lambda self: self.lying)
    @rule()
    def tell_the_truth_again(self) -> None:
        face.face_ring_tell_again(self.ring)
        self.lying = False

    @precondition(lambda self: self.ring is not None and not self.lying)
    @invariant()
    def drained_only_when_all_was_published(self) -> None:
        assert bool(face.face_ring_drained(self.ring)) == (self.published == self.sent)


@pytest.mark.timeout(120)
def test_the_ring_behaves_as_a_queue_with_two_limits() -> None:
    run_state_machine_as_test(
        RingMachine,
        settings=settings(max_examples=150, stateful_step_count=80, deadline=None),
    )
