# SPDX-License-Identifier: BSD-3-Clause
"""The local terminal while a guest's command uses it: raw mode, size, restoration."""

from __future__ import annotations

import os
import termios
import tty
from typing import Any

from nupa.vm.agent.frames import TerminalSize

_ESCAPE = b"\x1d"  # Ctrl-]
_ESCAPES = 3
_DEFAULT = TerminalSize(24, 80)


class Terminal:
    """A context manager: the terminal *fd* is raw inside, and restored at every exit."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before: list[Any] = termios.tcgetattr(fd)
        self._escapes = 0

    def __enter__(self) -> Terminal:
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def enter(self) -> None:
        """Sets raw mode; again after a stop, when the shell has restored the terminal."""
        tty.setraw(self._fd, termios.TCSADRAIN)

    def window(self) -> TerminalSize:
        try:
            size = os.get_terminal_size(self._fd)
        except OSError:
            return _DEFAULT
        return TerminalSize(size.lines or _DEFAULT.rows, size.columns or _DEFAULT.columns)

    def is_leaving(self, typed: bytes) -> bool:
        """Returns whether Ctrl-] was typed three times in a row, which leaves a hanging guest."""
        for i in range(len(typed)):
            self._escapes = self._escapes + 1 if typed[i : i + 1] == _ESCAPE else 0
            if self._escapes == _ESCAPES:
                return True
        return False
