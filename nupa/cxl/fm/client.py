# SPDX-License-Identifier: BSD-3-Clause
"""`FabricManager`: commands as methods, answers as values, refusals as exceptions.

Knows the FM API from its user's side; never the switch: all goes through messages.
"""

from __future__ import annotations

import errno
import itertools
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from nupa.cxl.cci import Code, CommandError
from nupa.cxl.fm import messages
from nupa.cxl.fm.dcd_client import Capacity
from nupa.cxl.fm.manager import Manager
from nupa.cxl.fm.mctp import MANAGER, TAGS, Assembler, Message, MessageType, encode
from nupa.cxl.fm.messages import NO_LD, NOT_BOUND, Cci, Opcode
from nupa.cxl.fm.server import path_of
from nupa.cxl.mld import GRANULARITIES
from nupa.cxl.physical_port import BindingStatus, PortState, UnbindMode
from nupa.cxl.vppb import Severity
from nupa.fabric import registry
from nupa.fabric.closing import Closing
from nupa.fabric.errors import LocalError, RemoteError

_READ_BYTES = 1 << 16
_TIMEOUT_S = 30.0
_MOST_PAUSE_S = 0.01
_BYTE = 256

#: exchange(request): its answer.
Exchange = Callable[[Message], Message]


class PortStatus(NamedTuple):
    """*speed* counts from 1, 2.5 GT/s; it and *width*, in lanes, are 0 while the link is down."""

    port: int
    state: PortState
    device: str
    up: bool
    present: bool
    in_reset: bool
    speed: int
    width: int


class VppbStatus(NamedTuple):
    """*port* and *ld* are None where there are none."""

    vppb: int
    status: BindingStatus
    port: int | None
    ld: int | None


class VirtualSwitchStatus(NamedTuple):
    """*enabled*: it is connected to a host."""

    number: int
    enabled: bool
    upstream_port: int
    vppbs: list[VppbStatus]


class LogicalDevices(NamedTuple):
    """Of one device: all of its memory, and that of each LD."""

    memory_bytes: int
    granularity_bytes: int
    lds: list[int]


