# SPDX-License-Identifier: BSD-3-Clause
"""A type 2 device: an accelerator with a cache (CXL.cache), and memory that it shares with its host
(CXL.mem, HDM-D).  Each page is in host bias or device bias.

CXL 3.1 2.2.1, 3.2, 3.5.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nupa.base.errors import LocalError
from nupa.cxl.cache.bias import PAGE_BYTES, Bias, BiasTable
from nupa.cxl.cache.coherence import Directory, Mesi, Snoop
from nupa.cxl.cache.device_cache import CacheLine, DeviceCache, Reply, Write, split
from nupa.cxl.cache.states import (
    CacheRequest,
    DataDirection,
    HostAnswer,
    SnoopOutcome,
    TransitionError,
)
from nupa.cxl.cache.tables import Grant, H2DReqOpcode
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.media.parts import LINE_BYTES, Memory, PartedMedia

if TYPE_CHECKING:
    from nupa.cxl.device.host_agent import HostAgent

#: As its DVSEC says (CXL 3.1 8.1.3.7): one unit of 64 KiB.
CACHE_BYTES = 1 << 16


class Type2(Type3):
    """A device with *memory_bytes*, a multiple of 256 MiB.  `read` and `write` are accesses of its
    own program, through its cache of *lines*.  They need an attached host, and Cache_Enable
    (8.1.3.2) for requests to the host."""

    def __init__(
        self,
        memory_bytes: int,
        *,
        serial: int = 0,
        name: str = "type2",
        lines: int = CACHE_BYTES // LINE_BYTES,
    ) -> None:
        super().__init__(memory_bytes, serial=serial, name=name, cache=True)
        self.own = PartedMedia.of(Memory.anonymous(memory_bytes), memory_bytes)
        self.media = self.own
        self.cache = DeviceCache(self._send, lines)
        self.bias = BiasTable(memory_bytes)
        self.host: HostAgent | None = None
        self.base = 0
        registers = self.config["device"]
        registers.on_write("control_2.writeback_invalidate", self._write_back)

    # Its program

    def read(self, hpa: int, size: int) -> bytes:
        """Reads bytes.  TransitionError, RemoteError as by DeviceCache.request; LocalError: caching
        is not enabled."""
        with self._host.lock:
            return b"".join(
                bytes(self._load(line)[at : at + part]) for line, at, part in split(hpa, size)
            )

    def write(self, hpa: int, data: bytes) -> None:
        """Writes bytes.  Errors as by `read`; lines before the one that fails are written."""
        done = 0
        with self._host.lock:
            for line, at, part in split(hpa, len(data)):
                self._store(line, at, data[done : done + part])
                done += part

    def request(self, name: str, hpa: int, data: bytes = b"", at: int = 0) -> bytes:
        """Sends a request of CXL.cache for the line *hpa*: `DeviceCache.request`."""
        with self._host.lock:
            if self.is_own(hpa) and self.bias[hpa - self.base] is Bias.DEVICE:
                raise TransitionError(f"{name} of {hpa:#x}: its page is in device bias")
            self._make_room(hpa)
            return self.cache.request(name, hpa, Write(data, at) if data else None)

    def flip(self, hpa: int, to: Bias, size: int = PAGE_BYTES) -> None:
        """Changes the bias of the pages of these bytes to *to*, once the other side has given their
        lines back (2.2.1.2).  LocalError: not memory of this device."""
        first = hpa - hpa % PAGE_BYTES
        with self._host.lock:
            for page in range(first, hpa + size, PAGE_BYTES):
                if not self.is_own(page):
                    raise LocalError(f"{page:#x}: no memory of {self.name}")
                if self.bias[page - self.base] is to:
                    continue
                self._drop_own(page, PAGE_BYTES)
                if to is Bias.HOST:
                    self.bias.flip(page - self.base, to, 0)
                    continue
                for line in range(page, page + PAGE_BYTES, LINE_BYTES):
                    self.cache.request("CLFlush", line)
                cached = self._host.cached(page, PAGE_BYTES)
                self.bias.flip(page - self.base, to, cached)

    def flush(self) -> None:
        """Writes back and drops all lines, and reports it (CacheFlushed)."""
        with self._host.lock:
            for hpa in tuple(self.cache.lines()):
                self._give_up(hpa)
            self.cache.request("CacheFlushed", 0)
            self.config["device"]["status_2.cache_invalid"] = 1

    def is_own(self, hpa: int) -> bool:
        """Tells whether *hpa* is memory of this device."""
        return self.host is not None and 0 <= hpa - self.base < self.memory_bytes

    # Requests of its host

    def snoop(self, snoop: H2DReqOpcode, hpa: int) -> tuple[SnoopOutcome, bytes]:
        """Responds to an H2D request: `DeviceCache.snoop`."""
        return self.cache.snoop(snoop, hpa)

    def answer(
        self, name: str, hpa: int, wanted: Directory, snoop: Snoop, data: bytes = b""
    ) -> tuple[str, bytes]:
        """Answers an M2S request for memory of this device: returns the opcode of the NDR, and the
        line if it is asked for.  A page in device bias changes to host bias.

        TransitionError: a write of a line that the device has in E or M."""
        dpa = hpa - self.base
        if self.bias[dpa] is Bias.DEVICE:
            self._drop_own(hpa - hpa % PAGE_BYTES, PAGE_BYTES)
            self.bias.flip(dpa, Bias.HOST, 0)
        line = self.cache.lines(hpa, LINE_BYTES).get(hpa)
        if name == "MemWr":
            if line is not None and line.state >= Mesi.E:
                raise TransitionError(f"MemWr of {hpa:#x}: the device has it in {line.state}")
            self.own.write(dpa, data)
            return "Cmp", b""
        if line is not None:
            self._yield(hpa, line, snoop)
        content = b"" if name.startswith("MemInv") else self.own.read(dpa, LINE_BYTES)
        if wanted is Directory.I:
            return "Cmp", content
        stays = self.cache.state(hpa) is not Mesi.I
        return ("Cmp-S" if wanted is Directory.S and stays else "Cmp-E"), content

    def _yield(self, hpa: int, line: CacheLine, snoop: Snoop) -> None:
        if line.state is Mesi.M:
            self.own.write(hpa - self.base, bytes(line.data))
            line.state = Mesi.E
        if snoop is Snoop.INV:
            self.cache.drop(hpa)
        elif snoop is Snoop.DATA:
            line.state = Mesi.S

    # Lines

    @property
    def _host(self) -> HostAgent:
        if self.host is None:
            raise LocalError(f"{self.name}  is not attached to a host")
        return self.host

    @property
    def _is_uncached(self) -> bool:
        """Whether the device must not cache new lines (8.1.3.4, Disable Caching)."""
        return bool(self.config["device"]["control_2.disable_caching"])

    def _load(self, hpa: int) -> bytes | bytearray:
        line = self.cache.find(hpa)
        if line is not None:
            return line.data
        if not self._is_uncached:
            return self._fetch(hpa, stores=False).data
        if self._is_local(hpa):
            return self.own.read(hpa - self.base, LINE_BYTES)
        return self.cache.request("RdCurr", hpa)

    def _store(self, hpa: int, at: int, data: bytes) -> None:
        line = self.cache.find(hpa, stores=True)
        if line is None and self._is_uncached:
            if self.cache.state(hpa) is not Mesi.I:
                self._give_up(hpa)
            if self._is_local(hpa):
                self.own.write(hpa - self.base + at, data)
            elif len(data) == LINE_BYTES:
                self.cache.request("WOWrInvF", hpa, Write(data))
            else:
                self.cache.request("WrInv", hpa, Write(data, at))
            return
        if line is None:
            self._fetch(hpa, stores=True)
        self.cache.store(hpa, at, data)

    def _is_local(self, hpa: int) -> bool:
        return self.is_own(hpa) and self.bias[hpa - self.base] is Bias.DEVICE

    def _fetch(self, hpa: int, *, stores: bool) -> CacheLine:
        self._make_room(hpa)
        self.config["device"]["status_2.cache_invalid"] = 0
        if self._is_local(hpa):
            content = bytearray(self.own.read(hpa - self.base, LINE_BYTES))
            return self.cache.fill(hpa, CacheLine(Mesi.E, content, is_local=True))
        if self.cache.state(hpa) is Mesi.S:
            self.cache.request("RdOwnNoData", hpa)
        else:
            self.cache.request("RdOwn" if stores else "RdShared", hpa)
        return self.cache.lines(hpa, LINE_BYTES)[hpa]

    def _make_room(self, hpa: int) -> None:
        victim = self.cache.victim(hpa)
        if victim is not None:
            self._give_up(victim)

    def _give_up(self, hpa: int) -> None:
        """Evicts a line; lines of the device's own memory need no message (3.5.2)."""
        if self.is_own(hpa):
            self._drop_own(hpa, LINE_BYTES)
        else:
            self.cache.evict(hpa)

    def _drop_own(self, first: int, size: int) -> None:
        for hpa, line in self.cache.lines(first, size).items():
            self._yield(hpa, line, Snoop.INV)

    # Requests

    def _send(self, row: CacheRequest, hpa: int, write: Write) -> Reply:
        if not self.config["device"]["control.cache_enable"]:
            raise LocalError(f"{self.name}: {row.name}: Cache_Enable is not set (CXL 3.1 8.1.3.2)")
        if not self.is_own(hpa) or row.name == "CacheFlushed":
            return self._host.request(self, row, hpa, write)
        if not row.forward:
            raise TransitionError(f"{row.name} of {hpa:#x}: it is memory of {self.name} itself")
        meta = self._host.forward(self, row, hpa)
        dpa = hpa - self.base
        if row.forward == "MemWrFwd":
            self.own.write(dpa + write.at, write.data)
            return Reply(row.answers[0])
        grant = {"RdShared": Grant.S, "RdAny": Grant.S}.get(row.name, Grant.E)
        if row.name == "RdAny" and meta is Directory.I:
            grant = Grant.E
        answer = next((each for each in row.answers if each.grant is grant), row.answers[0])
        return Reply(answer, self._own_line(answer, dpa))

    def _own_line(self, answer: HostAnswer, dpa: int) -> bytes:
        return self.own.read(dpa, LINE_BYTES) if answer.data is DataDirection.TO_DEVICE else b""

    def _write_back(self, written: int, _old: int) -> None:
        """Handles Initiate Cache Write Back and Invalidation (8.1.3.4)."""
        if written:
            self.flush()

    def _cxl_reset(self, written: int, old: int) -> None:
        """Writes back the cache, then resets (9.7)."""
        if written and self.host is not None and self.cache.lines():
            self.flush()
        super()._cxl_reset(written, old)
