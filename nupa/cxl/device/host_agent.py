# SPDX-License-Identifier: BSD-3-Clause
"""The host of type 2 devices: its processors' cache, and the directory of lines that devices have.

CXL 3.1 3.2.4, 3.3.5, 3.5.2.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from enum import Enum
from threading import RLock
from typing import NamedTuple

from nupa.base.errors import LocalError, RemoteError
from nupa.cxl.cache.coherence import Directory, Mesi, Snoop
from nupa.cxl.cache.device_cache import Reply, Write, split
from nupa.cxl.cache.states import (
    CacheRequest,
    DataDirection,
    HostAnswer,
    TransitionError,
    may_respond,
)
from nupa.cxl.cache.tables import Grant, H2DReqOpcode
from nupa.cxl.device.type2 import Type2
from nupa.cxl.media.parts import LINE_BYTES, Memory


class CacheMessage(NamedTuple):
    """A message on *channel* (3.2.3, 3.3.2) between the host and *device*; *detail* is a grant, a
    state or a SnpType."""

    channel: str
    name: str
    device: str
    hpa: int
    detail: str = ""

    def __str__(self) -> str:
        words = (self.channel, self.name, self.detail, f"{self.hpa:#x}", self.device)
        return " ".join(word for word in words if word)


class _Need(Enum):
    """The purpose of a request, and how others are asked for the line: the snoop on H2D, the M2S
    request with its state and SnpType."""

    CURRENT = (H2DReqOpcode.SnpCur, "MemRd", Directory.I, Snoop.CUR)
    SHARED = (H2DReqOpcode.SnpData, "MemRd", Directory.S, Snoop.DATA)
    OWN = (H2DReqOpcode.SnpInv, "MemRd", Directory.A, Snoop.INV)
    OWN_NO_DATA = (H2DReqOpcode.SnpInv, "MemInv", Directory.A, Snoop.INV)
    NOBODY = (H2DReqOpcode.SnpInv, "MemInv", Directory.I, Snoop.INV)


_NEEDS = {
    "RdCurr": _Need.CURRENT,
    "RdShared": _Need.SHARED,
    "RdAny": _Need.SHARED,
    "RdOwn": _Need.OWN,
    "RdOwnNoData": _Need.OWN_NO_DATA,
}
_GRANTS = {"RdShared": Grant.S, "RdOwn": Grant.E, "RdOwnNoData": Grant.E}
_EVICTS = ("CleanEvict", "DirtyEvict", "CleanEvictNoData")


@dataclass(slots=True)
class _CpuLine:
    state: Mesi
    data: bytearray


class HostAgent:
    """A host with *memory_bytes* of memory from address 0 on, and the memory of its devices behind
    that.  `read` and `write` are accesses of processors, through a cache of *lines*.  `messages`
    counts by channel and name; `trace` has the last *trace* messages.  All methods are
    thread-safe."""

    def __init__(self, memory_bytes: int, *, lines: int = 4096, trace: int = 1024) -> None:
        if memory_bytes % LINE_BYTES or lines < 1:
            raise LocalError(f"{memory_bytes} bytes, {lines} lines: give whole lines, at least 1")
        self.lock = RLock()
        self.memory = Memory.anonymous(memory_bytes)
        self.memory_bytes = memory_bytes
        self.messages: Counter[str] = Counter()
        self.trace: deque[CacheMessage] = deque(maxlen=trace)
        self._limit = lines
        self._cpu: OrderedDict[int, _CpuLine] = OrderedDict()
        self._devices: list[Type2] = []
        self._holders: dict[int, dict[Type2, Mesi]] = {}  # devices may have dropped lines

    def attach(self, device: Type2, base: int) -> None:
        """Attaches a device, its memory at *base*.  LocalError: it is attached already, or *base*
        is not possible."""
        end = base + device.memory_bytes
        if device.host is not None:
            raise LocalError(f"{device.name} has a host already: detach it first")
        if base % (1 << 28) or base < self.memory_bytes:
            raise LocalError(f"{base:#x}: take a multiple of 256 MiB behind the host's memory")
        for other in self._devices:
            if base < other.base + other.memory_bytes and other.base < end:
                raise LocalError(f"{base:#x}: memory of {other.name} is there")
        with self.lock:
            device.host, device.base = self, base
            self._devices.append(device)

    def detach(self, device: Type2) -> None:
        """Detaches a device, once all caches have given its lines back.  LocalError: it is not
        attached."""
        if device not in self._devices:
            raise LocalError(f"{device.name} is not attached to this host")
        with self.lock:
            if device.cache.lines():
                device.flush()
            self.flush(device.base, device.memory_bytes)
            self._devices.remove(device)
            device.host = None

    # Processors

    def read(self, hpa: int, size: int) -> bytes:
        """Reads bytes.  LocalError: no memory is there."""
        with self.lock:
            return b"".join(
                bytes(self._cpu_line(line).data[at : at + part])
                for line, at, part in split(hpa, size)
            )

    def write(self, hpa: int, data: bytes) -> None:
        """Writes bytes.  LocalError: no memory is there; lines before that are written."""
        done = 0
        with self.lock:
            for line, at, part in split(hpa, len(data)):
                cached = self._cpu_line(line, stores=True)
                cached.data[at : at + part] = data[done : done + part]
                cached.state = Mesi.M
                done += part

    def flush(self, hpa: int, size: int) -> None:
        """Drops lines of these bytes from all caches of this host and of its devices, except a
        device's lines of its own memory."""
        with self.lock:
            lines = {*self._cpu, *self._holders}
            for line in sorted(each for each in lines if hpa - LINE_BYTES < each < hpa + size):
                self._settle(line, None, _Need.NOBODY)
                self._drop_cpu(line)

    def state(self, hpa: int) -> Mesi:
        """Returns the state of the line in the processors' cache."""
        line = self._cpu.get(hpa - hpa % LINE_BYTES)
        return line.state if line else Mesi.I

    def cached(self, hpa: int, size: int) -> int:
        """Counts lines of these bytes that the host, or a device other than their owner, has."""
        lines = {*self._cpu, *self._holders}
        return sum(hpa <= line < hpa + size for line in lines)

    def _cpu_line(self, hpa: int, *, stores: bool = False) -> _CpuLine:
        line = self._cpu.get(hpa)
        if line is not None and (not stores or line.state >= Mesi.E):
            self._cpu.move_to_end(hpa)
            return line
        if not self._is_memory(hpa):
            raise LocalError(f"{hpa:#x}: no memory of the host or of a device is there")
        if line is None and len(self._cpu) == self._limit:
            self._drop_cpu(next(iter(self._cpu)))
        if line is not None:
            self._settle(hpa, None, _Need.OWN_NO_DATA)
            line.state = Mesi.E
            return line
        is_alone, data = self._settle(hpa, None, _Need.OWN if stores else _Need.SHARED)
        state = Mesi.E if stores or is_alone else Mesi.S
        self._cpu[hpa] = _CpuLine(state, bytearray(data))
        return self._cpu[hpa]

    def _drop_cpu(self, hpa: int) -> None:
        line = self._cpu.pop(hpa, None)
        if line is not None and line.state is Mesi.M:
            self._write_home(hpa, bytes(line.data))

    # Requests of devices

    def request(self, device: Type2, row: CacheRequest, hpa: int, write: Write) -> Reply:
        """Answers a D2H request for a line that is not the device's own.  TransitionError: an evict
        of a line that the device does not have."""
        self._say("D2H Req", row.name, device, hpa)
        if row.name == "CacheFlushed":
            for line in tuple(self._holders):
                self._forget(device, line)
            return self._reply(device, row, hpa, Grant.I)
        if row.name in _EVICTS:
            return self._evict(device, row, hpa, write)
        if not self._is_memory(hpa):
            return self._refuse(device, row, hpa)
        need = _NEEDS.get(row.name, _Need.NOBODY)
        is_cached = hpa in self._cpu
        is_alone, data = self._settle(hpa, device, need)
        if row.forward == "MemWrFwd":
            self._write(hpa, write, into_cache=row.name == "WrCur" and is_cached)
            return self._reply(device, row, hpa, row.answers[0].grant)
        if row.name in ("RdCurr", "CLFlush"):
            return self._reply(device, row, hpa, row.answers[0].grant, data)
        grant = _GRANTS.get(row.name, Grant.E if is_alone else Grant.S)
        self._holders.setdefault(hpa, {})[device] = Mesi.S if grant is Grant.S else Mesi.E
        return self._reply(device, row, hpa, grant, data)

    def forward(self, device: Type2, row: CacheRequest, hpa: int) -> Directory:
        """Handles a D2H request for the device's own memory (3.5.2).  Takes the line back from
        others, and answers with MemRdFwd or MemWrFwd and the state that others keep."""
        self._say("D2H Req", row.name, device, hpa)
        need = _NEEDS.get(row.name, _Need.NOBODY)
        if need is _Need.CURRENT:  # the line has to be in the device's memory
            need = _Need.SHARED
        self._ask_holders(hpa, device, need)
        is_shared = hpa in self._cpu or hpa in self._holders
        meta = Directory.S if is_shared else Directory.I
        self._say("M2S Req", row.forward, device, hpa, meta.name)
        return meta

    def _evict(self, device: Type2, row: CacheRequest, hpa: int, write: Write) -> Reply:
        granted = self._holders.get(hpa, {}).get(device, Mesi.I)
        if granted is Mesi.I or (granted is Mesi.S and row.name != "CleanEvictNoData"):
            raise TransitionError(
                f"{row.name} of {hpa:#x}: {device.name} was given it in {granted.name}"
            )
        self._forget(device, hpa)
        if row.name == "DirtyEvict":
            reply = self._reply(device, row, hpa, None)
            self._write_home(hpa, write.data)
            return reply
        if row.name == "CleanEvict":
            return self._reply(device, row, hpa, None, answer=row.answers[1])
        return self._reply(device, row, hpa, Grant.I)

    def _refuse(self, device: Type2, row: CacheRequest, hpa: int) -> Reply:
        if row.name == "RdCurr":  # it has no GO that could carry an error
            raise RemoteError(f"RdCurr of {hpa:#x}: the host has no memory there")
        return self._reply(device, row, hpa, None, b"\xff" * LINE_BYTES, answer=row.answers[-1])

    def _reply(
        self,
        device: Type2,
        row: CacheRequest,
        hpa: int,
        grant: Grant | None,
        data: bytes = b"",
        *,
        answer: HostAnswer | None = None,
    ) -> Reply:
        if answer is None:
            answer = next(each for each in row.answers if each.grant is grant)
        for response in answer.responses:
            detail = answer.grant.name if answer.grant and response.name == "GO" else ""
            self._say("H2D Rsp", response.name, device, hpa, detail)
        if answer.data is not DataDirection.NONE:
            self._say(f"{answer.data.value} Data", "", device, hpa)
        return Reply(answer, data if answer.data is DataDirection.TO_DEVICE else b"")

    # Lines

    def _is_memory(self, hpa: int) -> bool:
        return 0 <= hpa < self.memory_bytes or self._home(hpa) is not None

    def _home(self, hpa: int) -> Type2 | None:
        return next((each for each in self._devices if each.is_own(hpa)), None)

    def _settle(self, hpa: int, requester: Type2 | None, need: _Need) -> tuple[bool, bytes]:
        """Has all but *requester* (None: the processors) give the line up as *need* says.  Returns
        whether no other cache has it, and its bytes."""
        data = self._ask_holders(hpa, requester, need)
        others = {*self._holders.get(hpa, {})} - {requester}
        is_alone = not others and (requester is None or hpa not in self._cpu)
        home = self._home(hpa)
        if home is None:
            return is_alone, data or self.memory.read(hpa, LINE_BYTES)
        _, name, wanted, snoop = need.value
        self._say("M2S Req", name, home, hpa, f"{wanted.name} Snp{snoop.name.capitalize()}")
        ndr, content = home.answer(name, hpa, wanted, snoop)
        self._say("S2M NDR", ndr, home, hpa)
        if content:
            self._say("S2M DRS", "MemData", home, hpa)
        return is_alone and ndr != "Cmp-S", data or content

    def _ask_holders(self, hpa: int, requester: Type2 | None, need: _Need) -> bytes:
        """Snoops its holders; returns its bytes if one of them had changed it."""
        changed = b""
        line = self._cpu.get(hpa)
        if requester is not None and line is not None:
            changed = bytes(line.data) if line.state is Mesi.M else b""
            if need is not _Need.CURRENT:
                if changed:
                    self._write_home(hpa, changed)
                line.state = Mesi.S
                if need is not _Need.SHARED:
                    del self._cpu[hpa]
        for device, granted in tuple(self._holders.get(hpa, {}).items()):
            asks_readers = need not in (_Need.CURRENT, _Need.SHARED)
            if device is not requester and (granted is not Mesi.S or asks_readers):
                changed = self._snoop(device, granted, hpa, need.value[0]) or changed
        return changed

    def _snoop(self, device: Type2, granted: Mesi, hpa: int, snoop: H2DReqOpcode) -> bytes:
        self._say("H2D Req", snoop.name, device, hpa)
        outcome, data = device.snoop(snoop, hpa)
        may_respond(snoop, granted, outcome)
        self._say("D2H Rsp", outcome.response.name, device, hpa)
        if outcome.has_data:
            self._say("D2H Data", "", device, hpa)
        if outcome.after is Mesi.I:
            self._forget(device, hpa)
        else:
            self._holders[hpa][device] = Mesi.S if outcome.after is Mesi.S else Mesi.E
        if outcome.has_data and outcome.after is not Mesi.M:
            self._write_home(hpa, data)
        return data

    def _forget(self, device: Type2, hpa: int) -> None:
        holders = self._holders.get(hpa, {})
        holders.pop(device, None)
        if not holders:
            self._holders.pop(hpa, None)

    def _write(self, hpa: int, write: Write, *, into_cache: bool) -> None:
        """Writes a line that is in no cache."""
        line = bytearray(self._read_home(hpa)) if len(write.data) < LINE_BYTES else bytearray(64)
        line[write.at : write.at + len(write.data)] = write.data
        if into_cache:
            self._settle(hpa, None, _Need.OWN_NO_DATA)
            self._cpu[hpa] = _CpuLine(Mesi.M, line)
        else:
            self._write_home(hpa, bytes(line))

    def _read_home(self, hpa: int) -> bytes:
        return self._settle(hpa, None, _Need.CURRENT)[1]

    def _write_home(self, hpa: int, data: bytes) -> None:
        home = self._home(hpa)
        if home is None:
            self.memory.write(hpa, data)
            return
        self._say("M2S RwD", "MemWr", home, hpa, Directory.I.name)
        ndr, _ = home.answer("MemWr", hpa, Directory.I, Snoop.NONE, data)
        self._say("S2M NDR", ndr, home, hpa)

    def _say(self, channel: str, name: str, device: Type2, hpa: int, detail: str = "") -> None:
        message = CacheMessage(channel, name, device.name, hpa, detail)
        self.messages[f"{channel} {name}".rstrip()] += 1
        self.trace.append(message)
