# SPDX-License-Identifier: BSD-3-Clause
"""A thread of a host that uses its own memory while others lose theirs."""

from __future__ import annotations

import threading
from random import Random
from types import TracebackType
from typing import Self

from nupa.cxl.host.host import CxlRegion

_BLOCK = 4096
_WAIT_S = 30


class _Thread:
    """A thread that does rounds until it is left; its failures are raised there."""

    def __init__(self, region: CxlRegion) -> None:
        self._region = region
        self._stop = False
        self._rounds = 0
        self._failure: BaseException | None = None
        self._turn = threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        self.goes_on()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop = True
        self._thread.join(_WAIT_S)
        if kind is None and self._failure is not None:
            raise self._failure

    def goes_on(self, rounds: int = 20) -> None:
        """Tell whether it has done so many more rounds, without failure."""
        with self._turn:
            wanted = self._rounds + rounds
            done = self._turn.wait_for(lambda: self._failure or self._rounds >= wanted, _WAIT_S)
        if self._failure is not None:
            raise self._failure
        assert done

    def _run(self) -> None:
        try:
            while not self._stop:
                self._round()
                with self._turn:
                    self._rounds += 1
                    self._turn.notify_all()
        except BaseException as error:
            with self._turn:
                self._failure = error
                self._turn.notify_all()

    def _round(self) -> None:
        raise NotImplementedError


class Witness(_Thread):
    """A thread that writes and checks *region*, round after round."""

    def __init__(self, region: CxlRegion) -> None:
        super().__init__(region)
        self._random = Random(11)
        self._copies: dict[int, bytes] = {}

    def _round(self) -> None:
        random, region, copies = self._random, self._region, self._copies
        at = random.randrange(region.size // _BLOCK) * _BLOCK
        data = random.randbytes(_BLOCK)
        region.write(at, data)
        copies[at] = data
        at = random.choice(list(copies))
        assert region.read(at, _BLOCK) == copies[at]


class Reader(_Thread):
    """Collects the bytes of the first 64 KiB of *region* in *seen*."""

    def __init__(self, region: CxlRegion, seen: set[int]) -> None:
        super().__init__(region)
        self._seen = seen

    def _round(self) -> None:
        self._seen.update(self._region.read(0, 65536))
