# SPDX-License-Identifier: BSD-3-Clause
"""`nupa` in this process: commands that succeed, and commands that fail in one line."""

from __future__ import annotations

import pytest

from nupa.cli import main
from nupa.programs.pair import NUPA, run

_WAIT_S = 30


def runs(*argv: str) -> None:
    """Runs `nupa run`, in a process of its own, which must succeed without a word."""
    found = run([*NUPA, "run", *argv], deadline_s=_WAIT_S)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


class Nupa:
    """Runs commands, each of which begins with *words*."""

    def __init__(self, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
        self._capsys = capsys
        self._words = words

    def __call__(self, *argv: object) -> str:
        """Returns the output of a command that succeeds without a word on stderr."""
        code = main([*self._words, *map(str, argv)])
        out, err = self._capsys.readouterr()
        assert (code, err) == (0, "")
        return out

    def fails(self, *argv: object, code: int | tuple[int, ...] = 1) -> str:
        """Returns the only line on stderr of a command that fails with that code or codes."""
        try:
            found: object = main([*self._words, *map(str, argv)])
        except SystemExit as error:
            found = error.code
        out, err = self._capsys.readouterr()
        assert found in (code if isinstance(code, tuple) else (code,)), err
        assert out == ""
        assert err.startswith("nupa: ")
        assert err.endswith("\n")
        assert err.count("\n") == 1
        return err
