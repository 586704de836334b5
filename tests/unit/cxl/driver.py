# SPDX-License-Identifier: BSD-3-Clause
"""A mailbox as a driver uses it: registers alone, in the order of CXL 3.1 8.2.8.4."""

from __future__ import annotations

from nupa.cxl.device.mailbox_cci import MailboxCci
from nupa.cxl.function.cci import Code
from nupa.cxl.function.mailbox import Mailbox
from nupa.cxl.media.media import PlainMedia
from nupa.cxl.media.parts import Memory
from nupa.cxl.registers.device_tables import DeviceRegisters

MEMORY_BYTES = 256 << 20


class Driver:
    """Sends commands to a device of its own; `time_ns` is the device's clock."""

    def __init__(self, *, payload_shift: int = 11, **options: object) -> None:
        self.device = DeviceRegisters(payload_shift=payload_shift)
        self.media: PlainMedia = Memory.anonymous(MEMORY_BYTES)
        self.time_ns = 0
        self.interrupts: list[int] = []
        self.memory = MailboxCci(
            self.device,
            self.media,
            clock_ns=lambda: self.time_ns,
            interrupt=self.interrupts.append,
            **options,  # type: ignore[arg-type]
        )

    @property
    def mailbox(self) -> Mailbox:
        return self.memory.mailbox

    def send(
        self, opcode: int, payload: bytes = b"", size: int | None = None
    ) -> tuple[Code, bytes]:
        """Send a command, and return the code and the payload of the answer."""
        at = self.device.offset_of("mailbox")
        for i in range(0, len(payload), 4):
            self.device.write(at + 0x20 + i, 4, int.from_bytes(payload[i : i + 4], "little"))
        length = len(payload) if size is None else size
        self.device.write(at + 0x08, 8, opcode | length << 16)
        control = self.device.read(at + 0x04, 4)
        self.device.write(at + 0x04, 4, control | 1)
        assert not self.device.read(at + 0x04, 4) & 1
        code = Code(self.device.read(at + 0x10, 8) >> 32 & 0xFFFF)
        got = self.device.read(at + 0x08, 8) >> 16 & (1 << 21) - 1
        answer = b"".join(
            self.device.read(at + 0x20 + i, 4).to_bytes(4, "little") for i in range(0, got, 4)
        )
        return code, answer[:got]

    def ok(self, opcode: int, payload: bytes = b"") -> bytes:
        """Send a command that succeeds, and return the payload of the answer."""
        code, answer = self.send(opcode, payload)
        assert code is Code.SUCCESS
        return answer

    def state(self) -> dict[str, int]:
        """Return all registers but those that a command itself writes."""
        skipped = ("mailbox.command", "mailbox.status.return", "mailbox.payload")
        return {k: v for k, v in self.device.dump().items() if not k.startswith(skipped)}
