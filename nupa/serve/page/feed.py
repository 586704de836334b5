# SPDX-License-Identifier: BSD-3-Clause
"""Snapshots and events for all open pages: each is encoded once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from nupa.serve.page.view import view

if TYPE_CHECKING:
    from nupa.live.snapshot import Snapshot
    from nupa.live.snapshots import Snapshots

#: Pages at a time.
READERS_MAX = 32


class PageFeed:
    """What pages read of *snapshots*, which are taken only while a page is open."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._readers = 0
        self._number = 0
        self._json = b""
        self._latest: Snapshot | None = None
        self._ended = False
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        return self._readers >= READERS_MAX

    async def snapshot(self) -> bytes:
        """Returns the JSON of a snapshot of this moment."""
        found = await asyncio.to_thread(self._snapshots.latest, 0.0, lists=True)
        return await asyncio.to_thread(_encode, found, 0)

    async def stream(self, after: str = "") -> AsyncIterator[bytes]:
        """Yields server-sent events: `event` for each event behind *after*, `snapshot`, and
        `trouble` while the fabric cannot be read.

        *after*: the id of the last event that the reader has: the fabric's generation and the
        event's number.  A slow reader misses snapshots, and events that no snapshot has any more.
        """
        self._readers += 1
        if self._task is None or self._task.done():
            self._ended = False
            self._task = asyncio.create_task(self._follow())
        seen = 0
        generation, event = _parsed(after)
        try:
            yield b"retry: 1000\n\n"
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._ended or self._number > seen)  # noqa: B023
                latest, encoded, seen = self._latest, self._json, self._number
                if self._ended or latest is None:
                    return
                if latest.generation and latest.generation != generation:
                    generation, event = latest.generation, 0  # numbers of another fabric
                for found in latest.events:
                    if found["seq"] > event:
                        event = found["seq"]
                        name = f"{generation}:{event}"
                        yield _message("event", json.dumps(found).encode(), name)
                if latest.error:
                    yield _message("trouble", json.dumps({"message": latest.error}).encode())
                else:
                    yield _message("snapshot", encoded)
        finally:
            self._readers -= 1
            if self._readers == 0 and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _follow(self) -> None:
        """Encodes snapshots, until cancelled or the service ends."""
        try:
            async for found in self._snapshots.stream(lists=True):
                number = self._number + 1
                self._json = await asyncio.to_thread(_encode, found, number)
                self._latest, self._number = found, number
                async with self._changed:
                    self._changed.notify_all()
        finally:
            self._ended = True
            async with self._changed:
                self._changed.notify_all()


def _encode(snapshot: Snapshot, number: int) -> bytes:
    return json.dumps(view(snapshot.as_dict(), number), separators=(",", ":")).encode()


def _parsed(after: str) -> tuple[str, int]:
    """Returns generation and number of an event's id; of anything else, a generation of none."""
    generation, _, number = after.partition(":")
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        return "", 0
    return generation, int(number)


def _message(kind: str, data: bytes, name: str = "") -> bytes:
    head = f"id: {name}\n".encode() if name else b""
    return head + f"event: {kind}\ndata: ".encode() + data + b"\n\n"
