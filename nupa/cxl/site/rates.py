# SPDX-License-Identifier: BSD-3-Clause
"""How many lines a second a host writes and reads through a switch: in C, and as objects in flits.

Knows how the two are measured, on a switch of its own; never how it is shown.  What is in a line
follows from its address, so all that is read is compared, and all answers are looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, cycle, repeat
from operator import attrgetter
from random import Random
from typing import NamedTuple

from nupa._engine import ffi, lib
from nupa.base.errors import FabricError
from nupa.cxl.fm.client import FabricManager
from nupa.cxl.host.bus import Status
from nupa.cxl.host.host import Host, Region
from nupa.cxl.link.flit import Format
from nupa.cxl.link.messages import LINE_BYTES, Answer, M2SReq, M2SRwD, Request, S2MDrs, S2MNdr
from nupa.cxl.site.flit_port import Exchange, FlitPort
from nupa.cxl.site.site import Site

BATCH = 128  # requests of each call of the packet-level model
_DEVICE_BYTES = 256 << 20
_LD = 3
_SPAN_BYTES = 64 << 20  # of the region: what the C loop uses
_BATCHES = 128
_GO = 20_000  # lines of one call of the C loop
_GOES = 5

_TAG, _DATA = attrgetter("tag"), attrgetter("data")


class Batch(NamedTuple):
    """Addresses of lines, what is in each, and the tags of the requests."""

    places: list[int]
    lines: list[bytes]
    tags: list[int]


class Rates(NamedTuple):
    """Lines of 64 bytes a second: one call each in C, and by the packet-level model."""

    c_write_per_s: float
    c_read_per_s: float
    packet_write_per_s: float
    packet_read_per_s: float


@contextmanager
def scene(ways: int = 2) -> Iterator[tuple[Host, Region]]:
    """A host whose region lies in a device behind a switch, or in that and a logical device of
    another, by turns of 256 bytes: all as a fabric manager has bound them."""
    with Site(1, [_DEVICE_BYTES], [_DEVICE_BYTES]) as site:
        manager = FabricManager.of(site.manager)
        manager.bind(0, 0, 1)
        if ways == 2:
            manager.allocate(2, _LD, [_DEVICE_BYTES])
            manager.bind(0, 1, 2, _LD)
        host = site.host(0)
        yield host, host.create_region(host.devices)


def measure(seconds: float, *, ways: int = 2, shape: Format = Format.FLIT_68) -> Rates:
    """Each rate: of the best of five goes, which take *seconds* together.  FabricError: a line was
    not what it must be."""
    with scene(ways) as (host, region):
        span = min(region.size, _SPAN_BYTES)
        _fine(lib.nupa_cxl_rate_fill(host.bus.handle, region.base, span))
        seeds, lines = count(1), cycle(_batches(region.base, span))
        port = FlitPort(host.bus, shape)

        def in_c(*, write: bool) -> int:
            seed = next(seeds)
            _fine(lib.nupa_cxl_rate(host.bus.handle, region.base, span, _GO, seed, write))
            return _GO

        return Rates(
            _per_s(partial(in_c, write=True), seconds),
            _per_s(partial(in_c, write=False), seconds),
            _per_s(lambda: _write(port, next(lines)), seconds),
            _per_s(lambda: _read(port, next(lines)), seconds),
        )


def _per_s(go: Callable[[], int], seconds: float) -> float:
    """How many a second: *go* returns how many it did.  The best, as other programs disturb."""
    best = 0.0
    for _ in range(_GOES):
        done, spent, start = 0, 0.0, time.perf_counter()
        while spent < seconds / _GOES:
            done += go()
            spent = time.perf_counter() - start
        best = max(best, done / spent)
    return best


def show(number: int, *, ways: int = 2, shape: Format = Format.FLIT_68) -> str:
    """*number* transactions with their messages and flits, hop by hop: writes and reads in turn."""
    with scene(ways) as (host, region):
        port = FlitPort(host.bus, shape)
        text = []
        for i in range(number):
            hpa = region.base + i // 2 * 256
            line = _line(hpa)
            request: Request = M2SReq(hpa, i) if i % 2 else M2SRwD(hpa, line, 0, i)
            text.append(_transaction(host, request, port.exchange([request])))
        return "\n\n".join(text)


def _transaction(host: Host, request: Request, exchange: Exchange) -> str:
    found = host.bus.map.find(request.address)
    assert found
    leaf, dpa = found
    names = [port.name for port in leaf.hops] + [leaf.device.name]
    links = [f"{one} - {two}" for one, two in zip(names[::2], names[1::2], strict=True)]
    text = [f"{request.name} {request.address:#x} is {dpa:#x} of {leaf.device.name}"]
    text.append(f"  host sends       {request}")
    for hop in exchange.hops:
        if hop.up and hop.link == len(links) - 1:
            text.append(f"  device received  {exchange.received[0]}")
            text.append(f"  device answers   {exchange.answered[0]}")
        text.append(f"  {links[hop.link]}, {'up' if hop.up else 'down'}")
        text += (f"    {flit}" for flit in hop.flits)
    text.append(f"  host received    {exchange.answers[0]}: {exchange.statuses[0].name}")
    return "\n".join(text)


# What is done


def _fine(rate: object) -> None:
    result, wrong = rate.result, rate.wrong  # type: ignore[attr-defined]
    if result.status != Status.OK or wrong:
        status = Status(result.status)
        raise FabricError(f"{wrong} lines are wrong, and {result.hpa:#x} ended as {status.name}")


def _line(hpa: int) -> bytes:
    line = ffi.new("uint8_t[]", LINE_BYTES)
    lib.nupa_cxl_rate_line(hpa, line)
    return bytes(ffi.buffer(line))


def _batches(base: int, span: int) -> list[Batch]:
    """Of random lines."""
    random, tags = Random(1), list(range(BATCH))
    batches = []
    for _ in range(_BATCHES):
        numbers = (random.randrange(span // LINE_BYTES) for _ in tags)
        places = [base + number * LINE_BYTES for number in numbers]
        batches.append(Batch(places, list(map(_line, places)), tags))
    return batches


def _write(port: FlitPort, batch: Batch) -> int:
    """From the requests' objects being made to the answers, and what the device received, being
    looked at."""
    requests = list(map(M2SRwD, batch.places, batch.lines, repeat(0), batch.tags))
    exchange = port.exchange(requests)
    fine = list(map(_DATA, exchange.received)) == batch.lines
    return _judge(fine, exchange, batch, S2MNdr)


def _read(port: FlitPort, batch: Batch) -> int:
    """As `_write`; what is read is compared."""
    exchange = port.exchange(list(map(M2SReq, batch.places, batch.tags)))
    return _judge(list(map(_DATA, exchange.answers)) == batch.lines, exchange, batch, S2MDrs)


def _judge(fine: bool, exchange: Exchange, batch: Batch, kind: type[Answer]) -> int:
    answers = exchange.answers
    fine = fine and list(map(_TAG, answers)) == batch.tags and set(map(type, answers)) == {kind}
    if not fine or any(exchange.statuses):
        raise FabricError("an answer is not what it must be")
    return len(answers)
