# SPDX-License-Identifier: BSD-3-Clause
"""`nupa run --capture`: a capture from before the program starts until all its processes ended."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nupa.capture.beside import Beside, CaptureOptions
from nupa.cli.common.command import fail
from nupa.cli.run.program import WAITED
from nupa.core.levels import DEFAULT_LEVELS, parse_levels
from nupa.fabric import Fabric

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2): orphans of the program become our children
_QUIET_S = 1.0  # then a line says what it waits for


@contextmanager
def captured(
    fabric: Fabric, file: str, levels: Sequence[str] | None, snap_bytes: int | None
) -> Iterator[None]:
    """Captures *fabric* to *file* while the block runs; for run_on()."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    options = CaptureOptions(file, parse_levels(levels or DEFAULT_LEVELS), snap_bytes or 0)
    with Beside(fabric, options) as beside:
        yield
        _wait_for_orphans(beside.pid)


def _wait_for_orphans(besides: int) -> None:
    """Waits until *besides* is the only child, or a signal says not to wait."""
    told = False
    while _others(besides):
        got = signal.sigtimedwait(WAITED, _QUIET_S)
        if got is None and not told:
            told = True
            fail("the capture continues: processes of the program still run; Ctrl-C ends it")
        if got is not None and got.si_signo != signal.SIGCHLD:
            return


def _others(besides: int) -> bool:
    """Reaps children; returns whether others than *besides* still run."""
    for pid in _children() - {besides}:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return bool(_children() - {besides})


def _children() -> set[int]:
    """Returns the pids of proc_pid_task_children(5); none on a kernel without it."""
    try:
        text = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    except FileNotFoundError:
        return set()
    return {int(pid) for pid in text.split()}
