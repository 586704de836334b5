# SPDX-License-Identifier: BSD-3-Clause
"""A series of snapshots, taken once for all who follow it."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from nupa.base.closing import Closing
from nupa.base.errors import NupaError
from nupa.live.observed import Observed
from nupa.live.rates import between, steady
from nupa.live.snapshot import Snapshot, take, without_fabric

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


class _Follower:
    """The latest snapshot that one follower has not seen."""

    def __init__(self, lists: bool | Callable[[], bool], wake: Callable[[], object]) -> None:
        self._lists = lists
        self._wake = wake
        self._next: Snapshot | None = None

    @property
    def lists(self) -> bool:
        """Whether it wants lists of queue pairs and their like now."""
        return self._lists() if callable(self._lists) else self._lists

    def put(self, snapshot: Snapshot) -> None:
        self._next = snapshot
        self._wake()

    def get(self) -> Snapshot | None:
        found, self._next = self._next, None
        return found

    def wake(self) -> None:
        self._wake()


class Snapshots(Closing):
    """Snapshots of the named fabric every *interval_s* seconds, while anyone follows them.

    name None: as for Fabric.open().  The fabric may go and another come; it is not kept up.  A slow
    follower misses snapshots and always gets the latest.  *clock*: in nanoseconds, for tests;
    tick() takes a snapshot without the thread.
    """

    def __init__(
        self,
        name: str | None = None,
        interval_s: float = 1.0,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._name = name
        self.interval_s = interval_s
        self._clock = clock
        self._lock = threading.RLock()  # of the fabric and the latest
        self._fabric: Observed | None = None
        self._latest: Snapshot | None = None
        self._changed = threading.Condition()  # of the followers
        self._followers: list[_Follower] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def tick(self, *, lists: bool = True) -> Snapshot:
        """Takes a snapshot now, and gives it to all who follow.

        Its rates are those since the snapshot before.  A fabric that cannot be read makes a
        snapshot with an error.
        """
        with self._lock:
            found = self._take(lists)
            before = self._latest
            if before is not None:
                found = steady(before, found)
                found = found._replace(rates=between(before, found))
            self._latest = found
        with self._changed:
            followers = list(self._followers)
        for follower in followers:
            follower.put(found)
        return found

    def latest(self, max_age_s: float = 1.0, *, lists: bool = False) -> Snapshot:
        """Returns the latest snapshot, or a new one where that is older or lacks the lists."""
        with self._lock:
            found = self._latest
            if (
                found is not None
                and self._clock() - found.monotonic_ns <= max_age_s * 1e9
                and (found.lists or not lists)
            ):
                return found
            return self.tick(lists=lists)

    def follow(self, *, lists: bool = True) -> Iterator[Snapshot]:
        """Iterates over the snapshots from now on, and waits for each; ends when closed."""
        ready = threading.Event()
        follower = self._join(lists, ready.set)
        try:
            while True:
                if (found := follower.get()) is not None:
                    yield found
                elif self._closed:
                    return
                else:
                    ready.wait()
                    ready.clear()
        finally:
            self._leave(follower)

    async def stream(self, *, lists: bool | Callable[[], bool] = True) -> AsyncIterator[Snapshot]:
        """Iterates over the snapshots from now on in an event loop; ends when closed.

        A function as *lists* is asked before each snapshot.
        """
        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(ready.set)

        follower = self._join(lists, wake)
        try:
            while True:
                if (found := follower.get()) is not None:
                    yield found
                elif self._closed:
                    return
                else:
                    await ready.wait()
                    ready.clear()
        finally:
            self._leave(follower)

    def close(self) -> None:
        """Ends all who follow, and the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            followers, thread = list(self._followers), self._thread
        for follower in followers:
            follower.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            self._drop()

    def _join(self, lists: bool | Callable[[], bool], wake: Callable[[], object]) -> _Follower:
        follower = _Follower(lists, wake)
        with self._changed:
            self._followers.append(follower)
            if self._closed:
                follower.wake()
            elif self._thread is None:
                self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return follower

    def _leave(self, follower: _Follower) -> None:
        with self._changed:
            self._followers.remove(follower)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._followers)
                lists = any(follower.lists for follower in self._followers)
            if self._closed:
                return
            began = time.monotonic()
            self.tick(lists=lists)
            rest = began + self.interval_s - time.monotonic()
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, max(rest, 0.0)):
                    return

    def _take(self, lists: bool) -> Snapshot:
        try:
            if self._fabric is not None and self._fabric.gone:
                self._drop()
            if self._fabric is None:
                self._fabric = Observed.open(self._name)
            return take(self._fabric, lists=lists, clock=self._clock)
        except (NupaError, OSError) as error:
            self._drop()
            return without_fabric(self._name, error, self._clock)

    def _drop(self) -> None:
        if self._fabric is not None:
            self._fabric.close()
            self._fabric = None
