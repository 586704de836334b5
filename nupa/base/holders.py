# SPDX-License-Identifier: BSD-3-Clause
# os: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH116, PTH123, PTH208
"""Holders of a lock on a file, by proc_locks(5), and whether they are about to exit.

A killed process releases its locks last of all.  A process that learns of the death earlier, as
peers do, still finds the locks of the dead.
"""

from __future__ import annotations

import os
import signal
import time

PATIENCE_S = 1.0
_LOOK_S = 0.001
_PF_EXITING = 0x4  # linux/sched.h, field 9 of proc_pid_stat(5)
_KILLED = 1 << (signal.SIGKILL - 1)


def dying_are_gone(path: str) -> bool:
    """Waits while all holders of a flock on the file are exiting; False: one of them is not."""
    until = time.monotonic() + PATIENCE_S
    while found := holders(path):
        if not all(map(_is_ending, found)) or time.monotonic() > until:
            return False
        time.sleep(_LOOK_S)
    return True


def holders(path: str) -> list[int]:
    """Lists the processes that hold a flock on the file, as far as our pid namespace knows them."""
    there = os.stat(path)
    file = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    with open("/proc/locks", encoding="ascii") as locks:
        fields = [line.split() for line in locks]
    # Number, kind, mode, access, pid, file; a waiter has an arrow before its kind.
    return [int(field[4]) for field in fields if field[1] == "FLOCK" and field[5] == file]


def _is_ending(pid: int) -> bool:
    if pid <= 0:  # in another pid namespace
        return False
    try:
        return all(_thread_ends(pid, task) for task in os.listdir(f"/proc/{pid}/task"))
    except (FileNotFoundError, ProcessLookupError):
        return True


def _thread_ends(pid: int, task: str) -> bool:
    folder = f"/proc/{pid}/task/{task}"
    try:
        with open(f"{folder}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        with open(f"{folder}/status", "rb") as status:
            pending = [
                int(line.split()[1], 16) for line in status if line[:7] in (b"SigPnd:", b"ShdPnd:")
            ]
    except (FileNotFoundError, ProcessLookupError):
        return True
    ended = fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING)
    return ended or any(mask & _KILLED for mask in pending)
