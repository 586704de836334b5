# SPDX-License-Identifier: BSD-3-Clause
"""Chunks between ranks by loads and stores: each rank has an inbox, a region of the fabric.

An inbox has a channel for each rank that sends to it:

    tail (the sender stores it) | head (the receiver) | tag, size of each slot | slots

    W1  A slot is filled before `tail` counts it (release), and read after that is seen (acquire).
    W2  `head` counts a slot after it was copied; the sender fills it again after that.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.collectives.elements import numpy
from nupa.collectives.rank import RankError, release
from nupa.collectives.transport import SLOTS, Arrival
from nupa.memory.window import Window

if TYPE_CHECKING:
    from nupa.collectives.board import Board
    from nupa.collectives.elements import Octets
    from nupa.core.segment import HostInfo
    from nupa.fabric import Fabric

_INBOX_BYTES = 4 << 20  # about so much for all channels
_CHUNK_MIN_BYTES = 4096
_CHUNK_MAX_BYTES = 128 << 10
_TAIL, _HEAD, _SLOTS = 0, 64, 128
_SLOT_HEAD_BYTES = 16
_CHANNEL_HEAD_BYTES = 256


class _Channel:
    """A channel in an inbox, as one of its two ends has it."""

    def __init__(self, window: Window, at: int, chunk_bytes: int) -> None:
        self._window = window
        self._at = at
        self._size = len(window)
        self._before = ffi.new("uint64_t *")
        octets = numpy().frombuffer(window, "u1")
        data = at + _CHANNEL_HEAD_BYTES
        self.slots: list[Octets] = [
            octets[data + i * chunk_bytes : data + (i + 1) * chunk_bytes] for i in range(SLOTS)
        ]
        heads = octets[at + _SLOTS : at + _SLOTS + SLOTS * _SLOT_HEAD_BYTES]
        self.heads: Any = heads.view("u8")
        self.own = 0  # of the two counters, this end's

    def load(self, offset: int) -> int:
        lib.nupa_word_atomic(
            self._window.pointer, self._size, self._at + offset, lib.NUPA_WORD_LOAD, 0, 0,
            self._before,
        )  # fmt: skip
        return int(self._before[0])

    def advance(self, offset: int) -> None:
        self.own += 1
        lib.nupa_word_atomic(
            self._window.pointer, self._size, self._at + offset, lib.NUPA_WORD_STORE, self.own, 0,
            self._before,
        )  # fmt: skip


def chunk_bytes(ranks: int) -> int:
    """Returns the bytes of a slot: a power of two."""
    each = _INBOX_BYTES // (SLOTS * ranks)
    return max(_CHUNK_MIN_BYTES, min(_CHUNK_MAX_BYTES, 1 << each.bit_length() - 1))


class Windows(Closing):
    """The inbox of this rank, and windows on those of the ranks that it sends to."""

    def __init__(self, fabric: Fabric, host: HostInfo, board: Board) -> None:
        self._fabric, self._host, self._board = fabric, host, board
        chunk = self.chunk_bytes = chunk_bytes(board.size)
        self._stride = _CHANNEL_HEAD_BYTES + SLOTS * chunk
        self._from: dict[int, _Channel] = {}
        self._to: dict[int, _Channel] = {}
        with ExitStack() as stack:
            size = self._stride * board.size
            inbox = fabric.pool.alloc(size, f"inbox {board.rank}{board.mark}", "all", host=host)
            stack.callback(release, inbox)
            self._inbox = stack.enter_context(Window(fabric, host, inbox))
            board.put_card({"inbox": inbox.id})
            self._stack = stack.pop_all()

    def try_send(self, peer: int, data: Octets, tag: int) -> bool:
        channel = self._to.get(peer) or self._open(peer)
        if channel.own - channel.load(_HEAD) >= SLOTS:  # W2
            return False
        slot = channel.own % SLOTS
        channel.slots[slot][: len(data)] = data
        channel.heads[2 * slot : 2 * slot + 2] = tag, len(data)
        channel.advance(_TAIL)  # W1
        return True

    def try_receive(self, peer: int, into: Octets) -> Arrival | None:
        channel = self._from.get(peer)
        if channel is None:
            at = peer * self._stride
            channel = self._from[peer] = _Channel(self._inbox, at, self.chunk_bytes)
        tail = channel.load(_TAIL)
        if tail == channel.own:  # W1
            return None
        slot = channel.own % SLOTS
        tag, size = (int(word) for word in channel.heads[2 * slot : 2 * slot + 2])
        if size == len(into):
            into[:] = channel.slots[slot][:size]
        if self._inbox.revoked:  # and reads all ones, from some moment on
            raise RankError(f"the inbox of rank {self._board.rank} is gone: a link went down")
        channel.advance(_HEAD)  # W2
        return Arrival(tag, size)

    def _open(self, peer: int) -> _Channel:
        card = self._board.card(peer)
        with self._board.reading(peer):
            window = self._stack.enter_context(Window(self._fabric, self._host, card["inbox"]))
            if len(window) != self._stride * self._board.size:
                raise ValueError(f"an inbox of {len(window)} bytes")
        at = self._board.rank * self._stride
        channel = self._to[peer] = _Channel(window, at, self.chunk_bytes)
        return channel

    def progress(self) -> None:
        """Does nothing: stores need no help."""

    def is_idle(self) -> bool:
        return True

    def close(self) -> None:
        self._stack.close()