class FabricManager(Closing):
    """A manager of a switch; `open` for a named fabric, `of` for a switch in this process.

    Methods raise CommandError, whose `code` is the switch's return code, and RemoteError if the
    other end is gone."""

    def __init__(self, exchange: Exchange, hang_up: Callable[[], None] = lambda: None) -> None:
        self._exchange = exchange
        self._hang_up = hang_up
        self._tags = itertools.count()

    @classmethod
    def of(cls, manager: Manager) -> FabricManager:
        """Of a switch in this process: the same messages, and no socket."""
        return cls(manager.answer)

    @classmethod
    def open(cls, name: str | None = None) -> FabricManager:
        """Of the fabric *name*, or the one that is meant.  LocalError: nobody serves it."""
        name = name or registry.meant_name()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(_TIMEOUT_S)
        try:
            sock.connect(str(path_of(name)))
        except OSError as error:
            sock.close()
            raise LocalError(
                f"no fabric manager serves {name!r}: {error.strerror}; "
                f"`nupa fm serve --fabric {name}` does",
                error.errno or 0,
            ) from error
        line = _Line(sock)
        return cls(line.exchange, sock.close)

    def close(self) -> None:
        self._hang_up()

    def request(self, opcode: int, payload: bytes = b"", *, cci: bool = False) -> bytes:
        """Any command, and the payload of its answer.  CommandError: its return code."""
        kind = MessageType.CCI if cci else MessageType.FM_API
        return _payload_of(self._ask(kind, opcode, payload), opcode)

    def tunnel(self, port: int, opcode: int, payload: bytes = b"") -> bytes:
        """A command for the device at a port.  CommandError: the switch's return code, or its."""
        inner = Cci(opcode, payload, next(self._tags) % _BYTE)
        message = inner.pack()
        head = messages.TUNNEL.pack(messages.Tunnelled(port, 0, len(message)))
        answer = self.request(Opcode.TUNNEL, head + message)
        size = int.from_bytes(answer[:2], "little")
        return _payload_of(messages.unpack(answer[4 : 4 + size]), opcode)

    def _ask(self, kind: MessageType, opcode: int, payload: bytes) -> Cci:
        tag = next(self._tags)
        request = Cci(opcode, payload, tag % _BYTE)
        message = self._exchange(Message(kind, request.pack(), tag % TAGS))
        answer = messages.unpack(message.body)
        if not answer.response or (answer.opcode, answer.tag) != (opcode, tag % _BYTE):
            raise RemoteError(f"asked {opcode:#06x}, answered {answer.opcode:#06x}", errno.EPROTO)
        return answer

    # Physical ports

    def switch(self) -> messages.SwitchInfo:
        return messages.SWITCH.unpack(self.request(Opcode.IDENTIFY_SWITCH))

    def ports(self, numbers: Sequence[int] | None = None) -> list[PortStatus]:
        """All, if none is named."""
        asked = bytes(range(self.switch().ports) if numbers is None else numbers)
        answer = self.request(Opcode.PORT_STATE, bytes([len(asked)]) + asked)
        kinds = {4: "SLD", 5: "MLD"}
        return [
            PortStatus(
                info.port,
                PortState(info.state),
                kinds.get(info.device, ""),
                info.speed > 0,
                bool(info.flags & 1 << 2),
                bool(info.flags & 1 << 1),
                info.speed,
                info.width,
            )
            for info in messages.PORT.unpack_all(answer, 4, answer[0])
        ]

    def reset(self, port: int) -> None:
        """A hot reset of what is there."""
        self._control(port, 2)

    def assert_reset(self, port: int, asserted: bool = True) -> None:
        """PERST: its link is down meanwhile."""
        self._control(port, int(not asserted))

    def _control(self, port: int, action: int) -> None:
        self.request(
            Opcode.PORT_CONTROL, messages.PORT_ACTION.pack(messages.PortAction(port, action))
        )

    def ppb_read(self, port: int, offset: int) -> int:
        """A DW of a bridge's configuration space."""
        access = messages.ConfigAccess(port, _where(offset), 0)
        return _word(self.request(Opcode.PPB_CONFIG, messages.CONFIG.pack(access)))

    def ppb_write(self, port: int, offset: int, value: int) -> None:
        access = messages.ConfigAccess(port, _where(offset, write=True), value)
        self.request(Opcode.PPB_CONFIG, messages.CONFIG.pack(access))

    # Virtual switches

    def virtual_switches(self, numbers: Sequence[int] | None = None) -> list[VirtualSwitchStatus]:
        """All, if none is named.  CommandError: INVALID_INPUT if one that is named is not there."""
        asked = range(self.switch().virtual_switches) if numbers is None else numbers
        return [self._virtual_switch(number) for number in asked]

    def _virtual_switch(self, number: int) -> VirtualSwitchStatus:
        answer = self.request(Opcode.VCS_INFO, bytes([0, 0xFF, 1, number]))
        head = messages.VCS.unpack(answer, 4)
        if head.state == 0xFF:
            raise CommandError(Code.INVALID_INPUT, f"virtual switch {number}")
        vppbs = [
            VppbStatus(
                i,
                BindingStatus(info.status),
                info.port if info.status else None,
                info.ld if info.ld != NOT_BOUND else None,
            )
            for i, info in enumerate(messages.VPPB.unpack_all(answer, 8, head.vppbs))
        ]
        return VirtualSwitchStatus(number, head.state == 1, head.usp, vppbs)

    def bind(
        self, vcs: int, vppb: int, port: int, ld: int | None = None, *, wait: bool = True
    ) -> None:
        """Bind a vPPB to a port, or to an LD there; wait until it is done."""
        request = messages.BindRequest(vcs, vppb, port, NO_LD if ld is None else ld)
        self.request(Opcode.BIND, messages.BIND.pack(request))
        if wait:
            self.wait(Opcode.BIND)

    def unbind(
        self, vcs: int, vppb: int, mode: UnbindMode = UnbindMode.MANAGED, *, wait: bool = True
    ) -> None:
        """End a binding; wait until it has ended."""
        request = messages.UnbindRequest(vcs, vppb, mode)
        self.request(Opcode.UNBIND, messages.UNBIND.pack(request))
        if wait:
            self.wait(Opcode.UNBIND)

    def generate_aer(
        self, vcs: int, vppb: int, bit: int, severity: Severity, header: bytes = bytes(16)
    ) -> None:
        """Let a host see an error of the device below a vPPB: its *bit* in AER's status."""
        request = messages.AerRequest(vcs, vppb, severity << 30 | bit, header)
        self.request(Opcode.GENERATE_AER, messages.AER.pack(request))

    def background(self) -> messages.BackgroundStatus:
        """What goes on, or was done last."""
        return messages.BACKGROUND.unpack(self.request(Opcode.BACKGROUND_STATUS))

    def abort(self) -> None:
        """Give up what goes on in the background, if anything does."""
        self.request(Opcode.ABORT)

    def wait(self, opcode: int, timeout_s: float = _TIMEOUT_S) -> None:
        """Until this operation goes on no more.  CommandError: it was given up; RemoteError: it
        takes longer (ETIMEDOUT)."""
        pause_s, end = 0.0, time.monotonic() + timeout_s
        while (status := self.background()).status & 1 and status.opcode == opcode:
            if time.monotonic() > end:
                raise RemoteError(
                    f"{Opcode(opcode).name} goes on after {timeout_s:g} s: wait, or abort it",
                    errno.ETIMEDOUT,
                )
            time.sleep(pause_s)
            pause_s = min(_MOST_PAUSE_S, pause_s * 2 + 1e-4)
        if status.opcode == opcode and status.code != Code.SUCCESS:
            raise CommandError(Code(status.code), Opcode(opcode).name.lower())

    # Logical devices

    def logical_devices(self, port: int) -> LogicalDevices:
        """Of the device at a port."""
        info = messages.LD_INFO.unpack(self.tunnel(port, Opcode.LD_INFO))
        answer = self.tunnel(port, Opcode.LD_ALLOCATIONS, bytes([0, 0xFF]))
        head = messages.ALLOCATION_HEAD.unpack(answer)
        (step,) = (size for size, code in GRANULARITIES.items() if code == head.granularity)
        rows = messages.ALLOCATION.unpack_all(answer, messages.ALLOCATION_HEAD.size, head.listed)
        return LogicalDevices(
            info.memory_bytes, step, [(row.steps + row.second) * step for row in rows]
        )

    def allocate(self, port: int, first: int, sizes: Sequence[int]) -> list[int]:
        """Give LDs *first*… memory, in bytes; what they have then.  LocalError: a size is no
        multiple of the granularity."""
        step = self.logical_devices(port).granularity_bytes
        if any(size % step or size < 0 for size in sizes):
            raise LocalError(f"memory of LDs comes in steps of {step >> 20} MiB", errno.EINVAL)
        rows = (messages.ALLOCATION.pack(messages.Allocation(size // step, 0)) for size in sizes)
        payload = bytes([len(sizes), first, 0, 0]) + b"".join(rows)
        answer = self.tunnel(port, Opcode.SET_LD_ALLOCATIONS, payload)
        return [row.steps * step for row in messages.ALLOCATION.unpack_all(answer, 4)]

    def ld_config_read(self, port: int, ld: int, offset: int) -> int:
        """A DW of an LD's configuration space; *ld* 0xFFFF is the manager's own."""
        access = messages.LdConfigAccess(port, _where(offset), ld, 0)
        return _word(self.request(Opcode.LD_CONFIG, messages.LD_CONFIG.pack(access)))

    def ld_config_write(self, port: int, ld: int, offset: int, value: int) -> None:
        access = messages.LdConfigAccess(port, _where(offset, write=True), ld, value)
        self.request(Opcode.LD_CONFIG, messages.LD_CONFIG.pack(access))

    def ld_read(self, port: int, ld: int, address: int, length: int) -> bytes:
        """Registers behind an LD's BARs, in whole DWs."""
        access = messages.LdMemoryAccess(port, _range(length), ld, length, address)
        answer = self.request(Opcode.LD_MEMORY, messages.LD_MEMORY.pack(access))
        return answer[4 : 4 + int.from_bytes(answer[:2], "little")]

    def ld_write(self, port: int, ld: int, address: int, data: bytes) -> None:
        where = _range(len(data), write=True)
        access = messages.LdMemoryAccess(port, where, ld, len(data), address)
        self.request(Opcode.LD_MEMORY, messages.LD_MEMORY.pack(access) + data)

    def capacity(self, port: int) -> Capacity:
        """The dynamic capacity of the device at a port."""
        return Capacity(partial(self.tunnel, port))

    def qos(self, port: int) -> messages.QosControl:
        return messages.QOS.unpack(self.tunnel(port, Opcode.QOS_CONTROL))

    def set_qos(self, port: int, qos: messages.QosControl) -> messages.QosControl:
        answer = self.tunnel(port, Opcode.SET_QOS_CONTROL, messages.QOS.pack(qos))
        return messages.QOS.unpack(answer)

    def bandwidth(self, port: int, *, limit: bool = False) -> list[int]:
        """Of each LD in 1/256 of its device's: what it is given, or limited to."""
        opcode = Opcode.QOS_LIMIT if limit else Opcode.QOS_BANDWIDTH
        return list(self.tunnel(port, opcode, bytes([0xFF, 0]))[messages.PART.size :])

    def set_bandwidth(
        self, port: int, first: int, parts: Sequence[int], *, limit: bool = False
    ) -> None:
        opcode = Opcode.SET_QOS_LIMIT if limit else Opcode.SET_QOS_BANDWIDTH
        self.tunnel(port, opcode, bytes([len(parts), first, *parts]))


class _Line:
    """Requests and answers over a connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._assembler = Assembler(MANAGER)

    def exchange(self, request: Message) -> Message:
        try:
            self._sock.sendall(encode(request))
            while data := self._sock.recv(_READ_BYTES):
                for answer in self._assembler.feed(data):
                    if not answer.owner and answer.tag == request.tag:
                        return answer
        except OSError as error:
            raise RemoteError(
                f"the fabric manager does not answer: {error.strerror or error}", error.errno or 0
            ) from error
        raise RemoteError(
            "the fabric manager has hung up: it hears its owner only, and has ended if that is you",
            errno.ECONNRESET,
        )


def _payload_of(answer: Cci, opcode: int) -> bytes:
    if answer.code not in (Code.SUCCESS, Code.BACKGROUND_STARTED):
        known = {int(each) for each in Opcode}
        raise CommandError(
            Code(answer.code), Opcode(opcode).name if opcode in known else hex(opcode)
        )
    return answer.payload


def _where(offset: int, *, write: bool = False) -> bytes:
    """All four bytes of the DW at *offset*."""
    return (offset | 0xF << 12 | write << 23).to_bytes(3, "little")


def _range(length: int, *, write: bool = False) -> bytes:
    last = 0xF if length > 4 else 0
    return (0xF << 12 | last << 16 | write << 23).to_bytes(3, "little")


def _word(data: bytes) -> int:
    return int.from_bytes(data[:4], "little")
