# SPDX-License-Identifier: BSD-3-Clause
"""The progress line on a terminal and elsewhere, with a clock of our own."""

from __future__ import annotations

import io
import threading

from nupa.base.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_each_step_is_one_plain_line_and_ticks_are_silent() -> None:
    out, times = io.StringIO(), iter([0.0, 1.0, 2.5])
    with Progress(2, out, clock=lambda: next(times)) as progress:
        progress.step("fabric")
        progress.tick(0.1)
        progress.step("ib_send_lat")
        progress.detail("ib_send_lat, 8 B")
    assert out.getvalue() == "[1/2]  1.0 s  fabric\n[2/2]  2.5 s  ib_send_lat\n"


def test_on_a_terminal_the_line_is_rewritten_and_gone_at_the_end() -> None:
    out, times = Terminal(), iter([0.0, 1.0, 1.1, 1.2])
    with Progress(1, out, clock=lambda: next(times)) as progress:
        progress.step("fabric")
        progress.tick(0.1)
        progress.detail("fabric, made")
    assert out.getvalue().split("\r\x1b[K") == [
        "",
        "[1/1]  1.0 s  fabric",
        "[1/1]  1.1 s  fabric",
        "[1/1]  1.2 s  fabric, made",
        "",
    ]


class Watched(Terminal):
    """Tells when a line was rewritten twice."""

    def __init__(self) -> None:
        super().__init__()
        self.rewritten = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count("a long call") >= 3:
            self.rewritten.set()
        return written


def test_a_thread_updates_the_time_of_a_step_that_calls_nothing() -> None:
    out = Watched()
    with Progress(1, out, beats=True) as progress:
        progress.step("a long call")
        assert out.rewritten.wait(60)
    assert out.getvalue().endswith("\r\x1b[K")
    assert not any(each.name.endswith("(_beat)") for each in threading.enumerate())
