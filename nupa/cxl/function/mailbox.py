# SPDX-License-Identifier: BSD-3-Clause
"""The primary mailbox: the doorbell, and background operations (CXL 3.1 8.2.8.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from nupa.cxl.function.cci import (
    Background,
    Code,
    Command,
    CommandError,
    Effect,
    exactly,
    find,
    table,
)
from nupa.cxl.registers.block import Registers

#: 8.2.9.1.5 Request Abort Background Operation
ABORT_OPCODE = 0x0005
_DONE = 100

#: interrupt(message): the MSI-X vector that the device sends.
Interrupt = Callable[[int], None]


class _Running(NamedTuple):
    command: Command
    work: Background


class Mailbox:
    """The mailbox behind the *registers* of `device_tables.mailbox`.  A command completes when the
    doorbell is rung; a background operation continues until `advance` has brought it to 100
    percent.

    *message* is the vector of its interrupts (8.2.8.4.3); `is_media_disabled` refuses commands that
    need media."""

    def __init__(
        self,
        registers: Registers,
        commands: Iterable[Command],
        *,
        interrupt: Interrupt,
        message: int = 0,
    ) -> None:
        rows = [*commands, Command(ABORT_OPCODE, "abort", exactly(0), self._abort)]
        self.commands: Mapping[int, Command] = table(rows)
        self.is_media_disabled = False
        self._registers = registers
        self._interrupt = interrupt
        self._message = message
        self._running: _Running | None = None
        registers.preset("capability.doorbell_interrupt", 1)
        registers.preset("capability.background_interrupt", 1)
        registers.preset("capability.interrupt_message", message)
        registers.on_write("doorbell", self._on_doorbell)
        registers.on_reset(self._reset)

    @property
    def payload_bytes(self) -> int:
        return 1 << self._registers["capability.payload_shift"]

    @property
    def running(self) -> int | None:
        """The opcode of the background operation that is in progress."""
        return self._running.command.opcode if self._running else None

    def execute(self, opcode: int, payload: bytes) -> bytes | Background:
        """Executes one command.  CommandError: it is refused, and nothing has changed."""
        command = find(self.commands, opcode, len(payload))
        if self._running and command.effects & Effect.BACKGROUND:
            raise CommandError(Code.BUSY, f"{self._running.command.name} is in progress")
        if self.is_media_disabled and command.needs_media:
            raise CommandError(Code.MEDIA_DISABLED, command.name)
        answer = command.handler(payload)
        if isinstance(answer, Background):
            self._running = _Running(command, answer)
            self._show(Code.SUCCESS, 0)
        elif len(answer) > self.payload_bytes:
            raise AssertionError(f"{command.name} answered {len(answer)} bytes: too many")
        return answer

    def _on_doorbell(self, written: int, _old: int) -> None:
        if not written:
            return
        registers = self._registers
        size = registers["command.payload_length"]
        code, answer = Code.SUCCESS, b""
        try:
            if size > self.payload_bytes:
                raise CommandError(Code.INVALID_PAYLOAD_LENGTH, f"{size} bytes")
            payload = self._payload()
            done = self.execute(registers["command.opcode"], payload[:size])
            if isinstance(done, Background):
                code = Code.BACKGROUND_STARTED
            else:
                answer = done
                registers["payload"] = int.from_bytes(answer + payload[len(answer) :], "little")
        except CommandError as error:
            code = error.code
        registers["command.payload_length"] = len(answer)
        registers["status.return_code"] = code
        registers["status.vendor_code"] = 0
        registers["doorbell"] = 0
        if registers["control.doorbell_interrupt"]:
            self._interrupt(self._message)

    def _payload(self) -> bytes:
        return self._registers["payload"].to_bytes(self.payload_bytes, "little")

    def advance(self, percent: int = _DONE) -> bool:
        """Sets the progress of the background operation; returns whether there was one.
        ValueError: it would go back, or beyond 100."""
        if self._running is None:
            return False
        if not self._registers["background.percent"] <= percent <= _DONE:
            raise ValueError(f"{percent} percent")
        if percent < _DONE:
            self._show(Code.SUCCESS, percent)
            return True
        code = Code.SUCCESS
        try:
            self._running.work.finish()
        except CommandError as error:
            code = error.code
        self._end(code, _DONE)
        return True

    def _abort(self, _payload: bytes) -> bytes:
        if self._running is not None:
            if self._running.work.abort is None:
                raise CommandError(Code.NO_BACKGROUND_ABORT, self._running.command.name)
            self._running.work.abort()
            self._end(Code.ABORTED, self._registers["background.percent"])
        return b""

    def _end(self, code: Code, percent: int) -> None:
        self._show(code, percent)
        self._running = None
        self._registers["status.background_operation"] = 0
        if self._registers["control.background_interrupt"]:
            self._interrupt(self._message)

    def _show(self, code: Code, percent: int) -> None:
        """Shows the background operation in its registers (8.2.8.4.7)."""
        assert self._running is not None
        self._registers["status.background_operation"] = 1
        self._registers["background.opcode"] = self._running.command.opcode
        self._registers["background.percent"] = percent
        self._registers["background.return_code"] = code
        self._registers["background.vendor_code"] = 0

    def _reset(self) -> None:
        """Aborts the background operation, as the registers have been reset; completes one that
        cannot be aborted, as a sanitize."""
        running, self._running = self._running, None
        if running is not None:
            (running.work.abort or running.work.finish)()
