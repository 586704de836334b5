# SPDX-License-Identifier: BSD-3-Clause
"""The mailbox: the answer of each command, and refusals, which change nothing."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.cxl.commands.features import PATROL_SCRUB
from nupa.cxl.commands.logs import COMMAND_EFFECTS, VENDOR_DEBUG
from nupa.cxl.commands.memory import UNIT_BYTES, Capacity
from nupa.cxl.device.mailbox_cci import MailboxCci
from nupa.cxl.function.cci import Code, Effect
from nupa.cxl.media.parts import Memory
from nupa.cxl.registers.device_tables import DeviceRegisters
from tests.unit.cxl.driver import MEMORY_BYTES, Driver

DRIVER = Driver()
TRANSFER = struct.Struct("<BBxxI120x")
SET_FEATURE = struct.Struct("<16sIHB9x")


def test_an_opcode_that_is_none_is_unsupported() -> None:
    for opcode in (0, 0x0104, 0x4500, 0x4800, 0xC000, 0xFFFF):
        assert Driver().send(opcode) == (Code.UNSUPPORTED, b"")


def test_each_command_refuses_an_input_of_another_length() -> None:
    driver = Driver()
    for opcode, command in driver.mailbox.commands.items():
        before = driver.state()
        for length in {command.lengths.start - 1, command.lengths.stop} & set(range(2048)):
            code, answer = driver.send(opcode, bytes(length))
            assert (code, answer) == (Code.INVALID_PAYLOAD_LENGTH, b""), command.name
        assert driver.state() == before


def test_a_payload_one_byte_beyond_its_size_is_refused() -> None:
    driver = Driver(payload_shift=8)
    assert driver.send(0x4103, struct.pack("<II", 0, 0) + bytes(248))[0] is Code.SUCCESS
    assert driver.send(0x4103, size=257)[0] is Code.INVALID_PAYLOAD_LENGTH


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(DRIVER.mailbox.commands)), st.binary(max_size=200)),
        max_size=8,
    )
)
def test_every_request_is_answered_with_a_code_of_the_table(sent: list[tuple[int, bytes]]) -> None:
    driver = DRIVER
    for opcode, payload in sent:
        code, answer = driver.send(opcode, payload)
        assert code is Code.SUCCESS or not answer
        command = driver.mailbox.commands[opcode]
        assert len(payload) in command.lengths or code is Code.INVALID_PAYLOAD_LENGTH
        driver.mailbox.advance()


def test_the_doorbell_interrupts_where_software_asks_for_it() -> None:
    driver = Driver()
    driver.ok(0x0300)
    assert driver.interrupts == []
    driver.device["mailbox"]["control.doorbell_interrupt"] = 1
    driver.ok(0x0300)
    assert driver.interrupts == [driver.device["mailbox"]["capability.interrupt_message"]]


def test_interrupts_are_bits_where_nobody_takes_them() -> None:
    device = DeviceRegisters()
    memory = MailboxCci(device, Memory.anonymous(UNIT_BYTES))
    device["mailbox"]["control.doorbell_interrupt"] = 1
    device["mailbox"].write(4, 4, 3)
    assert memory.pending == 1 << device["mailbox"]["capability.interrupt_message"]


def test_a_background_command_shows_its_percentage_and_interrupts_at_its_end() -> None:
    driver = Driver()
    mailbox = driver.device["mailbox"]
    mailbox["control.background_interrupt"] = 1
    driver.media.write(4096, b"secret")
    assert driver.send(0x4400)[0] is Code.BACKGROUND_STARTED
    assert mailbox["status.background_operation"] == 1
    assert mailbox["background.opcode"] == 0x4400
    assert driver.device["memory"]["status.media"] == 3
    assert driver.mailbox.advance(40)
    assert mailbox["background.percent"] == 40
    with pytest.raises(ValueError, match="39 percent"):
        driver.mailbox.advance(39)
    with pytest.raises(ValueError, match="101 percent"):
        driver.mailbox.advance(101)
    assert driver.send(0x4304, bytes(17))[0] is Code.BUSY
    assert driver.send(0x4102, struct.pack("<II", 0, 1))[0] is Code.MEDIA_DISABLED
    assert driver.send(0x0005)[0] is Code.NO_BACKGROUND_ABORT
    assert driver.interrupts == []
    assert driver.mailbox.advance()
    assert driver.interrupts == [2]
    assert mailbox["status.background_operation"] == 0
    assert (mailbox["background.percent"], mailbox["background.return_code"]) == (100, 0)
    assert driver.media.read(4096, 6) == bytes(6)
    assert driver.device["memory"]["status.media"] == 1
    assert not driver.mailbox.advance()


def test_a_reset_gives_up_what_goes_on() -> None:
    driver = Driver()
    driver.ok(0x0301, struct.pack("<Q", 1000))
    assert driver.send(0x0201, TRANSFER.pack(1, 2, 0) + bytes(128))[0] is Code.BACKGROUND_STARTED
    driver.device.reset(hot=True)
    assert driver.mailbox.running is None
    assert driver.ok(0x0300) == bytes(8)
    assert driver.device["mailbox"]["capability.background_interrupt"] == 1


def test_the_timestamp_runs_from_when_it_was_set() -> None:
    driver = Driver()
    driver.time_ns = 77
    assert driver.ok(0x0300) == bytes(8)
    driver.ok(0x0301, struct.pack("<Q", 10**18))
    driver.time_ns += 5
    assert struct.unpack("<Q", driver.ok(0x0300)) == (10**18 + 5,)


def test_the_effects_log_names_each_command() -> None:
    driver = Driver()
    supported = driver.ok(0x0400)
    assert struct.unpack_from("<H", supported) == (2,)
    size = struct.unpack_from("<I", supported, 8 + 16)[0]
    log = driver.ok(0x0401, COMMAND_EFFECTS.bytes + struct.pack("<II", 0, size))
    entries = dict(struct.iter_unpack("<HH", log))
    assert set(entries) == set(driver.mailbox.commands)
    assert entries[0x0201] & Effect.BACKGROUND
    beyond = driver.send(0x0401, COMMAND_EFFECTS.bytes + struct.pack("<II", 1, size))
    assert beyond == (Code.INVALID_INPUT, b"")
    assert driver.send(0x0401, bytes(24))[0] is Code.INVALID_LOG
    assert driver.ok(0x0405, b"\x01\x01")[:4] == struct.pack("<BxH", 1, 2)
    assert driver.send(0x0405, b"\x01\x02")[0] is Code.INVALID_INPUT


def test_only_the_debug_log_can_be_cleared() -> None:
    driver = Driver()
    driver.memory.logs.debug += b"trace"
    assert driver.ok(0x0401, VENDOR_DEBUG.bytes + struct.pack("<II", 1, 4)) == b"race"
    assert driver.ok(0x0402, VENDOR_DEBUG.bytes) == struct.pack("<I", 1)
    assert driver.send(0x0403, COMMAND_EFFECTS.bytes)[0] is Code.INVALID_LOG
    driver.ok(0x0403, VENDOR_DEBUG.bytes)
    assert not driver.memory.logs.debug


def transfer(driver: Driver, action: int, slot: int, offset: int, data: bytes) -> Code:
    code, _ = driver.send(0x0201, TRANSFER.pack(action, slot, offset) + data)
    if code is Code.BACKGROUND_STARTED:
        driver.mailbox.advance()
        return Code(driver.device["mailbox"]["background.return_code"])
    return code


def test_firmware_arrives_in_parts_and_runs_once_activated() -> None:
    driver = Driver()
    image = b"NUPA 2".ljust(256, b"\0")
    assert transfer(driver, 2, 2, 0, image) is Code.FW_TRANSFER_OUT_OF_ORDER
    assert transfer(driver, 1, 0, 0, image[:128]) is Code.SUCCESS
    assert transfer(driver, 1, 0, 0, image[:128]) is Code.FW_TRANSFER_IN_PROGRESS
    assert transfer(driver, 2, 0, 2, image[128:]) is Code.FW_TRANSFER_OUT_OF_ORDER
    assert transfer(driver, 2, 0, 1, image[:127]) is Code.INVALID_INPUT
    assert transfer(driver, 3, 1, 1, image[128:]) is Code.INVALID_SLOT
    assert transfer(driver, 3, 3, 1, image[128:]) is Code.INVALID_SLOT
    assert transfer(driver, 3, 2, 1, image[128:]) is Code.SUCCESS
    assert driver.send(0x0202, b"\x00\x01")[0] is Code.INVALID_SLOT
    driver.ok(0x0202, b"\x01\x02")
    assert driver.ok(0x0200)[:2] == bytes([2, 1 | 2 << 3])
    driver.memory.cold_reset()
    info = driver.ok(0x0200)
    assert len(info) == 80
    assert info[1] == 2
    assert driver.ok(0x4000)[:16] == b"NUPA 2".ljust(16, b"\0")


def test_an_image_without_a_revision_fails_its_verification() -> None:
    driver = Driver()
    assert transfer(driver, 0, 2, 0, b"\xff" * 128) is Code.FW_VERIFICATION_FAILED
    assert driver.send(0x0202, b"\x00\x02")[0] is Code.INVALID_SLOT


def test_an_image_one_unit_beyond_the_limit_is_refused() -> None:
    driver = Driver()
    driver.memory.firmware.image_bytes_max = 256
    assert transfer(driver, 0, 2, 0, b"NUPA 3".ljust(384, b"\0")) is Code.INVALID_INPUT
    assert transfer(driver, 0, 2, 0, b"NUPA 3".ljust(256, b"\0")) is Code.SUCCESS


def test_a_transfer_that_rests_too_long_is_over() -> None:
    driver = Driver()
    assert transfer(driver, 1, 0, 0, bytes(128)) is Code.SUCCESS
    driver.time_ns = 30_000_000_001
    assert transfer(driver, 2, 0, 1, bytes(128)) is Code.FW_TRANSFER_OUT_OF_ORDER


def test_features_are_listed_read_and_set() -> None:
    driver = Driver()
    listed = driver.ok(0x0500, struct.pack("<IHxx", 1024, 0))
    assert struct.unpack_from("<HH", listed) == (1, 1)
    assert listed[8:24] == PATROL_SCRUB.bytes
    assert driver.send(0x0500, struct.pack("<IHxx", 1024, 1))[0] is Code.INVALID_INPUT
    get = struct.Struct("<16sHHB")
    assert driver.ok(0x0501, get.pack(PATROL_SCRUB.bytes, 0, 4, 0)) == bytes([1, 12, 1, 1])
    assert driver.send(0x0501, get.pack(PATROL_SCRUB.bytes, 1, 4, 0))[0] is Code.INVALID_INPUT
    selection = driver.send(0x0501, get.pack(PATROL_SCRUB.bytes, 0, 4, 3))[0]
    assert selection is Code.UNSUPPORTED_FEATURE_SELECTION
    assert driver.send(0x0501, get.pack(bytes(16), 0, 4, 0))[0] is Code.UNSUPPORTED
    uuid = PATROL_SCRUB.bytes
    assert driver.send(0x0502, SET_FEATURE.pack(uuid, 0, 0, 2) + b"\x06\x01")[0] is (
        Code.UNSUPPORTED_FEATURE_VERSION
    )
    assert driver.send(0x0502, SET_FEATURE.pack(uuid, 0, 0, 1) + b"\0\1")[0] is Code.INVALID_INPUT
    driver.ok(0x0502, SET_FEATURE.pack(uuid, 8, 0, 1) + b"\x06\x01")
    driver.ok(0x0502, SET_FEATURE.pack(uuid, 1, 0, 1) + b"\x07")
    out_of_order = driver.send(0x0502, SET_FEATURE.pack(uuid, 3, 0, 1) + b"\x00")[0]
    assert out_of_order is Code.FEATURE_TRANSFER_OUT_OF_ORDER
    again = driver.send(0x0502, SET_FEATURE.pack(uuid, 1, 0, 1) + b"\x07")[0]
    assert again is Code.FEATURE_TRANSFER_IN_PROGRESS
    driver.ok(0x0502, SET_FEATURE.pack(uuid, 3, 1, 1) + b"\x00")
    assert driver.ok(0x0501, get.pack(uuid, 0, 4, 0)) == bytes([1, 7, 1, 0])
    driver.device.reset(hot=True)
    assert driver.ok(0x0501, get.pack(uuid, 0, 4, 0)) == bytes([1, 6, 1, 1])


def test_identify_says_what_the_device_has() -> None:
    answer = Driver().ok(0x4000)
    assert len(answer) == 0x45
    assert struct.unpack_from("<QQQQ", answer, 16) == (1, 1, 0, 0)
    assert struct.unpack_from("<HHHHI", answer, 48) == (64, 64, 64, 64, 64 << 10)


def test_a_partition_changes_now_or_after_a_cold_reset() -> None:
    capacity = Capacity(4 * UNIT_BYTES, UNIT_BYTES, UNIT_BYTES, UNIT_BYTES)
    driver = Driver(capacity=capacity)
    assert driver.send(0x4101, struct.pack("<QB", 3, 0))[0] is Code.INVALID_INPUT
    driver.ok(0x4101, struct.pack("<QB", 2, 0))
    assert struct.unpack("<QQQQ", driver.ok(0x4100)) == (1, 3, 3, 1)
    driver.memory.cold_reset()
    assert struct.unpack("<QQQQ", driver.ok(0x4100)) == (3, 1, 0, 0)
    driver.ok(0x4101, struct.pack("<QB", 0, 1))
    assert struct.unpack("<QQQQ", driver.ok(0x4100)) == (1, 3, 0, 0)


def test_a_device_of_one_kind_of_memory_has_no_partition_to_set() -> None:
    driver = Driver()
    assert driver.send(0x4101, struct.pack("<QB", 0, 1))[0] is Code.INVALID_INPUT
    assert struct.unpack("<QQQQ", driver.ok(0x4100)) == (MEMORY_BYTES // UNIT_BYTES, 0, 0, 0)


def test_labels_are_kept_up_to_their_last_byte() -> None:
    driver = Driver()
    end = 64 << 10
    driver.ok(0x4103, struct.pack("<II", end - 3, 0) + b"abc")
    assert driver.ok(0x4102, struct.pack("<II", end - 3, 3)) == b"abc"
    assert driver.send(0x4102, struct.pack("<II", end - 3, 4))[0] is Code.INVALID_INPUT
    assert driver.send(0x4103, struct.pack("<II", end - 3, 0) + b"abcd")[0] is Code.INVALID_INPUT
    assert driver.send(0x4102, struct.pack("<II", 0, 2049))[0] is Code.INVALID_INPUT
