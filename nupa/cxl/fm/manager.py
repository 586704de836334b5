# SPDX-License-Identifier: BSD-3-Clause
"""A switch that executes the fabric manager's messages: bytes in, bytes out.

Knows which component a message is for; never sockets.  CXL 3.1 7.6.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock

from nupa.cxl import dvsec_tables as dvsec
from nupa.cxl.cci import Code, CommandError
from nupa.cxl.endpoint import DEVICE_ID
from nupa.cxl.fm import messages, physical
from nupa.cxl.fm.component import Component
from nupa.cxl.fm.dcd_component import DcdComponent
from nupa.cxl.fm.mctp import FramingError, Message, MessageType
from nupa.cxl.fm.mld_component import MldComponent
from nupa.cxl.fm.mld_port import MldPort
from nupa.cxl.fm.virtual import Later, Virtual
from nupa.cxl.mld import Mld
from nupa.cxl.physical_port import Device
from nupa.cxl.switch import Switch

_SWITCH_ID = 0x4E02
_KIND_SWITCH, _KIND_TYPE3 = 0x00, 0x03  # 8.2.9.1.1, Component Type
_MOST = 16  # messages of 64 KiB


def _at_once(work: Callable[[], None]) -> None:
    work()


class Manager:
    """Executes requests on *switch*.  Bindings are done when *later* says so, by default at once.

    `lock` is held during each request: who changes the switch in another thread holds it too."""

    def __init__(self, switch: Switch, *, serial: int = 0, later: Later = _at_once) -> None:
        self.switch = switch
        self.lock = RLock()
        self._devices: dict[int, tuple[Device, Component]] = {}
        identity = messages.Component(
            dvsec.VENDOR_ID, _SWITCH_ID, 0, 0, serial, _MOST, _KIND_SWITCH
        )
        virtual = Virtual(switch, lambda: self.component, later)
        ports = MldPort(switch, self._behind)
        self.component = Component(
            [*physical.commands(switch), *virtual.commands(), *ports.commands()], identity
        )

    def answer(self, message: Message) -> Message:
        """The response.  FramingError: it is no request."""
        request = messages.unpack(message.body)
        if not message.owner or request.response:
            raise FramingError("a response, and nothing was asked")
        with self.lock:
            if message.type is MessageType.CCI and request.opcode > 0xFF:
                answer = request.answer(Code.UNSUPPORTED)  # commands of the FM API have their type
            else:
                answer = self.component.handle(request)
        return message.answer(answer.pack())

    def _behind(self, port: int) -> Component:
        """The component of the device at a port, as long as that device is there."""
        there = self.switch.port(port)
        if there.device is None or not there.up:
            raise CommandError(Code.INVALID_INPUT, f"port {port} has no device with its link up")
        device, component = self._devices.get(port, (None, None))
        if component is None or device is not there.device:
            device = there.device
            component = self._component_of(port, device)
            self._devices[port] = (device, component)
        return component

    def _component_of(self, port: int, device: Device) -> Component:
        if not isinstance(device, Mld):
            raise CommandError(Code.INVALID_INPUT, f"port {port} has no multi-logical device")
        identity = messages.Component(
            dvsec.VENDOR_ID, DEVICE_ID, 0, 0, device.serial, _MOST, _KIND_TYPE3
        )
        own = MldComponent(device, lambda first, steps: self.switch.allocate(port, first, steps))
        dynamic = DcdComponent(device.dynamic).commands() if device.dynamic else ()
        return Component([*own.commands(), *dynamic], identity)
