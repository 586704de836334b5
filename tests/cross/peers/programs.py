# SPDX-License-Identifier: BSD-3-Clause
"""A peer's commands as a process: starting others, ending, filling a file system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from nupa.verbs import get_device_list
from tests.cross.peers.memory import Memory
from tests.cross.peers.node import WAIT_S
from tests.cross.peers.streams import Streams

# Opens its device, says its pid, and waits for a signal.
STAY = """
import os, signal
from nupa.verbs import Context, PD, MR
context = Context(name="nupa_rdma0")
mr = MR(PD(context), 1 << 20, 7)
os.write(1, b"%d\\n" % os.getpid())
signal.pause()
"""


class Node(Memory, Streams):
    """All that a peer process can do."""

    def __init__(self, note: Callable[[object], None], stopped: Callable[[], bool]) -> None:
        super().__init__(note, stopped)
        self._started: list[tuple[subprocess.Popen[bytes], int]] = []

    def set_env(self, **values: str) -> None:
        """Sets variables where the C library looks, too."""
        os.environ.update(values)

    def nupa(self, *args: str) -> tuple[int, str]:
        """Runs `nupa ARGS`; its exit code and what it says."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "nupa.cli", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        return done.returncode, done.stdout

    def start_attached(self) -> None:
        """Starts a program that attaches by `nupa run` and stays; returns when it has."""
        program = subprocess.Popen(
            [sys.executable, "-P", "-m", "nupa.cli", "run", "--", sys.executable, "-P", "-c", STAY],
            stdout=subprocess.PIPE,
        )
        assert program.stdout is not None
        self._started.append((program, os.pidfd_open(int(program.stdout.readline()))))

    def end_started(self, number: int, how: int) -> int:
        """Sends a signal to what was started, and to its `nupa run` if that is SIGKILL; the exit
        code of `nupa run`."""
        program, pidfd = self._started[number]
        if how == signal.SIGKILL:
            program.kill()
            program.wait(WAIT_S)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.Signals(how))
        assert select.select([pidfd], [], [], WAIT_S)[0]
        os.close(pidfd)
        return program.wait(WAIT_S)

    def listing(self, folder: str) -> list[str]:
        return sorted(path.name for path in Path(folder).iterdir())

    def device_names(self) -> list[str]:
        return [device.name.decode() for device in get_device_list()]

    def rss_bytes(self) -> dict[str, int]:
        """Returns resident memory by kind, /proc/self/status: RssAnon, RssFile, RssShmem."""
        gc.collect()
        text = Path("/proc/self/status").read_text()
        fields = dict(line.split(":", 1) for line in text.splitlines())
        return {
            key: int(fields[key].split()[0]) * 1024 for key in ("RssAnon", "RssFile", "RssShmem")
        }

    def exit(self, how: str) -> None:
        """Ends without closing anything: 'exit' runs destructors of C, '_exit' runs nothing."""
        if how == "_exit":
            os._exit(0)
        # Not sys.exit: Python's own finalization would close our objects.
        ctypes.CDLL(None).exit(0)

    def fill(self, folder: str, leave_bytes: int) -> None:
        """Takes all memory of a file system but *leave_bytes*."""
        free = os.statvfs(folder)
        take = free.f_bavail * free.f_frsize - leave_bytes
        with open(f"{folder}/ballast", "ab") as file:  # noqa: PTH123
            os.posix_fallocate(file.fileno(), file.tell(), take)

    def unfill(self, folder: str) -> None:
        Path(folder, "ballast").unlink()
