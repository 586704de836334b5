# SPDX-License-Identifier: BSD-3-Clause
"""A keeper of wires behind one local address (csrc/wire): what a process or a thread runs."""

from __future__ import annotations

import enum
import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.core.segment import WHY_BYTES, check, text
from nupa.fabric.wires.address import Address, gid
from nupa.fabric.wires.entry import MEDIA

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric

REQUEST_BYTES_MAX = 1020


class KeeperEvent(enum.Enum):
    """Why WireKeeper.run() returned."""

    TIME = lib.NUPA_KEEPER_TIME
    WOKEN = lib.NUPA_KEEPER_WOKEN
    REQUEST = lib.NUPA_KEEPER_REQUEST
    FENCED = lib.NUPA_KEEPER_FENCED


class WireWish(NamedTuple):
    """A wire to make.  medium: "UDP", "RAW" or "FRAMES"; frames: where the last one listens."""

    host: str
    address: str
    medium: str = "UDP"
    frames: str = ""


class KeeperRequest(NamedTuple):
    """The text of a command's request, and the descriptor for the answer, which the caller
    closes."""

    text: str
    fd: int


class WireKeeper(AbstractContextManager["WireKeeper"]):
    """The keeper of the wires of *fabric* behind *local*; its end is theirs.

    LocalError, FabricError: no memory, no descriptors.
    """

    def __init__(self, fabric: Fabric, local: Address) -> None:
        self._fabric = fabric
        why = ffi.new("char[]", WHY_BYTES)
        self._keeper = lib.nupa_keeper_open(fabric.handle, gid(local), why, WHY_BYTES)
        if self._keeper == ffi.NULL:
            check(-ffi.errno, "a keeper of wires", text(why))
        self._text = ffi.new("char[]", REQUEST_BYTES_MAX + 4)
        self._fd = ffi.new("int *")

    def add(self, wish: WireWish, remote: Address, path: str) -> None:
        """Makes the wire; processes find the keeper at *path*.

        LocalError, FabricError: the host is in use or a wire already, the address is in use, ...
        """
        host = self._fabric.host(wish.host)
        media = {name: number for number, name in MEDIA.items()}
        why = ffi.new("char[]", WHY_BYTES)
        with self._fabric.control_lock():
            rc = lib.nupa_keeper_add(
                self._keeper,
                host.index,
                gid(remote),
                media[wish.medium],
                os.fsencode(path),
                os.fsencode(wish.frames),
                why,
                WHY_BYTES,
            )
        check(rc, f"a wire from {host.name} to {remote}", text(why))

    def remove(self, host: str) -> None:
        """Ends a wire.  LocalError: it has none to that host."""
        found = self._fabric.host(host)
        with self._fabric.control_lock():
            rc = lib.nupa_keeper_remove(self._keeper, found.index)
        check(rc, f"the wire to {found.name}", "this keeper has none")

    @property
    def wires(self) -> int:
        return int(lib.nupa_keeper_wires(self._keeper)) if self._keeper is not None else 0

    def run(self, wake: int, timeout_ms: int) -> tuple[KeeperEvent, KeeperRequest | None]:
        """Serves the wires until *wake* is readable, the time is over, or a command asks."""
        found = lib.nupa_keeper_run(
            self._keeper, wake, timeout_ms, self._text, len(self._text), self._fd
        )
        event = KeeperEvent(found)
        if event is not KeeperEvent.REQUEST:
            return event, None
        return event, KeeperRequest(text(self._text), self._fd[0])

    def close(self) -> None:
        """Ends all its wires."""
        if self._keeper is None:
            return
        keeper, self._keeper = self._keeper, None
        with self._fabric.control_lock():
            lib.nupa_keeper_close(keeper)

    def __exit__(self, *_error: Any) -> None:
        self.close()


def medium_of(name: str) -> str:
    """Returns the medium of that name, in any case.  LocalError: there is none."""
    if name.upper() not in MEDIA.values():
        raise LocalError(f"there is no medium {name!r}: choose udp, raw or frames")
    return name.upper()
