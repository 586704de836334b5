# SPDX-License-Identifier: BSD-3-Clause
"""A root complex whose configuration and BAR accesses are TLPs, packed and unpacked at each link
(PCIe 6.0 7.3.3, 7.5.1.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from nupa.base.errors import RemoteError
from nupa.cxl.function.function import Bridge, Function, RegisterPlace
from nupa.cxl.host.root import RootComplex
from nupa.cxl.link.bdf import Bdf
from nupa.cxl.link.tlp import HOST, Completion, ConfigRequest, CplStatus, MemRequest, unpack
from nupa.cxl.registers.block import CONFIG_BYTES, AccessError, check_access
from nupa.cxl.registers.config import BYTES as CONFIG_SPACE_BYTES
from nupa.cxl.registers.pcie_tables import PortType

_TAGS = 1 << 8
_DW = 4
_PAGE = 4096


Request = ConfigRequest | MemRequest


class TlpHop(NamedTuple):
    """A TLP that crossed the link of *port* to *function*, *up* or down."""

    port: Function
    function: Function
    up: bool
    raw: bytes


class TlpRoot(RootComplex):
    """*root*, with TLPs for requests that leave it; functions in the root complex itself are
    reached as before.  `hops` has the TLPs of the last request.  *wire* is given each TLP before it
    is received, and returns its bytes.

    RemoteError: a completion that does not match the request.  AccessError as by RootComplex."""

    def __init__(
        self, root: RootComplex, *, wire: Callable[[TlpHop], bytes] = lambda hop: hop.raw
    ) -> None:
        super().__init__(*root.bridges, lock=root.lock)
        self.hops: list[TlpHop] = []
        self._wire = wire
        self._tag = 0
        self._ids_of: dict[Function, Bdf] = {}

    # Requests

    def config_read(self, bdf: Bdf, offset: int, size: int) -> int:
        port = self._root_port(lambda each: bdf.bus in each.buses)
        if port is None:
            return super().config_read(bdf, offset, size)
        request = ConfigRequest(
            bdf=bdf, offset=offset & ~3, first_be=_enables(offset, size), tag=self._next_tag()
        )
        answer = self._ask(port, request)
        if not answer.data:
            return (1 << 8 * size) - 1
        return int.from_bytes(answer.data[offset % _DW :][:size], "little")

    def config_write(self, bdf: Bdf, offset: int, size: int, value: int) -> None:
        port = self._root_port(lambda each: bdf.bus in each.buses)
        if port is None:
            super().config_write(bdf, offset, size, value)
            return
        request = ConfigRequest(
            bdf=bdf,
            offset=offset & ~3,
            first_be=_enables(offset, size),
            data=_dws(offset, size, value),
            tag=self._next_tag(),
        )
        self._ask(port, request)

    def read(self, address: int, size: int) -> int:
        port = self._root_port(lambda each: each.forwards(address))
        if port is None:
            return super().read(address, size)
        answer = self._ask(port, self._memory(address, size))
        if not answer.data:
            return (1 << 8 * size) - 1
        return int.from_bytes(answer.data[address % _DW :][:size], "little")

    def write(self, address: int, size: int, value: int) -> None:
        port = self._root_port(lambda each: each.forwards(address))
        if port is None:
            super().write(address, size, value)
            return
        self._send(port, self._memory(address, size, _dws(address, size, value)))  # posted

    def _memory(self, address: int, size: int, data: bytes = b"") -> MemRequest:
        start = address % _DW
        if size < 1 or start + size > 2 * _DW or address % _PAGE + size > _PAGE:
            raise AccessError(f"{size} bytes at {address:#x}: not a possible access of a processor")
        dw = -(-(start + size) // _DW)
        enables = (1 << size) - 1 << start
        return MemRequest(
            address=address & ~3,
            dw=dw,
            first_be=enables & 0xF,
            last_be=enables >> 4,
            data=data,
            tag=self._next_tag(),
        )

    def _next_tag(self) -> int:
        self._tag = (self._tag + 1) % _TAGS
        return self._tag

    def _root_port(self, takes: Callable[[Bridge], bool]) -> Bridge | None:
        for bridge in self.bridges:
            for port in bridge.below.values():
                if isinstance(port, Bridge) and takes(port):
                    return port
        return None

    def _ask(self, port: Bridge, request: Request) -> Completion:
        answer = self._send(port, request)
        completion = unpack(answer) if answer else None
        if not isinstance(completion, Completion) or completion.tag != request.tag:
            raise RemoteError(
                f"{request.name} with tag {request.tag}: {completion} is not its completion"
            )
        if completion.status is CplStatus.COMPLETER_ABORT:
            raise AccessError(f"{request.name}: its completer does not take such an access")
        return completion

    def _send(self, port: Bridge, request: Request) -> bytes:
        with self.lock:
            self.hops = []
            return self._carry(port, _typed(port, request).pack())

    # Links

    def _carry(self, port: Bridge, raw: bytes) -> bytes:
        """Carry a request across the link of *port*; return the completion, b"" for a posted
        request."""
        there = port.below.get(0)
        if there is None:
            return _unsupported(_request(raw))
        raw = self._cross(port, there, raw, up=False)
        answer = self._receive(port, raw)
        return self._cross(port, there, answer, up=True) if answer else b""

    def _cross(self, port: Function, function: Function, raw: bytes, *, up: bool) -> bytes:
        hop = TlpHop(port, function, up, raw)
        hop = hop._replace(raw=self._wire(hop))
        self.hops.append(hop)
        return hop.raw

    def _receive(self, port: Bridge, raw: bytes) -> bytes:
        """Receive a request behind *port*: complete it, or forward it."""
        request = _request(raw)
        if isinstance(request, ConfigRequest):
            return self._config(port.below, port.buses.start, request)
        return self._mem(port.below, request)

    def _config(self, below: Mapping[int, Function], bus: int, request: ConfigRequest) -> bytes:
        """Route a configuration request: to a function on this bus, or behind one of its bridges
        (7.3.3)."""
        if request.bdf.bus == bus:
            function = below.get(request.bdf.devfn)
            return self._complete_config(function, request) if function else _unsupported(request)
        for bridge in _bridges(below):
            if request.bdf.bus in bridge.buses:
                if _is_link(bridge):
                    return self._carry(bridge, _typed(bridge, request).pack())
                return self._config(bridge.below, bridge.buses.start, request)
        return _unsupported(request)

    def _mem(self, below: Mapping[int, Function], request: MemRequest) -> bytes:
        """Route a memory request: to a BAR on this bus, or to a window of one of its bridges
        (7.5.1.3)."""
        for function in below.values():
            place = function.place(request.address)
            if place:
                return _complete_mem(place, request, self._ids_of.get(function, HOST))
        for bridge in _bridges(below):
            if bridge.forwards(request.address):
                if _is_link(bridge):
                    return self._carry(bridge, request.pack())
                return self._mem(bridge.below, request)
        return _unsupported(request)

    def _complete_config(self, function: Function, request: ConfigRequest) -> bytes:
        if request.data:
            self._ids_of[function] = (
                request.bdf
            )  # a function learns its ID from such writes (2.2.6.2)
        place = RegisterPlace(function.config, request.offset)
        return _complete(place, request.first_be, request, request.bdf)


def _request(raw: bytes) -> Request:
    """Unpack a request.  RemoteError: it is a completion."""
    tlp = unpack(raw)
    if isinstance(tlp, Completion):
        raise RemoteError(f"{tlp.name}: completions do not go down")
    return tlp


def _bridges(below: Mapping[int, Function]) -> Iterator[Bridge]:
    return (each for each in below.values() if isinstance(each, Bridge))


def _is_link(bridge: Bridge) -> bool:
    """Tell whether a link is below: the ports of a switch are below its upstream port without
    one."""
    return getattr(bridge, "port_type", None) is not PortType.UPSTREAM


def _typed(port: Bridge, request: Request) -> Request:
    """Make the request type 1 if a bridge behind *port* is to forward it."""
    if isinstance(request, ConfigRequest):
        return replace(request, type1=request.bdf.bus != port.buses.start)
    return request


# Completers


def _unsupported(request: Request) -> bytes:
    """Answer unsupported request (2.3.1); a posted write is lost."""
    if isinstance(request, MemRequest) and request.data:
        return b""
    status = CplStatus.UNSUPPORTED_REQUEST
    return Completion(
        completer=HOST, status=status, requester=request.requester, tag=request.tag
    ).pack()


def _complete_mem(place: RegisterPlace, request: MemRequest, completer: Bdf) -> bytes:
    return _complete(place, request.first_be | request.last_be << _DW, request, completer)


def _complete(place: RegisterPlace, enables: int, request: Request, completer: Bdf) -> bytes:
    """Execute a request on the enabled bytes, in the largest possible accesses."""
    data = bytearray(4 * (request.dw if isinstance(request, MemRequest) else 1))
    done = Completion(completer=completer, requester=request.requester, tag=request.tag)
    try:
        for at, size in _accesses(enables):
            if request.data:
                value = int.from_bytes(request.data[at : at + size], "little")
                place.space.write(place.offset + at, size, value)
            else:
                value = place.space.read(place.offset + at, size)
                data[at : at + size] = value.to_bytes(size, "little")
    except AccessError:
        done = replace(done, status=CplStatus.COMPLETER_ABORT)
    if request.data:
        return b"" if isinstance(request, MemRequest) else done.pack()
    if done.status is CplStatus.SUCCESS:
        done = replace(done, data=bytes(data))
        if isinstance(request, MemRequest):
            first = (enables & -enables).bit_length() - 1 if enables else 0
            count, lower = max(enables.bit_length() - first, 1), request.address + first
            done = replace(done, byte_count=count, lower_address=lower & 0x7F)
    return done.pack()


def _accesses(enables: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, size) of each access: runs of enabled bytes, cut where they are aligned."""
    at = 0
    while enables >> at:
        for size in (8, 4, 2, 1):
            mask = (1 << size) - 1 << at
            if at % size == 0 and enables & mask == mask:
                yield at, size
                at += size
                break
        else:
            at += 1


def _dws(offset: int, size: int, value: int) -> bytes:
    """Make whole DWs with *value* at *offset*."""
    start = offset % _DW
    dw = -(-(start + size) // _DW)
    return ((value & (1 << 8 * size) - 1) << 8 * start).to_bytes(_DW * dw, "little")


def _enables(offset: int, size: int) -> int:
    """Return byte enables.  AccessError: not 1, 2 or 4 bytes of one DW of configuration space."""
    check_access(offset, size, CONFIG_SPACE_BYTES, CONFIG_BYTES)
    return (1 << size) - 1 << offset % _DW
