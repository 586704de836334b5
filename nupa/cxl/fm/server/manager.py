# SPDX-License-Identifier: BSD-3-Clause
"""A switch that executes the messages of fabric managers (CXL 3.1 7.6)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from threading import RLock
from weakref import WeakKeyDictionary, WeakSet

from nupa.cxl.device.endpoint import DEVICE_ID
from nupa.cxl.device.mld import Mld
from nupa.cxl.fm import messages
from nupa.cxl.fm.mctp import MANAGER, SWITCH, FramingError, MctpMessage, MessageType, vcs_of
from nupa.cxl.fm.messages import Cci, FmOpcode
from nupa.cxl.fm.server import physical
from nupa.cxl.fm.server.component import Component
from nupa.cxl.fm.server.dcd import DcdComponent
from nupa.cxl.fm.server.mld import MldComponent
from nupa.cxl.fm.server.mld_port import MldPort
from nupa.cxl.fm.server.session import GET_REFUSAL, NOTIFICATION, Inbox
from nupa.cxl.fm.server.virtual import Later, Virtual
from nupa.cxl.fm.server.watch import watch_capacity, watch_switch
from nupa.cxl.function.cci import Code, CommandError
from nupa.cxl.media.events import EventRecord, Log
from nupa.cxl.registers import dvsec_tables as dvsec
from nupa.cxl.switch.physical_port import PhysicalPort
from nupa.cxl.switch.switch import Switch

_SWITCH_ID = 0x4E02
_KIND_SWITCH, _KIND_TYPE3 = 0x00, 0x03  # 8.2.9.1.1, Component Type
_MOST = 16  # the largest message: 2^16 bytes
#: Commands of a host to its own virtual switch (7.6.7.1.5, 7.6.7.1.6).
_OF_HOSTS = (FmOpcode.IDENTIFY, FmOpcode.SECRET_STATE, FmOpcode.SET_SECRET)
_log = logging.getLogger(__name__)


def _at_once(work: Callable[[], None]) -> None:
    work()


class Manager:
    """The manager's side of *switch*: it executes requests.  Bindings complete when *later* says
    so, by default at once; *now_ns* is the time of events.

    `lock` is held during each request, and by each thread that changes the switch."""

    def __init__(
        self,
        switch: Switch,
        *,
        serial: int = 0,
        later: Later = _at_once,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.switch = switch
        self.lock = RLock()
        self._now_ns = now_ns
        self._sessions: WeakSet[Session] = WeakSet()
        self._asking: Session | None = None
        self._vcs: int | None = None
        self._devices: dict[int, tuple[Mld, Component]] = {}
        identity = messages.Identity(dvsec.VENDOR_ID, _SWITCH_ID, 0, 0, serial, _MOST, _KIND_SWITCH)
        rows = [
            *physical.commands(switch, lambda: self._vcs),
            *Virtual(switch, lambda: self.component, later).commands(),
            *MldPort(switch, self._behind).commands(),
        ]
        self.component = self._made(Component(rows, identity, now_ns))
        watch_switch(switch, partial(self._happened, self.component))
        for port in switch.ports:
            port.watchers.append(self._look)
            self._look(port)

    def execute(self, session: Session, message: MctpMessage) -> MctpMessage:
        """Returns the response to a request.  FramingError: it is not a request."""
        request = messages.unpack(message.body)
        if not message.owner or request.response:
            raise FramingError("an unexpected response")
        with self.lock:
            self._asking, self._vcs = session, vcs_of(message.source)
            if request.opcode != GET_REFUSAL:
                session.refusal = ""
            answer = self._answer(message.type, request)
        return message.answer(answer.pack())

    def _answer(self, kind: MessageType, request: Cci) -> Cci:
        # The FM API has its own type.
        other = kind is MessageType.CCI and 0x5000 < request.opcode < GET_REFUSAL
        if other or (self._vcs is not None and request.opcode not in _OF_HOSTS):
            who = "messages of this type" if other else "hosts"
            self._refused(f"opcode {request.opcode:#06x} is not for {who}")
            return request.answer(Code.UNSUPPORTED)
        try:
            return self._handle(self.component, request)
        except Exception:  # a bug in the model must not stop other managers
            _log.exception("command %#06x", request.opcode)
            self._refused("the model failed: the server's messages have more")
            return request.answer(Code.INTERNAL_ERROR)

    def _refused(self, why: str) -> None:
        if self._asking is not None:
            self._asking.refusal = why

    def _handle(self, component: Component, request: Cci) -> Cci:
        assert self._asking is not None
        return component.handle(request, self._asking.inbox(component))

    # Devices

    def _look(self, port: PhysicalPort) -> None:
        self.device(port.number)

    def device(self, port: int) -> Component | None:
        """Returns the component of the multi-logical device at a port; None: there is none."""
        there = self.switch.port(port).device
        if not isinstance(there, Mld):
            self._devices.pop(port, None)
            return None
        device, component = self._devices.get(port, (None, None))
        if component is None or device is not there:
            component = self._made(self._component_of(port, there))
            self._devices[port] = (there, component)
        return component

    def _behind(self, port: int, request: Cci) -> Cci:
        there = self.switch.port(port)
        component = self.device(port) if there.up else None
        if component is None:
            why = f"port {port} has no multi-logical device with its link up"
            raise CommandError(Code.INVALID_INPUT, why)
        return self._handle(component, request)

    def _component_of(self, port: int, device: Mld) -> Component:
        identity = messages.Identity(
            dvsec.VENDOR_ID, DEVICE_ID, 0, 0, device.serial, _MOST, _KIND_TYPE3
        )
        own = MldComponent(device, partial(self.switch.allocate, port), self._refused)
        dynamic = device.dynamic
        rows = DcdComponent(dynamic).commands() if dynamic else ()
        component = Component([*own.commands(), *rows], identity, self._now_ns)
        if dynamic:
            watch_capacity(dynamic, partial(self._happened, component))
        return component

    # Events

    def _made(self, component: Component) -> Component:
        component.on_done = partial(self._done, component)
        component.on_refusal = self._refused
        return component

    def _happened(self, component: Component, log: Log, event: EventRecord) -> None:
        with self.lock:
            event = component.feed.add(log, event)
            for session in tuple(self._sessions):
                session.add(component, log, event)

    def _done(self, component: Component) -> None:
        for session in tuple(self._sessions):
            session.inbox(component).done()


class Session:
    """The session of one manager.  *ready* is called, in any thread, when there is a notification
    to send."""

    def __init__(self, manager: Manager, ready: Callable[[], None] = lambda: None) -> None:
        self._manager = manager
        self._ready = ready
        self._inboxes: WeakKeyDictionary[Component, Inbox] = WeakKeyDictionary()
        self._told = 0
        self._waits_for: int | None = None
        self._tag = 0
        #: The reason of the last refusal.
        self.refusal = ""
        with manager.lock:
            manager._sessions.add(self)

    def close(self) -> None:
        with self._manager.lock:
            self._manager._sessions.discard(self)

    def answer(self, message: MctpMessage) -> MctpMessage | None:
        """Returns the response, or None if there is none to send.  FramingError: neither a request
        nor the acknowledgement of a notification."""
        if message.owner:
            request = messages.unpack(message.body)
            if request.opcode == NOTIFICATION and not request.response:
                return None  # 8.2.9.2.8: only components send it; discarded
            return self._manager.execute(self, message)
        response = messages.unpack(message.body)
        expected = (True, NOTIFICATION, self._waits_for)
        if (response.response, response.opcode, response.tag) != expected:
            raise FramingError("an unexpected response")
        with self._manager.lock:
            self._waits_for = None
            if self._told:
                self._ready()
        return None

    def notification(self) -> MctpMessage | None:
        """Returns the notification to send, if any: one at a time, until it is acknowledged."""
        with self._manager.lock:
            if not self._told or self._waits_for is not None:
                return None
            self._waits_for = self._tag = (self._tag + 1) % 256
            body = Cci(NOTIFICATION, self._told.to_bytes(2, "little"), self._tag).pack()
            self._told = 0
        return MctpMessage(MessageType.CCI, body, 0, True, SWITCH, MANAGER)

    def inbox(self, component: Component) -> Inbox:
        """Returns the inbox for the events of a component."""
        found = self._inboxes.get(component)
        if found is None:
            found = self._inboxes[component] = Inbox(
                component.feed, self._tell, lambda: self.refusal
            )
        return found

    def add(self, component: Component, log: Log, event: EventRecord) -> None:
        """Records an event; an inbox that does not exist yet will take it from the component's
        feed."""
        found = self._inboxes.get(component)
        if found is not None:
            found.add(log, event)

    def _tell(self, bits: int) -> None:
        self._told |= bits
        if self._waits_for is None:
            self._ready()
