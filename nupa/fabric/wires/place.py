# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each command 10 ms.
# ruff: noqa: PTH118, PTH119, PTH123
"""Files of wires beside a segment: sockets of keepers, their log and a lock.

.nupa-UID-NAME.wN is the socket for processes of the wire of host N, .nupa-UID-NAME.wires the log.
Wires are made and removed under the lock .nupa-UID-NAME.wlock.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress

from nupa.base.errors import LocalError
from nupa.base.ownership import open_own
from nupa.fabric import registry

_LOCK_WAIT_S = 60.0


def socket_of(name: str, host: int) -> str:
    return _beside(name, f"w{host}")


def lock(name: str) -> AbstractContextManager[None]:
    """Returns the lock to hold while wires of this fabric are made or removed."""
    return registry.locked(os.path.basename(_beside(name, "wlock")), _LOCK_WAIT_S)


def open_log(name: str) -> int:
    """Opens the log for appending and returns its descriptor.  LocalError: it is not ours."""
    return open_own(_beside(name, "wires"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def last_log_line(name: str) -> str:
    """Returns the last line of the log; empty if there is none."""
    with suppress(OSError, LocalError):
        fd = open_own(_beside(name, "wires"), os.O_RDONLY)
        with open(fd, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
            return lines[-1] if lines else ""
    return ""


def _beside(name: str, suffix: str) -> str:
    head, segment = os.path.split(os.path.abspath(registry.path_of(name)))  # noqa: PTH100
    return os.path.join(head, f".{segment}.{suffix}")
