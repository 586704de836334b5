# SPDX-License-Identifier: BSD-3-Clause
"""Windows of a soak's host: plain loads and stores, until the memory is taken away."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from random import Random
from typing import NamedTuple

from nupa.base.errors import NupaError
from nupa.cxl.host.host import Host
from nupa.cxl.host.memory import CxlRegion
from nupa.cxl.host.window import HostWindow

from .ledger import LINE, Ledger, WrongByteError

WINDOW_BYTES = 4096
_MOST = 6
_ONES = b"\xff" * LINE


class _View(NamedTuple):
    window: HostWindow
    region: CxlRegion
    offset: int  # in the region
    where: int  # of its first line, in the ledger


class Views:
    """Of one host, who writes as *writer*.  *lock* is held by all who change the switch."""

    def __init__(self, ledger: Ledger, random: Random, writer: int, figures: Counter[str]) -> None:
        self._ledger = ledger
        self._random = random
        self._writer = writer
        self._figures = figures
        self._views: list[_View] = []

    def add(self, host: Host, region: CxlRegion, offset: int, where: int) -> None:
        """Maps a page that no other process may have."""
        if len(self._views) == _MOST:
            return
        try:
            window = host.map(region, offset, WINDOW_BYTES)
        except NupaError:  # it has gone meanwhile
            self._figures["windows refused"] += 1
            return
        self._views.append(_View(window, region, offset, where))
        self._figures["windows"] += 1

    def close(self) -> None:
        while self._views:
            self._views.pop().window.close()

    def use(self, lock: AbstractContextManager[object]) -> None:
        """Load a line; now and then store one."""
        if not self._views:
            return
        view = self._random.choice(self._views)
        line = self._random.randrange(WINDOW_BYTES // LINE) * LINE
        with lock:
            if not view.window.revoked and self._random.random() < 0.3:
                self._store(view, line)
                return
        self._load(view, line, lock)

    def _store(self, view: _View, line: int) -> None:
        """Stores a line and checks that it reads back, as nothing changes meanwhile."""
        where = view.where + line
        entry = self._ledger.entry(where)
        version, data = self._ledger.issue(where, entry, self._writer)
        view.window[line : line + LINE] = data
        entry.confirmed = version
        if view.region.read(view.offset + line, LINE) != data:
            raise WrongByteError(f"line {where:#x}: stored, and something else is read")
        self._figures["stores"] += 1

    def _load(self, view: _View, line: int, lock: AbstractContextManager[object]) -> None:
        where = view.where + line
        entry = self._ledger.entry(where)
        low = entry.confirmed
        found = bytes(view.window[line : line + LINE])
        try:
            self._ledger.check(where, found, low, entry.issued)
            self._figures["loads"] += 1
        except WrongByteError:
            with lock:
                is_lost = view.window.revoked
            if not is_lost and self._ledger.is_current(where, entry):
                raise
        with lock:
            if not view.window.revoked:
                return
        if bytes(view.window[line : line + LINE]) != _ONES:
            raise WrongByteError(f"line {where:#x} is loaded although it was taken away")
        self._figures["loads of ones"] += 1
        self._views.remove(view)
        view.window.close()
