# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: PTH123
"""The user namespace of an unprivileged user, who is root in it (user_namespaces(7)).

/etc/subuid and /etc/subgid may give the user further users and groups (newuidmap(1)); these are 1
and following inside, so that programs can drop root.  Else the user is alone there.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Sequence

from nupa.netdev.namespace import CLONE_NEWUSER, unshare

#: newuidmap's arguments after the pid: root is the user; 1 and following are the further ones.
Command = Sequence[str]


def become_root() -> None:
    """Makes the namespace and moves this process, which has one thread, there.  OSError."""
    user, group = os.geteuid(), os.getegid()
    commands = [
        _command("newuidmap", user, _given("/etc/subuid", user)),
        _command("newgidmap", group, _given("/etc/subgid", user)),
    ]
    helper, go = _helper(os.getpid(), commands) if all(commands) else (0, -1)
    try:
        unshare(CLONE_NEWUSER)
    finally:
        if helper:
            os.write(go, b"g")
            os.close(go)
            os.waitpid(helper, 0)
        # An unprivileged user may map itself only, and must give up setgroups(2) for that.
    if _is_empty("/proc/self/uid_map"):
        _write("/proc/self/uid_map", f"0 {user} 1")
    if _is_empty("/proc/self/gid_map"):
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/gid_map", f"0 {group} 1")


def _helper(pid: int, commands: Sequence[Command]) -> tuple[int, int]:
    """Forks a child outside that runs *commands* for *pid* when a byte is written.

    Returns its pid and the descriptor.  Failures show as missing maps.
    """
    ready, go = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            os.close(go)
            os.read(ready, 1)
            for program, *arguments in commands:
                os.spawnv(os.P_WAIT, program, [program, str(pid), *arguments])
        finally:
            os._exit(0)
    os.close(ready)
    return helper, go


def _command(name: str, own: int, given: tuple[str, str] | None) -> Command:
    """Returns the command; empty where there is no such program, or nothing to map."""
    program = shutil.which(name)
    if program is None or given is None:
        return ()
    return [program, "0", str(own), "1", "1", *given]


def _given(path: str, user: int) -> tuple[str, str] | None:
    """Returns the first range that the file gives the user (subuid(5)): its start and its
    length."""
    names = {str(user)}
    try:
        names.add(pwd.getpwuid(user).pw_name)
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, given = line.strip().partition(":")
                start, _, count = given.partition(":")
                if name in names and start.isdecimal() and count.isdecimal():
                    return start, count
    except (KeyError, FileNotFoundError):  # a user without a name, no such file
        return None
    return None


def _is_empty(path: str) -> bool:
    with open(path, encoding="ascii") as file:
        return not file.read().strip()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
