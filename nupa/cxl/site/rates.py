# SPDX-License-Identifier: BSD-3-Clause
"""How many lines a second a host writes and reads through a switch: `nupa fabric transactions`.

The contents of a line follow from its address, so every line that is read is compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from nupa._engine import lib
from nupa.base.errors import FabricError
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.host.bus import RequestStatus
from nupa.cxl.host.host import CxlRegion, Host
from nupa.cxl.site.site import Site

_DEVICE_BYTES = 256 << 20
_LD = 3
_SPAN_BYTES = 64 << 20  # of the region
_LINES = 20_000  # of one call of the loop in C
_ROUNDS = 5


class Rates(NamedTuple):
    """Lines of 64 bytes a second, each a call of nupa_cxl_write or nupa_cxl_read."""

    c_write_per_s: float
    c_read_per_s: float


@contextmanager
def scene(ways: int = 2) -> Iterator[tuple[Host, CxlRegion]]:
    """Makes a host with a region behind a switch: of a device, or (*ways* 2) of that and a logical
    device, interleaved by 256 bytes."""
    with Site(1, [_DEVICE_BYTES], [_DEVICE_BYTES]) as site:
        manager = FabricManager.of(site.manager)
        manager.bind(0, 0, 1)
        if ways == 2:
            manager.allocate(2, _LD, [_DEVICE_BYTES])
            manager.bind(0, 1, 2, _LD)
        host = site.host(0)
        yield host, host.create_region(host.devices)


def measure(seconds: float, *, ways: int = 2) -> Rates:
    """Measures each rate: the best of five rounds, which take *seconds* together.

    FabricError: a line that was read is not the line that was written."""
    with scene(ways) as (host, region):
        span, seeds = min(region.size, _SPAN_BYTES), count(1)
        _check(lib.nupa_cxl_rate_fill(host.bus.handle, region.base, span))

        def per_s(*, write: bool) -> float:
            """Returns the best round, as other programs disturb."""
            best = 0.0
            for _ in range(_ROUNDS):
                done, spent, start = 0, 0.0, time.perf_counter()
                while spent < seconds / _ROUNDS:
                    seed, handle = next(seeds), host.bus.handle
                    _check(lib.nupa_cxl_rate(handle, region.base, span, _LINES, seed, write))
                    done += _LINES
                    spent = time.perf_counter() - start
                best = max(best, done / spent)
            return best

        return Rates(per_s(write=True), per_s(write=False))


def _check(rate: object) -> None:
    result, wrong = rate.result, rate.wrong  # type: ignore[attr-defined]
    if result.status != RequestStatus.OK or wrong:
        status = RequestStatus(result.status)
        raise FabricError(f"{wrong} lines are wrong; the request at {result.hpa:#x}: {status.name}")
