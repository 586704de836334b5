# SPDX-License-Identifier: BSD-3-Clause
"""A component that executes commands: a table of them, and one background operation at a time.

CXL 3.1 8.2.9.1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.cxl.commands.logs import DeviceLogs
from nupa.cxl.fm import messages
from nupa.cxl.fm.messages import BackgroundStatus, Cci, FmOpcode
from nupa.cxl.fm.server.session import Feed, Inbox
from nupa.cxl.function.cci import Code, Command, CommandError, Effect, exactly, find, table

_DONE = 100


class _BackgroundOperation(NamedTuple):
    opcode: int
    abort: Callable[[], None]


class Component:
    """A component that executes *commands* and those of all components.  The latter are Identify,
    Background Operation Status, Request Abort Background Operation, and the logs with the Command
    Effects Log.  `feed` has its events."""

    def __init__(
        self,
        commands: Iterable[Command],
        identity: messages.Identity,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.feed = Feed(now_ns)
        #: Called after each background operation.
        self.on_done: Callable[[], None] = lambda: None
        #: Called with the reason of each command that is refused.
        self.on_refusal: Callable[[str], None] = lambda _why: None
        self._identity = identity
        self._job: _BackgroundOperation | None = None
        self._last = BackgroundStatus(0, 0, 0, 0)
        own = (
            Command(FmOpcode.IDENTIFY, "identify", exactly(0), self._identify),
            Command(FmOpcode.BACKGROUND_STATUS, "background status", exactly(0), self._status),
            Command(FmOpcode.ABORT, "abort", exactly(0), self._abort),
        )
        logs = DeviceLogs(messages.PAYLOAD_BYTES - messages.TUNNEL_BYTES)
        self.commands = table((*own, *commands, *logs.commands()))
        everything = {**self.commands, **Inbox(self.feed).commands}
        logs.describe(everything[opcode] for opcode in sorted(everything))

    def handle(self, request: Cci, inbox: Inbox) -> Cci:
        """Returns the response to a request of the manager with *inbox*."""
        own = inbox.commands if request.opcode in inbox.commands else self.commands
        try:
            command = find(own, request.opcode, len(request.payload))
            background = bool(command.effects & Effect.BACKGROUND)
            if background and self._job:
                raise CommandError(Code.BUSY, f"{self._going()} is in progress: wait, or abort")
            answer = command.handler(request.payload)
            assert isinstance(answer, bytes)  # background operations use `begin`
        except (CommandError, LocalError) as error:  # the model refuses, and has not changed
            if not isinstance(error, CommandError):
                error = CommandError(Code.INVALID_INPUT, str(error))
            self.on_refusal(error.reason)
            return request.answer(error.code)
        return request.answer(Code.BACKGROUND_STARTED if background else Code.SUCCESS, answer)

    def begin(self, opcode: int, abort: Callable[[], None]) -> Callable[[Code], None]:
        """Begins a background operation; it continues until the returned function is called with
        its return code.  Only a handler of a command with that effect calls this."""
        job = self._job = _BackgroundOperation(opcode, abort)

        def done(code: Code) -> None:
            if self._job is job:  # it was not aborted
                self._job = None
                self._last = BackgroundStatus(_DONE << 1, opcode, code, 0)
                self.on_done()

        return done

    def _going(self) -> str:
        assert self._job is not None
        return self.commands[self._job.opcode].name

    def _identify(self, _payload: bytes) -> bytes:
        return messages.IDENTITY.pack(self._identity)

    def _status(self, _payload: bytes) -> bytes:
        going = BackgroundStatus(1, self._job.opcode, 0, 0) if self._job else self._last
        return messages.BACKGROUND.pack(going)

    def _abort(self, _payload: bytes) -> bytes:
        if self._job is not None:
            job, self._job = self._job, None
            job.abort()
            self._last = BackgroundStatus(0, job.opcode, Code.ABORTED, 0)
            self.on_done()
        return b""
