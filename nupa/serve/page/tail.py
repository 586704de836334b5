# SPDX-License-Identifier: BSD-3-Clause
"""The latest packets of a fabric as lines.  They are recorded only while a page asks for them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any

from nupa.base.errors import NupaError

#: Lines kept; formatted at most of each look, so that a flood costs no more than a stream.
LINES_MAX = 400
#: Recording ends this long after the last question.
LINGER_S = 3.0
_LOOK_S = 0.1
_SNAP_BYTES = 128
_LEVELS = ("transport", "net", "queue")


class Tail:
    """The tail of a capture of the fabric *name*.  Its thread runs while somebody looks."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._lock = Lock()
        self._lines: deque[tuple[int, str]] = deque(maxlen=LINES_MAX)
        self._asked_s = 0.0
        self._thread: Thread | None = None
        self._stop = Event()
        self._next = 1
        self._seen = self._lost = 0
        self._error = ""

    @property
    def is_recording(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def lines(self, after: int = 0) -> dict[str, Any]:
        """Returns lines with numbers above *after*, and counts; starts recording."""
        with self._lock:
            self._asked_s = self._clock()
            if not self.is_recording and not self._stop.is_set():
                self._error = ""
                self._thread = Thread(target=self._record, name="nupa-tail", daemon=True)
                self._thread.start()
            return {
                "lines": [[number, line] for number, line in self._lines if number > after],
                "last": self._next - 1,
                "seen": self._seen,
                "lost": self._lost,
                "error": self._error,
            }

    def close(self) -> None:
        """Ends recording."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _record(self) -> None:
        from nupa.capture.live import Live
        from nupa.fabric import Fabric

        try:
            with (
                Fabric.open(self._name) as fabric,
                Live(fabric, ["any"], _LEVELS, _SNAP_BYTES) as live,
            ):
                before = self._seen, self._lost
                while not self._stop.wait(_LOOK_S):
                    self._look(live, before)
                    with self._lock:
                        if self._clock() - self._asked_s > LINGER_S:
                            self._thread = None
                            return
        except NupaError as error:  # no room for a watch, or the fabric is gone
            with self._lock:
                self._error = str(error)
                self._thread = None

    def _look(self, live: Any, before: tuple[int, int]) -> None:
        from nupa.capture.lines import lines
        from nupa.capture.view import View

        for batch in live.batches():
            view = View(batch)
            count = len(view)
            first = max(count - LINES_MAX, 0)
            formatted = list(lines(view, range(first, count)))
            with self._lock:
                self._next += first
                for line in formatted:
                    self._lines.append((self._next, line))
                    self._next += 1
                self._seen += count
        with self._lock, suppress(NupaError):
            self._lost = before[1] + live.counts.lost
