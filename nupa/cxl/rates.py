# SPDX-License-Identifier: BSD-3-Clause
"""How many lines a second a host writes and reads through a switch: in C, and as objects in flits.

Knows how the two are measured, on a switch of its own; never how it is shown.  What is in a line
follows from its address, so all that is read is compared, and all answers are looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from random import Random
from typing import NamedTuple

from nupa._engine import ffi, lib
from nupa.cxl.bus import Status
from nupa.cxl.decode import Window
from nupa.cxl.flit import Format
from nupa.cxl.flit_port import Exchange, FlitPort
from nupa.cxl.fm.client import FabricManager
from nupa.cxl.host import Host, Region
from nupa.cxl.messages import LINE_BYTES, M2SReq, M2SRwD, Request, S2MDrs, S2MNdr
from nupa.cxl.site import Site
from nupa.fabric.errors import FabricError

BATCH = 256  # requests of each call of the packet-level model
_DEVICE_BYTES = 256 << 20
_WINDOW_BASE = 1 << 36
_LD = 3
_SPAN_BYTES = 64 << 20  # of the region: what the C loop uses
_PACKET_LINES = 64 * BATCH
_GO = 20_000  # lines of one call of the C loop


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
    site = Site(1, [_DEVICE_BYTES], [_DEVICE_BYTES])
    manager = FabricManager.of(site.manager)
    manager.bind(0, 0, 1)
    if ways == 2:
        manager.allocate(2, _LD, [_DEVICE_BYTES])
        manager.bind(0, 1, 2, _LD)
    window = Window(_WINDOW_BASE, 2 * _DEVICE_BYTES, (0,))
    with Host(site.hosts[0], [window]) as host:
        yield host, host.create_region(host.devices)


def measure(seconds: float, *, ways: int = 2, shape: Format = Format.FLIT_68) -> Rates:
    """Each rate over *seconds*.  FabricError: a line was not what it must be."""
    with scene(ways) as (host, region):
        span = min(region.size, _SPAN_BYTES)
        _fine(lib.nupa_cxl_rate_fill(host.bus.handle, region.base, span))
        written = _c_per_s(host, region.base, span, seconds, write=True)
        read = _c_per_s(host, region.base, span, seconds, write=False)
        port = FlitPort(host.bus, shape)
        lines = _lines(region.base, span)
        return Rates(
            written,
            read,
            _packets_per_s(port, lines, seconds, write=True),
            _packets_per_s(port, lines, seconds, write=False),
        )


def show(count: int, *, ways: int = 2, shape: Format = Format.FLIT_68) -> str:
    """*count* transactions with their messages and flits, hop by hop: writes and reads in turn."""
    with scene(ways) as (host, region):
        port = FlitPort(host.bus, shape)
        text = []
        for i in range(count):
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


# C


def _c_per_s(host: Host, base: int, span: int, seconds: float, *, write: bool) -> float:
    done, spent_ns, seed = 0, 0, 1
    while spent_ns < seconds * 1e9:
        seed += 1
        rate = lib.nupa_cxl_rate(host.bus.handle, base, span, _GO, seed, write)
        _fine(rate)
        done += _GO
        spent_ns += rate.elapsed_ns
    return done / spent_ns * 1e9


def _fine(rate: object) -> None:
    result, wrong = rate.result, rate.wrong  # type: ignore[attr-defined]
    if result.status != Status.OK or wrong:
        status = Status(result.status)
        raise FabricError(f"{wrong} lines are wrong, and {result.hpa:#x} ended as {status.name}")


# Packets


def _line(hpa: int) -> bytes:
    line = ffi.new("uint8_t[]", LINE_BYTES)
    lib.nupa_cxl_rate_line(hpa, line)
    return bytes(ffi.buffer(line))


def _lines(base: int, span: int) -> list[list[tuple[int, int, bytes]]]:
    """Batches of random lines: tag, address, and what is in it."""
    random = Random(1)
    places = [
        base + random.randrange(span // LINE_BYTES) * LINE_BYTES for _ in range(_PACKET_LINES)
    ]
    batches = (places[at : at + BATCH] for at in range(0, _PACKET_LINES, BATCH))
    return [[(tag, hpa, _line(hpa)) for tag, hpa in enumerate(batch)] for batch in batches]


def _packets_per_s(
    port: FlitPort,
    batches: Sequence[Sequence[tuple[int, int, bytes]]],
    seconds: float,
    *,
    write: bool,
) -> float:
    """From the requests' objects being made to the answers' being checked."""
    go = _write if write else _read
    done, start = 0, time.perf_counter()
    for batch in cycle(batches):
        if not go(port, batch):
            raise FabricError("an answer is not what it must be")
        done += len(batch)
        spent = time.perf_counter() - start
        if spent >= seconds:
            break
    return done / spent


def _write(port: FlitPort, batch: Sequence[tuple[int, int, bytes]]) -> bool:
    exchange = port.exchange([M2SRwD(hpa, line, 0, tag) for tag, hpa, line in batch])
    return _all_ok(exchange) and all(
        isinstance(there, M2SRwD)
        and there.data == line
        and answer.tag == tag
        and type(answer) is S2MNdr
        for answer, there, (tag, _, line) in zip(
            exchange.answers, exchange.received, batch, strict=True
        )
    )


def _read(port: FlitPort, batch: Sequence[tuple[int, int, bytes]]) -> bool:
    exchange = port.exchange([M2SReq(hpa, tag) for tag, hpa, _ in batch])
    return _all_ok(exchange) and all(
        type(answer) is S2MDrs and answer.tag == tag and answer.data == line
        for answer, (tag, _, line) in zip(exchange.answers, batch, strict=True)
    )


def _all_ok(exchange: Exchange) -> bool:
    return not any(exchange.statuses)
