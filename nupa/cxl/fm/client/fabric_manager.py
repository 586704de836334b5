# SPDX-License-Identifier: BSD-3-Clause
"""`FabricManager`: commands as methods, answers as values, refusals as exceptions.

FM API of CXL 3.1: 51xxh, 52xxh.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from nupa.base.errors import RemoteError
from nupa.cxl.fm import messages
from nupa.cxl.fm.client.events import EventClient
from nupa.cxl.fm.client.ld import LdClient, config_place, word
from nupa.cxl.fm.messages import NO_LD, NOT_BOUND, FmOpcode
from nupa.cxl.function.cci import Code, CommandError
from nupa.cxl.switch.physical_port import BindingStatus, PortState, UnbindMode
from nupa.cxl.switch.vppb import Severity

_TIMEOUT_S = 30.0
_MOST_PAUSE_S = 0.01


class PortStatus(NamedTuple):
    """The state of a port.  *speed* counts from 1, 2.5 GT/s; *speed* and *width*, in lanes, are 0
    while the link is down."""

    port: int
    state: PortState
    device: str
    up: bool
    present: bool
    in_reset: bool
    speed: int
    width: int


class VppbStatus(NamedTuple):
    """The binding of a vPPB; *port* and *ld* are None if it has none."""

    vppb: int
    status: BindingStatus
    port: int | None
    ld: int | None


class VirtualSwitchStatus(NamedTuple):
    """The state of a virtual switch; *enabled*: it is connected to a host."""

    number: int
    enabled: bool
    upstream_port: int
    vppbs: list[VppbStatus]


class FabricManager(LdClient, EventClient):
    """A manager of a switch: its ports and virtual switches; see `LdClient`, `EventClient`.

    Methods raise CommandError, whose `code` is the switch's return code, and RemoteError if the
    other end is gone."""

    # Physical ports

    def switch(self) -> messages.SwitchInfo:
        return messages.SWITCH.unpack(self.request(FmOpcode.IDENTIFY_SWITCH))

    def ports(self, numbers: Sequence[int] | None = None) -> list[PortStatus]:
        """Returns the state of the ports *numbers*, or of all."""
        asked = bytes(range(self.switch().ports) if numbers is None else numbers)
        answer = self.request(FmOpcode.PORT_STATE, bytes([len(asked)]) + asked)
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
        """Hot-resets the device at a port."""
        self._control(port, 2)

    def assert_reset(self, port: int, asserted: bool = True) -> None:
        """Asserts or deassert PERST; the link is down while it is asserted."""
        self._control(port, int(not asserted))

    def _control(self, port: int, action: int) -> None:
        self.request(
            FmOpcode.PORT_CONTROL, messages.PORT_ACTION.pack(messages.PortAction(port, action))
        )

    def ppb_read(self, port: int, offset: int) -> int:
        """Reads a DW of a bridge's configuration space."""
        access = messages.ConfigAccess(port, config_place(offset), 0)
        return word(self.request(FmOpcode.PPB_CONFIG, messages.CONFIG.pack(access)))

    def ppb_write(self, port: int, offset: int, value: int) -> None:
        access = messages.ConfigAccess(port, config_place(offset, write=True), value)
        self.request(FmOpcode.PPB_CONFIG, messages.CONFIG.pack(access))

    # Virtual switches

    def virtual_switches(self, numbers: Sequence[int] | None = None) -> list[VirtualSwitchStatus]:
        """Returns the state of the virtual switches *numbers*, or of all.  CommandError:
        INVALID_INPUT if one is not there."""
        asked = range(self.switch().virtual_switches) if numbers is None else numbers
        return [self._virtual_switch(number) for number in asked]

    def _virtual_switch(self, number: int) -> VirtualSwitchStatus:
        answer = self.request(FmOpcode.VCS_INFO, bytes([0, 0xFF, 1, number]))
        head = messages.VCS.unpack(answer, 4)
        if head.state == 0xFF:
            raise CommandError(Code.INVALID_INPUT, f"there is no virtual switch {number}")
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
        """Binds a vPPB to a port, or to an LD there; waits until it is complete."""
        request = messages.BindRequest(vcs, vppb, port, NO_LD if ld is None else ld)
        self.request(FmOpcode.BIND, messages.BIND.pack(request))
        if wait:
            self.wait(FmOpcode.BIND)

    def unbind(
        self, vcs: int, vppb: int, mode: UnbindMode = UnbindMode.MANAGED, *, wait: bool = True
    ) -> None:
        """Ends a binding; waits until it has ended."""
        request = messages.UnbindRequest(vcs, vppb, mode)
        self.request(FmOpcode.UNBIND, messages.UNBIND.pack(request))
        if wait:
            self.wait(FmOpcode.UNBIND)

    def generate_aer(
        self, vcs: int, vppb: int | None, bit: int, severity: Severity, header: bytes = bytes(16)
    ) -> None:
        """Reports an error below a vPPB, or at the upstream port (None), to the host: *bit* of its
        AER status."""
        instance = 0 if vppb is None else vppb + 1
        request = messages.AerRequest(vcs, instance, severity << 31 | bit, header)
        self.request(FmOpcode.GENERATE_AER, messages.AER.pack(request))

    def background(self) -> messages.BackgroundStatus:
        """Returns the state of the background operation, or of the last one."""
        return messages.BACKGROUND.unpack(self.request(FmOpcode.BACKGROUND_STATUS))

    def abort(self) -> None:
        """Aborts the background operation, if there is one."""
        self.request(FmOpcode.ABORT)

    def wait(self, opcode: int, timeout_s: float = _TIMEOUT_S) -> None:
        """Waits for the end of a background operation.  CommandError: it was aborted; RemoteError:
        it takes longer (ETIMEDOUT)."""
        pause_s, end = 0.0, time.monotonic() + timeout_s
        while (status := self.background()).status & 1 and status.opcode == opcode:
            if time.monotonic() > end:
                raise RemoteError(
                    f"{FmOpcode(opcode).name} is in progress after {timeout_s:g} s: wait, or abort",
                    errno.ETIMEDOUT,
                )
            time.sleep(pause_s)
            pause_s = min(_MOST_PAUSE_S, pause_s * 2 + 1e-4)
        if status.opcode == opcode and status.code != Code.SUCCESS:
            code, name = Code(status.code), FmOpcode(opcode).name.lower()
            why = {
                Code.RETRY_REQUIRED: f"the device went away during the {name}: plug it in, and "
                f"{name} again",
                Code.ABORTED: f"another manager, or this one, aborted the {name}",
            }
            raise CommandError(code, why.get(code, name))

    # Domain validation

    def secret(self, vcs: int) -> UUID | None:
        """Returns the secret value of a virtual switch, which distinguishes its host's hierarchy
        from others; None: not set."""
        if not self.request(FmOpcode.VCS_SECRET_STATE, bytes([vcs]))[0]:
            return None
        return UUID(bytes=self.request(FmOpcode.VCS_SECRET, bytes([vcs])))

    def set_secret(self, vcs: int, secret: UUID) -> None:
        """Sets the secret value, as the host of this virtual switch.  CommandError: it is set."""
        self.request(FmOpcode.SET_SECRET, secret.bytes, host=vcs)

    def has_secret(self, vcs: int) -> bool:
        """Tells whether the secret value is set, as the host of this virtual switch."""
        return bool(self.request(FmOpcode.SECRET_STATE, host=vcs)[0])
