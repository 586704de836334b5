# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: PTH123
"""The keeper: a process (csrc/netdev/keeper.c) that holds network namespaces; its end frees them.

It has a session of its own, so no terminal reaches it, and no files but the namespaces and
/dev/null.  It is an ordinary program, so its user may inspect it (PR_SET_DUMPABLE of prctl(2) is 1
after an exec): its namespaces are found as /proc/PID/fd/N.
"""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import NoReturn

from nupa.base.errors import FabricError, LocalError
from nupa.base.process import (
    Process,
    end,
    have_standard_files,
    inherit_only,
    of_pid,
    signals_held,
)
from nupa.netdev import user_namespace
from nupa.netdev.namespace import CLONE_NEWNET, Netns, enter, privileged, unshare

_PROGRAM = Path(__file__).resolve().parent.parent / "bin" / "nupa_keeper"
_USER_NAMESPACES = (
    "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container: "
    "docker run --cap-add NET_ADMIN --cap-add SYS_ADMIN), or run it as root"
)
_STAY = b"k"


class Keeper:
    """A keeper, which ends with close() unless keep() or lend() was called, and with this process.

    process: the keeper's; netns: its namespaces, all new; lifeline: the path of the pipe whose last
    writer's end ends a keeper that was not told to stay.
    """

    def __init__(self, path: str, count: int, beside: Netns | None = None) -> None:
        """Starts a keeper of *count* namespaces for the fabric at *path*.

        They are in the user namespace of *beside* if one is needed.  LocalError: that is not
        allowed here; FabricError: the program is missing.
        """
        if not os.access(_PROGRAM, os.X_OK):
            raise FabricError(
                f"no {_PROGRAM}: build it, `make build` or `pip install .`", errno.ENOENT
            )
        have_standard_files()
        told, tell = os.pipe()
        go, self._go = os.pipe()
        with signals_held():
            pid = os.fork()
            if pid == 0:
                _become(path, count, beside, tell, go)
        os.close(tell)
        os.close(go)
        os.waitpid(pid, 0)
        with open(told, encoding="ascii") as file:
            # Nothing more to report once the program runs: its exec closes the pipe.
            said, _, error = file.read().partition("error")
        pid, *found = [int(word) for word in said.split()] or [0]
        process = of_pid(pid) if pid and not error else None
        if process is None:
            os.close(self._go)
            raise _refusal(error.split())
        self._kept = False
        self.process: Process = process
        self.lifeline = f"/proc/{pid}/fd/{go}"
        self.netns = [
            Netns(f"/proc/{pid}/fd/{fd}", inode, process, own=True)
            for fd, inode in zip(found[::2], found[1::2], strict=True)
        ]

    def keep(self) -> None:
        """Lets it outlive this process."""
        os.write(self._go, _STAY)
        self._kept = True

    def lend(self) -> int:
        """Lets it live as long as the lifeline has writers; returns the first, which the caller
        closes."""
        self._kept = True
        return os.dup(self._go)

    @staticmethod
    def grasp(lifeline: str) -> int:
        """Returns a new writer of a keeper's lifeline, which the caller closes.

        LocalError: the keeper has ended.
        """
        try:
            return os.open(lifeline, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise LocalError(
                f"the keeper of the namespace has ended ({lifeline}: {error.strerror}): try again",
                error.errno or 0,
            ) from error

    @classmethod
    def let_stay(cls, lifeline: str) -> None:
        """Lets a lent keeper outlive all its users.  LocalError: it has ended."""
        fd = cls.grasp(lifeline)
        try:
            os.write(fd, _STAY)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Ends it, unless keep() or lend() was called."""
        os.close(self._go)
        if not self._kept:
            end(self.process)


def _become(path: str, count: int, beside: Netns | None, tell: int, go: int) -> NoReturn:
    """Makes the namespaces and becomes the keeper, in the child."""
    step = "session"
    try:
        os.setsid()
        if os.fork():
            os._exit(0)  # the keeper is not our child then
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        inherit_only([go])
        if not privileged():
            step = "user"
            if beside is not None:
                enter(beside.open())
            else:
                user_namespace.become_root()
        words = [os.getpid()]
        step = "net"
        for _ in range(count):
            unshare(CLONE_NEWNET)
            fd = os.open("/proc/self/ns/net", os.O_RDONLY)
            os.set_inheritable(fd, True)
            words += [fd, os.fstat(fd).st_ino]
        os.write(tell, " ".join(map(str, words)).encode())
        step = "exec"
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve(_PROGRAM, ["nupa_keeper", str(go), path], {})
    except OSError as error:
        os.write(tell, f" error {step} {error.errno or 0}".encode())
    finally:
        os._exit(1)


def _refusal(said: list[str]) -> LocalError:
    step, number = (said[0], int(said[1])) if len(said) == 2 else ("start", 0)
    what = {
        "user": f"cannot make a user namespace: {os.strerror(number)}; {_USER_NAMESPACES}",
        "net": f"cannot make a network namespace: {os.strerror(number)}; {_USER_NAMESPACES}",
    }
    return LocalError(
        what.get(step, f"cannot start the keeper of namespaces ({step}): {os.strerror(number)}"),
        number,
    )
