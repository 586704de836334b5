# SPDX-License-Identifier: BSD-3-Clause
"""flock(2) with a time limit, after which the message names the holder."""

from __future__ import annotations

import errno
import fcntl
import time

from nupa.base.errors import LocalError

#: Control locks are held for milliseconds: a longer hold means a stopped or hanging process.
WAIT_S = 60.0
_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.01
_DENIED = (errno.EPERM, errno.ENOSYS)


def hold(fd: int, operation: int, path: str, wait_s: float | None = None) -> None:
    """Takes a flock(2), LOCK_SH or LOCK_EX, on the open file *path*.

    LocalError (EBUSY): others hold it for *wait_s*, by default WAIT_S; another errno: refused().
    """
    pause_s = _FIRST_PAUSE_S
    until = None
    while True:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            now = time.monotonic()
        except OSError as error:
            raise refused("flock", path, error) from error
        if until is None:
            wait_s = WAIT_S if wait_s is None else wait_s
            until = now + wait_s
        if now >= until:
            raise LocalError(
                f"{path} has been locked for {wait_s:g} s by {_say_holders(path)}: end that, or "
                f"wait for it",
                errno.EBUSY,
            )
        time.sleep(pause_s)  # flock(2) has no time limit
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def refused(call: str, path: str, error: OSError) -> LocalError:
    """Returns the error for a lock that the system refuses, as seccomp profiles may have it."""
    remedy = "; allow it in the seccomp profile" if error.errno in _DENIED else ""
    why = f"{call}: {error.strerror}{remedy}"
    return LocalError(f"{path} cannot be locked: {why}", error.errno or 0)


def _say_holders(path: str) -> str:
    from nupa.base.holders import holders

    try:
        pids = [pid for pid in holders(path) if pid > 0]
    except OSError:
        pids = []
    return ", ".join(f"pid {pid}" for pid in pids) or "a process of another pid namespace"
