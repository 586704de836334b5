# SPDX-License-Identifier: BSD-3-Clause
"""A host that speaks in flits: its requests go link by link to the devices, and answers come back.

Knows what each component on the way does with flits, and which objects there are of it; never how
decoders were programmed, nor what is in memory.  csrc/cxl/flit_way.c.

One transaction is: the request's object; the flits that carry it across each link of its way; at
each switch their CRCs checked, the message unpacked, its address decoded, the LD-ID of a logical
device put in, and flits packed anew; at the device flits checked and unpacked to a request of its
own, the address decoded, memory read or written, an answer made; and flits, switches and links back
up to the answer's object at the host, whose tag is compared.  Nothing of it is shared with another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EXDEV
from itertools import accumulate, starmap
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.host.bus import Bus, MemoryAccessError, Status
from nupa.cxl.host.bus_errors import leave_traces
from nupa.cxl.link.flit import Fault, Flit, FlitError, Format, PbrFlit
from nupa.cxl.link.messages import (
    LINE_BYTES,
    ROW_BYTES,
    Answer,
    M2SReq,
    M2SRwD,
    Message,
    Request,
    S2MDrs,
    from_rows,
    to_rows,
)

if TYPE_CHECKING:
    from nupa.cxl.site.site import Site

_MOST = 4096  # requests at a time
_MOST_DEVICES = 65536
_WAY_BYTES = ffi.sizeof("struct nupa_flit_way")
_STATUS_AT = ffi.offsetof("struct nupa_flit_way", "status")
_STATUSES = list(Status)
_LOST = "a wire gives back as many flits as it was given, of the same format"
_BYTES = {shape: shape.bytes for shape in Format}
_SPLIT = {shape: Struct(f"{size}s").iter_unpack for shape, size in _BYTES.items()}


class Hop(NamedTuple):
    """Flits on a link: *link* is 0 for the host's, *up* says which way they went; *counts* are how
    many are each request's, one behind the other."""

    link: int
    up: bool
    flits: list[Flit]
    counts: bytes

    def of(self, request: int) -> list[Flit]:
        """Those of one request."""
        ends = list(accumulate(self.counts, initial=0))
        return self.flits[ends[request] : ends[request + 1]]


class Exchange(NamedTuple):
    """What became of *requests*: item n of each list is request n's.  *received* and *answered* are
    the device's objects, None where none got there; *answers* are what came to the host."""

    requests: Sequence[Request]
    received: list[Message | None]
    answered: list[Message | None]
    answers: list[Answer]
    statuses: list[Status]
    hops: list[Hop]


