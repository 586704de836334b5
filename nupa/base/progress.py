# SPDX-License-Identifier: BSD-3-Clause
"""Progress of a long command: a line that rewrites itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

_CLEAR_LINE = "\r\x1b[K"
_BEAT_S = 0.5
_LINES_S = 5.0  # between two lines of details, where a line cannot be rewritten


class Progress:
    """Counts *total* steps on *out*, or stderr; a context manager that leaves no unfinished line.

    Nothing is written in the first *quiet_s* seconds.  Where there are such, details are written as
    lines every few seconds if *out* is no terminal.  *beats*: a thread updates the time on a
    terminal, for steps that call nothing for long.
    """

    def __init__(
        self,
        total: int,
        out: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        quiet_s: float = 0.0,
        beats: bool = False,
    ) -> None:
        self._total = total
        self._out = out = out or sys.stderr
        self._clock = clock
        self._live = out.isatty()
        self._done = 0
        self._label = ""
        self._start_s = clock()
        self._quiet_s = quiet_s
        self._written = False
        self._last_s = self._start_s
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True) if beats else None

    def __enter__(self) -> Progress:
        if self._thread and self._live:
            self._thread.start()
        return self

    def _beat(self) -> None:
        while not self._ended.wait(_BEAT_S):
            self.tick()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread and self._thread.is_alive():
            self._thread.join()
        if self._live and self._written:
            self._write(_CLEAR_LINE)

    def step(self, label: str) -> None:
        """Begins the next step."""
        self._done += 1
        self._label = label
        if self._live:
            self.tick()
        else:
            self._show("", "\n")

    def detail(self, label: str) -> None:
        """Adds a detail to the current step, where a line can be rewritten."""
        self._label = label
        if self._live:
            self.tick()
        elif self._quiet_s and self._clock() - self._last_s >= _LINES_S:
            self._show("", "\n")

    def tick(self, _: float = 0.0) -> None:
        """Updates the time of this step; called as often as is convenient."""
        if self._live:
            self._show(_CLEAR_LINE, "")

    def _show(self, before: str, after: str) -> None:
        with self._lock:
            seconds = self._clock() - self._start_s
            if seconds >= self._quiet_s:
                self._written = True
                self._last_s = self._start_s + seconds
                step = f"[{self._done}/{self._total}]"
                self._write(f"{before}{step} {seconds:4.1f} s  {self._label}{after}")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
