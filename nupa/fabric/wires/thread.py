# SPDX-License-Identifier: BSD-3-Clause
"""Keepers of a fabric that lives in this process: threads of it."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from typing import TYPE_CHECKING

from nupa.fabric.wires.address import Address
from nupa.fabric.wires.keeper import KeeperEvent, WireKeeper, WireWish

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric

_LONG_MS = 1 << 30


class KeeperThread:
    """A keeper with a thread, which runs but while its wires change."""

    def __init__(self, fabric: Fabric, local: Address) -> None:
        self._keeper = WireKeeper(fabric, local)
        self._folder = tempfile.mkdtemp(prefix="nupa-wire-")
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None

    def add(self, wish: WireWish, remote: Address, host: int) -> None:
        """As WireKeeper.add()."""
        self._pause()
        try:
            self._keeper.add(wish, remote, f"{self._folder}/w{host}")
        finally:
            self._go_on()

    def remove(self, host: str) -> None:
        """As WireKeeper.remove()."""
        self._pause()
        try:
            self._keeper.remove(host)
        finally:
            self._go_on()

    @property
    def wires(self) -> int:
        return self._keeper.wires

    def close(self) -> None:
        """Ends its wires."""
        self._pause()
        self._keeper.close()
        os.close(self._wake)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _pause(self) -> None:
        if self._thread is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            os.eventfd_read(self._wake)
            self._thread = None

    def _go_on(self) -> None:
        if self._keeper.wires:
            self._thread = threading.Thread(target=self._run, name="nupa-wire", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            event, request = self._keeper.run(self._wake, _LONG_MS)
            if request is not None:
                os.close(request.fd)  # there are no commands for such a fabric
            elif event is not KeeperEvent.TIME:
                return