class FlitPort:
    """Requests of the host of *bus* as flits of *format*.  One thread uses it at a time.

    *pids* says the PIDs of source and destination of requests to a device, with which they pass the
    links between switches, in PBR flits; None: those have flits of *format*, too.
    *wire* is given each hop before its flits are received, and returns what is: tests damage flits
    there.  LocalError, RemoteError: see `exchange`.
    """

    def __init__(
        self,
        bus: Bus,
        format: Format = Format.FLIT_68,  # noqa: A002
        *,
        pids: Callable[[Type3], tuple[int, int]] | None = None,
        wire: Callable[[Hop], list[Flit]] | None = None,
    ) -> None:
        self.bus = bus
        self.format = format
        self._wire = wire
        self._pids = pids
        self._routes = ffi.new("uint32_t[]", _MOST_DEVICES if pids else 1)
        self._ld_ids = ffi.new("uint8_t[]", _MOST_DEVICES)
        self._run = ffi.new("struct nupa_flit_run *")
        self._ways = ffi.new("struct nupa_flit_way[]", _MOST)
        self._flits = ffi.new("uint8_t[]", _MOST * lib.NUPA_FLIT_MESSAGE_BYTES)
        self._counts = ffi.new("uint8_t[]", _MOST)
        self._rows = [ffi.new("struct nupa_cxl_message[]", _MOST) for _ in range(2)]
        self._run.ld_ids, self._run.ways, self._run.format = self._ld_ids, self._ways, format
        self._run.pids = self._routes if pids else ffi.NULL

    @property
    def corrected(self) -> int:
        """Protocol IDs of which one half was wrong (6.2.2.8), since the port was made."""
        return int(self._run.corrected)

    # Requests

    def write(self, hpa: int, line: bytes) -> None:
        """A line.  MemoryAccessError as by `Bus.write`."""
        self._one(M2SRwD(hpa, line), f"write of {len(line)} bytes")

    def read(self, hpa: int) -> bytes:
        """A line.  MemoryAccessError as by `Bus.read`."""
        answer = self._one(M2SReq(hpa), f"read of {LINE_BYTES} bytes")
        assert isinstance(answer, S2MDrs)
        return answer.data

    def _one(self, request: Request, asked: str) -> Answer:
        exchange = self.exchange([request])
        if exchange.statuses[0] is not Status.OK:
            raise MemoryAccessError(asked, request.address, exchange.statuses[0])
        return exchange.answers[0]

    def transact(self, requests: Sequence[Request]) -> list[Answer]:
        """The answers to *requests*, each sent by itself: `exchange`."""
        return self.exchange(requests).answers

    def exchange(self, requests: Sequence[Request]) -> Exchange:
        """Send *requests*, and receive an answer to each; those to one line are carried out in
        their order if they have the same way.

        A request that fails is answered too, as *statuses* says: its data are all ones, poisoned
        where there should be some; MemData-NXM where nobody has the address; registers and logs
        tell of it as `Bus` says.  FlitError: flits were refused.  LocalError: a request that no
        flit can carry, or whose answer is not modelled.
        """
        if len(requests) > _MOST:
            raise LocalError(f"{len(requests)} requests: at most {_MOST} at a time")
        for device, number in self.bus.device_numbers().items():
            self._ld_ids[number] = device.ld_id
            if self._pids:
                spid, dpid = self._pids(device)
                self._routes[number] = spid << 16 | dpid
        try:
            rows = to_rows(requests)
        except (TypeError, ValueError) as error:
            raise LocalError(str(error)) from None
        links = self._plan(rows, len(requests))
        if links >= 0:
            return self._go(requests, rows, links)
        return self._split(requests)

    def _plan(self, rows: bytes, n: int) -> int:
        """How many links the ways have; -1: not all as many."""
        self._run.bus, self._run.n = self.bus.handle, n
        links = int(lib.nupa_flit_plan(self._run, _messages(rows)))
        if links == -EXDEV:
            return -1
        return _must(links, "a request whose answer is not modelled")

    def _split(self, requests: Sequence[Request]) -> Exchange:
        """Those with ways of one length at a time."""
        lengths = [self._ways[i].links for i in range(len(requests))]
        places: list[int] = []
        parts = []
        for links in sorted(set(lengths)):
            own = [i for i, each in enumerate(lengths) if each == links]
            places += own
            parts.append(self.exchange([requests[i] for i in own]))
        order = sorted(range(len(places)), key=places.__getitem__)
        merged = Exchange(requests, [], [], [], [], [])
        for name in ("received", "answered", "answers", "statuses"):
            joined = [each for part in parts for each in getattr(part, name)]
            getattr(merged, name).extend(joined[i] for i in order)
        for part, links in zip(parts, sorted(set(lengths)), strict=True):
            own = [i for i, each in enumerate(lengths) if each == links]
            for hop in part.hops:
                counts = bytearray(len(requests))
                for place, count in zip(own, hop.counts, strict=True):
                    counts[place] = count
                merged.hops.append(hop._replace(counts=bytes(counts)))
        return merged

    def _go(self, requests: Sequence[Request], rows: bytes, links: int) -> Exchange:
        run, hops = self._run, []
        total = lib.nupa_flit_send(run, _messages(rows), self._flits, self._counts)
        hop = self._hop(0, False, total)
        for at in range(1, links):
            hops.append(hop)
            total = lib.nupa_flit_forward(run, at, *self._arrived(hop), self._flits, self._counts)
            hop = self._hop(at, False, total)
        hops.append(hop)
        received, answered = self._rows
        _must(lib.nupa_flit_serve(run, *self._arrived(hop), received, answered), _LOST)
        there, device = self._objects(received), self._objects(answered)
        total = lib.nupa_flit_answer(run, answered, self._flits, self._counts)
        hop = self._hop(max(links - 1, 0), True, total)
        for at in range(links - 1, 0, -1):
            hops.append(hop)
            total = lib.nupa_flit_return(run, at, *self._arrived(hop), self._flits, self._counts)
            hop = self._hop(at - 1, True, total)
        hops.append(hop)
        _must(lib.nupa_flit_finish(run, *self._arrived(hop), self._rows[0]), _LOST)
        answers: Any = self._objects(self._rows[0])
        return Exchange(requests, there, device, answers, self._judge(answers), hops)

    def _hop(self, link: int, up: bool, total: int) -> Hop:
        """What was packed, as objects."""
        _must(total, "a request that no flit can carry")
        shape = self._format_of(link)
        kind = PbrFlit if shape is Format.FLIT_PBR else Flit
        raw = ffi.buffer(self._flits, total * _BYTES[shape])
        flits = list(starmap(kind, _SPLIT[shape](raw)))
        hop = Hop(link, up, flits, bytes(ffi.buffer(self._counts, self._run.n)))
        if self._wire:
            hop = hop._replace(flits=self._wire(hop))
            if len(hop.flits) != total:
                raise LocalError(_LOST)
        return hop

    def _format_of(self, link: int) -> Format:
        if not self._pids:
            return self.format
        links = self._ways[0].links if self._run.n else 0
        return Format(lib.nupa_flit_format_of(self._run, links, link))

    def _arrived(self, hop: Hop) -> tuple[Any, int, Any]:
        """What the component behind a link takes from it."""
        flits = b"".join(hop.flits)
        if len(flits) != len(hop.flits) * _BYTES[self._format_of(hop.link)]:
            raise LocalError(_LOST)
        return flits, len(hop.flits), hop.counts

    def _objects(self, rows: Any) -> list[Message | None]:
        return from_rows(memoryview(ffi.buffer(rows, self._run.n * ROW_BYTES)))

    def _judge(self, answers: Sequence[Message | None]) -> list[Status]:
        """FlitError for the first request that has no answer."""
        n = self._run.n
        ways = bytes(ffi.buffer(self._ways, n * _WAY_BYTES))
        if not all(answers):
            way = self._ways[[bool(answer) for answer in answers].index(False)]
            where = "the host" if not way.at else f"switch {way.at}"
            if way.at == way.links:
                where = "the device"
            raise FlitError(f"flits of the request to {way.hpa:#x}, at {where}", Fault(way.fault))
        codes = ways[_STATUS_AT::_WAY_BYTES]
        if not any(codes):
            return [Status.OK] * n
        for i, code in enumerate(codes):
            if code:
                hpa = self._ways[i].hpa
                leave_traces(self.bus, range(hpa, hpa + LINE_BYTES))
        return list(map(_STATUSES.__getitem__, codes))


def pids_of(site: Site, host: int) -> Callable[[Type3], tuple[int, int]]:
    """What a FlitPort of a host of *site* takes: PIDs if it has several switches, else 0."""

    def find(device: Type3) -> tuple[int, int]:
        for binding in list(site.switch.vcs(host).bindings.values()):
            if site.stack and binding.seen().function is device:
                return site.stack.passage(host, binding.port.number)[:2]
        return 0, 0

    return find


def _messages(rows: bytes) -> Any:
    return ffi.from_buffer("struct nupa_cxl_message[]", rows)


def _must(answer: int, asked: str) -> int:
    """LocalError for a negative errno."""
    if answer < 0:
        raise LocalError(asked, -answer)
    return answer
