# SPDX-License-Identifier: BSD-3-Clause
"""CXL device registers: capabilities array, device status, mailbox, memory device status, as rows.

Sections are those of the CXL Specification 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from nupa.cxl.registers.block import HWINIT, RO, RW, BitField, Registers, once, rows_once
from nupa.cxl.registers.space import Space

#: 8.2.8.2.1
DEVICE_STATUS, PRIMARY_MAILBOX, SECONDARY_MAILBOX, MEMORY_DEVICE = 1, 2, 3, 0x4000
_ARRAY_STEP = 0x10
_BLOCKS_AT = 0x80
MAILBOX_HEADER_BYTES = 0x20
#: 8.2.8.4.3: a payload has 2 to the power of this many bytes, 256 B to 1 MiB.
PAYLOAD_SHIFTS = range(8, 21)

#: read(offset, size) in the BAR of the device registers.
Read = Callable[[int, int], int]


class FoundDeviceCapability(NamedTuple):
    """A capability in the array; offset and length are in bytes."""

    number: int
    version: int
    offset: int
    length: int


@once
def device_status() -> tuple[BitField, ...]:
    """Returns the rows of the device status: the event logs that have records (8.2.8.3.1)."""
    names = ("informational", "warning", "failure", "fatal", "dynamic_capacity")
    return tuple(
        BitField(f"events.{name}", 0, str(bit), RO, 0, "8.2.8.3.1")
        for bit, name in enumerate(names)
    )


@rows_once
def mailbox(payload_shift: int) -> Iterator[BitField]:
    """Yields the rows of the mailbox (8.2.8.4): registers, then the payload as one field.  Commands
    run in the handler of `doorbell`."""
    yield BitField("capability.payload_shift", 0x00, "4:0", RO, payload_shift, "8.2.8.4.3")
    yield BitField("capability.doorbell_interrupt", 0x00, "5", RO, 0, "8.2.8.4.3")
    yield BitField("capability.background_interrupt", 0x00, "6", RO, 0, "8.2.8.4.3")
    yield BitField("capability.interrupt_message", 0x00, "10:7", RO, 0, "8.2.8.4.3")
    yield BitField("capability.ready_time", 0x00, "18:11", RO, 0, "8.2.8.4.3")
    yield BitField("capability.type", 0x00, "22:19", HWINIT, 0, "8.2.8.4.3")
    yield BitField("doorbell", 0x04, "0", RW, 0, "8.2.8.4.4")
    yield BitField("control.doorbell_interrupt", 0x04, "1", RW, 0, "8.2.8.4.4")
    yield BitField("control.background_interrupt", 0x04, "2", RW, 0, "8.2.8.4.4")
    yield BitField("command.opcode", 0x08, "15:0", RW, 0, "8.2.8.4.5")
    yield BitField("command.payload_length", 0x08, "36:16", RW, 0, "8.2.8.4.5")
    yield BitField("status.background_operation", 0x10, "0", RO, 0, "8.2.8.4.6")
    yield BitField("status.return_code", 0x10, "47:32", RO, 0, "8.2.8.4.6")
    yield BitField("status.vendor_code", 0x10, "63:48", RO, 0, "8.2.8.4.6")
    yield BitField("background.opcode", 0x18, "15:0", RO, 0, "8.2.8.4.7")
    yield BitField("background.percent", 0x18, "22:16", RO, 0, "8.2.8.4.7")
    yield BitField("background.return_code", 0x18, "47:32", RO, 0, "8.2.8.4.7")
    yield BitField("background.vendor_code", 0x18, "63:48", RO, 0, "8.2.8.4.7")
    bits = f"{(8 << payload_shift) - 1}:0"
    yield BitField("payload", MAILBOX_HEADER_BYTES, bits, RW, 0, "8.2.8.4.8")


@once
def memory_device() -> tuple[BitField, ...]:
    """Returns the rows of the memory device status (8.2.8.5.1.1): ready, and so is its media."""
    return (
        BitField("status.fatal", 0, "0", RO, 0, "8.2.8.5.1.1"),
        BitField("status.firmware_halt", 0, "1", RO, 0, "8.2.8.5.1.1"),
        BitField("status.media", 0, "3:2", RO, 1, "8.2.8.5.1.1"),
        BitField("status.mailbox_ready", 0, "4", RO, 1, "8.2.8.5.1.1"),
        BitField("status.reset_needed", 0, "7:5", RO, 0, "8.2.8.5.1.1"),
    )


class DeviceRegisters(Space):
    """The block of device registers: "status", "mailbox" and "memory" behind the array of
    capabilities (8.2.8.1).

    The mailbox takes payloads of 2 to the power of *payload_shift* bytes.  ValueError: not
    possible."""

    def __init__(self, *, payload_shift: int = 11) -> None:
        if payload_shift not in PAYLOAD_SHIFTS:
            raise ValueError(f"a payload of 2^{payload_shift} bytes, not of 256 B to 1 MiB")
        mailbox_bytes = MAILBOX_HEADER_BYTES + (1 << payload_shift)
        listed = (
            ("status", DEVICE_STATUS, 2, 8, device_status()),
            ("mailbox", PRIMARY_MAILBOX, 1, mailbox_bytes, mailbox(payload_shift)),
            ("memory", MEMORY_DEVICE, 1, 8, memory_device()),
        )
        array = [
            BitField("capability_id", 0, "15:0", RO, 0, "8.2.8.1"),
            BitField("version", 0, "23:16", RO, 1, "8.2.8.1"),
            BitField("type", 0, "27:24", RO, 1, "8.2.8.1"),  # a memory device
            BitField("count", 4, "15:0", RO, len(listed), "8.2.8.1"),
        ]
        at, blocks = _BLOCKS_AT, []
        for index, (name, number, version, size, rows) in enumerate(listed, 1):
            entry = index * _ARRAY_STEP
            array += (
                BitField(f"{name}.capability_id", entry, "15:0", RO, number, "8.2.8.2"),
                BitField(f"{name}.version", entry, "23:16", RO, version, "8.2.8.2"),
                BitField(f"{name}.offset", entry + 4, "31:0", RO, at, "8.2.8.2"),
                BitField(f"{name}.length", entry + 8, "31:0", RO, size, "8.2.8.2"),
            )
            blocks.append((name, at, Registers(rows, size)))
            at += size
        super().__init__(1 << (at - 1).bit_length())
        self.add("capabilities", 0, Registers(array, _ARRAY_STEP * (len(listed) + 1)))
        for name, start, block in blocks:
            self.add(name, start, block)


def find_capabilities(read: Read) -> list[FoundDeviceCapability]:
    """Reads the array at 0, as software does; empty if there is none."""
    header = read(0, 8)
    if header & 0xFFFF:
        return []
    return [
        FoundDeviceCapability(
            read(at, 4) & 0xFFFF, read(at, 4) >> 16 & 0xFF, read(at + 4, 4), read(at + 8, 4)
        )
        for at in range(_ARRAY_STEP, _ARRAY_STEP * ((header >> 32 & 0xFFFF) + 1), _ARRAY_STEP)
    ]
