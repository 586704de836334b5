# SPDX-License-Identifier: BSD-3-Clause
"""A host of the soak: its worker process, and the changes of its P_Key table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[3]


class SoakHost:
    """A host and its worker.  One exchange at a time holds *busy*."""

    def __init__(self, fabric: str, name: str) -> None:
        self.name = name
        self.busy = Lock()
        self._count = Lock()
        self._begun = self._done = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.tenants.worker", fabric, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            env=os.environ | {"NUPA_QUIET": "1"},  # refusals are expected
        )

    def ask(self, do: str, **wish: Any) -> dict[str, Any]:
        """Returns the worker's answer.  RuntimeError: it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **wish}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.name} ended: {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> int:
        """Ends the worker and returns its exit status."""
        self._process.communicate(timeout=60)
        return self._process.returncode

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Counts a change of the host's table, for `changes`."""
        with self._count:
            self._begun += 1
        try:
            yield
        finally:
            with self._count:
                self._done += 1

    def changes_done(self) -> int:
        with self._count:
            return self._done

    def changes_begun(self) -> int:
        """Returns how many changes have begun: none came between if it is an earlier
        changes_done()."""
        with self._count:
            return self._begun
