# SPDX-License-Identifier: BSD-3-Clause
"""The cache of a device: its lines, the requests it sends for them, and its responses to snoops."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from nupa.base.errors import LocalError, RemoteError
from nupa.cxl.cache.coherence import Mesi
from nupa.cxl.cache.states import (
    LOADS,
    SNOOPED,
    STORES,
    CacheRequest,
    DataDirection,
    HostAnswer,
    SnoopOutcome,
    TransitionError,
    may_answer,
    may_ask,
)
from nupa.cxl.cache.tables import Grant, H2DReqOpcode, H2DRspOpcode
from nupa.cxl.media.parts import LINE_BYTES


class Reply(NamedTuple):
    """The end of a request: the *answer*, and the line if it came."""

    answer: HostAnswer
    data: bytes = b""


class Write(NamedTuple):
    """Bytes that the host may pull: *data* for the line, from byte *at* on."""

    data: bytes = b""
    at: int = 0


#: send(request, hpa, write): to the host.
Send = Callable[[CacheRequest, int, Write], Reply]


@dataclass(slots=True)
class CacheLine:
    """A line of the cache; `is_local`: the device filled it in device bias, and the host does not
    know."""

    state: Mesi
    data: bytearray
    is_local: bool = False


class LinePart(NamedTuple):
    """*size* bytes at *at* of the line *hpa*."""

    hpa: int
    at: int
    size: int


def split(hpa: int, size: int) -> Iterator[LinePart]:
    """Splits *size* bytes at *hpa* into lines."""
    end = hpa + size
    while hpa < end:
        at = hpa % LINE_BYTES
        part = min(LINE_BYTES - at, end - hpa)
        yield LinePart(hpa - at, at, part)
        hpa += part


class DeviceCache:
    """A cache of at most *limit* lines; *send* takes requests to the host."""

    def __init__(self, send: Send, limit: int) -> None:
        if limit < 1:
            raise LocalError(f"a cache of {limit} lines: give at least one")
        self.limit = limit
        self.hits = self.misses = self.evictions = 0
        self._send = send
        self._lines: OrderedDict[int, CacheLine] = OrderedDict()

    def state(self, hpa: int) -> Mesi:
        """Returns the state of the line that has *hpa*."""
        line = self._lines.get(hpa - hpa % LINE_BYTES)
        return line.state if line else Mesi.I

    def lines(self, first: int = 0, size: int = 1 << 64) -> dict[int, CacheLine]:
        """Returns the lines of an address range."""
        return {hpa: line for hpa, line in self._lines.items() if first <= hpa < first + size}

    # Loads and stores

    def find(self, hpa: int, *, stores: bool = False) -> CacheLine | None:
        """Returns the line, if a load or a store needs no request."""
        line = self._lines.get(hpa)
        if line is None or line.state not in (STORES if stores else LOADS):
            self.misses += 1
            return None
        self._lines.move_to_end(hpa)
        self.hits += 1
        return line

    def store(self, hpa: int, at: int, data: bytes) -> None:
        """Stores into a line in E or M.  TransitionError: the line is in another state."""
        line = self._lines.get(hpa)
        state = line.state if line else Mesi.I
        if line is None or state not in STORES:
            raise TransitionError(f"a store to {hpa:#x}, which is in {state.name}")
        line.data[at : at + len(data)] = data
        line.state = STORES[state]

    def fill(self, hpa: int, line: CacheLine) -> CacheLine:
        """Puts in a line; `victim` has made room."""
        self._lines[hpa] = line
        return line

    def victim(self, hpa: int) -> int | None:
        """Returns the line that must go so that there is room for *hpa*."""
        if hpa in self._lines or len(self._lines) < self.limit:
            return None
        self.evictions += 1
        return next(iter(self._lines))

    def drop(self, hpa: int) -> None:
        """Drops a line without a message."""
        del self._lines[hpa]

    # Requests

    def request(self, name: str, hpa: int, write: Write | None = None) -> bytes:
        """Sends a request for the line *hpa*, and returns the data of the answer.  *write* is what
        the request writes; an evict writes the line.

        TransitionError: the state of the line does not allow the request, or the answer is not one
        of the request's.  RemoteError: the host has no such memory; the line is dropped."""
        line = self._lines.get(hpa)
        row = may_ask(name, line.state if line else Mesi.I)
        if line is not None and line.is_local:
            raise TransitionError(f"{name} of {hpa:#x}: the line is of a page in device bias")
        if write is None:
            write = Write(bytes(line.data)) if line else Write()
        reply = self._send(row, hpa, write)
        answer = may_answer(row, reply.answer)
        if answer.after is Mesi.I:
            self._lines.pop(hpa, None)
        elif line is not None:
            line.state = answer.after
            if answer.data is DataDirection.TO_DEVICE:
                line.data[:] = reply.data
        else:
            self._lines[hpa] = CacheLine(answer.after, bytearray(reply.data or LINE_BYTES))
        if answer.grant is Grant.ERR or H2DRspOpcode.GO_ERR_WritePull in answer.responses:
            raise RemoteError(f"{name} of {hpa:#x}: the host has no memory there")
        return reply.data

    def evict(self, hpa: int) -> None:
        """Gives a line back with the evict of its state."""
        names = {Mesi.S: "CleanEvictNoData", Mesi.E: "CleanEvict", Mesi.M: "DirtyEvict"}
        self.request(names[self._lines[hpa].state], hpa)

    # Snoops

    def snoop(self, snoop: H2DReqOpcode, hpa: int) -> tuple[SnoopOutcome, bytes]:
        """Responds to a snoop; returns the outcome, and the line if the response has data."""
        line = self._lines.get(hpa)
        outcome = SNOOPED[snoop, line.state if line else Mesi.I][0]
        data = bytes(line.data) if line and outcome.has_data else b""
        if line is not None:
            line.state = outcome.after
            if outcome.after is Mesi.I:
                del self._lines[hpa]
        return outcome, data
