# SPDX-License-Identifier: BSD-3-Clause
"""Commands of virtual switches: bindings, and errors for a host (CXL 3.1 7.6.7.2, 52xxh)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nupa.cxl.fm import messages
from nupa.cxl.fm.messages import NO_LD, NOT_BOUND, FmOpcode, VcsHead, VppbInfo
from nupa.cxl.function.cci import Code, Command, Effect, at_least, exactly, require
from nupa.cxl.switch.physical_port import UnbindMode
from nupa.cxl.switch.switch import Switch, VirtualSwitch
from nupa.cxl.switch.vppb import Severity, report

if TYPE_CHECKING:
    from nupa.cxl.fm.server.component import Component

_DISABLED, _ENABLED, _INVALID = 0x00, 0x01, 0xFF
_BACKGROUND = Effect.CONFIG | Effect.BACKGROUND | Effect.ABORTABLE

#: later(work): call *work* once, now or when a binding is to complete.
Later = Callable[[Callable[[], None]], None]


class Virtual:
    """The commands; bindings are background operations of *component*, and complete when *later*
    says so."""

    def __init__(self, switch: Switch, component: Callable[[], Component], later: Later) -> None:
        self._switch = switch
        self._component = component
        self._later = later

    def commands(self) -> Iterator[Command]:
        bind, unbind, aer = messages.BIND.size, messages.UNBIND.size, messages.AER.size
        yield Command(FmOpcode.VCS_INFO, "get virtual switch info", at_least(4), self._info)
        yield Command(FmOpcode.BIND, "bind vPPB", exactly(bind), self._bind, _BACKGROUND)
        yield Command(FmOpcode.UNBIND, "unbind vPPB", exactly(unbind), self._unbind, _BACKGROUND)
        yield Command(FmOpcode.GENERATE_AER, "generate AER event", exactly(aer), self._aer)

    def _info(self, payload: bytes) -> bytes:
        first, limit, count, numbers = payload[0], payload[1], payload[2], payload[3:]
        whole = count == len(numbers)
        why = f"{count} virtual switches announced, {len(numbers)} named"
        require(whole, Code.INVALID_PAYLOAD_LENGTH, why)
        require(limit and count, why="name at least one virtual switch, and one of its vPPBs")
        blocks = b"".join(self._block(number, first, limit) for number in numbers)
        return bytes([count, 0, 0, 0]) + blocks

    def _block(self, number: int, first: int, limit: int) -> bytes:
        if number >= len(self._switch.virtual):
            return messages.VCS.pack(VcsHead(number, _INVALID, 0, 0))
        virtual = self._switch.vcs(number)
        state = _ENABLED if virtual.usp.up else _DISABLED
        head = messages.VCS.pack(VcsHead(number, state, virtual.usp.number, len(virtual.vppbs)))
        shown = range(first, min(first + limit, len(virtual.vppbs)))
        return head + b"".join(messages.VPPB.pack(vppb_info(virtual, i)) for i in shown)

    def _bind(self, payload: bytes) -> bytes:
        request = messages.BIND.unpack(payload)
        ld = None if request.ld == NO_LD else request.ld
        binding = self._switch.bind(request.vcs, request.vppb, request.port, ld)
        given_up = []

        def abort() -> None:
            given_up.append(True)
            self._switch.cancel(binding)

        done = self._component().begin(FmOpcode.BIND, abort)

        def finish() -> None:
            if not given_up:
                binding.finish()
                done(Code.SUCCESS if binding.done else Code.RETRY_REQUIRED)  # its device has gone

        self._later(finish)
        return b""

    def _unbind(self, payload: bytes) -> bytes:
        request = messages.UNBIND.unpack(payload)
        option = request.option & 0xF
        require(option in list(UnbindMode), why=f"option {option}: choose 0 to {max(UnbindMode)}")
        mode = UnbindMode(request.option & 0xF)
        ended: list[Callable[[Code], None]] = []
        early = []

        def end() -> None:
            if ended:
                ended[0](Code.SUCCESS)
            else:
                early.append(True)

        binding = self._switch.unbind(request.vcs, request.vppb, mode, end)
        ended.append(self._component().begin(FmOpcode.UNBIND, lambda: self._switch.cancel(binding)))
        if early:
            ended[0](Code.SUCCESS)
        return b""

    def _aer(self, payload: bytes) -> bytes:
        request = messages.AER.unpack(payload)
        virtual = self._switch.vcs(request.vcs)
        port = virtual.vppb(request.instance - 1) if request.instance else virtual.upstream
        report(
            port,
            request.error & 0x1F,
            Severity(request.error >> 31),
            int.from_bytes(request.header[:16], "little"),
        )
        return b""


def vppb_info(virtual: VirtualSwitch, number: int) -> VppbInfo:
    """Returns the answer of Get Virtual CXL Switch Info for a vPPB."""
    binding, status = virtual.bindings.get(number), virtual.status(number)
    if binding is None:
        return VppbInfo(status, 0, NOT_BOUND)
    return VppbInfo(status, binding.port.number, NOT_BOUND if binding.ld is None else binding.ld)
