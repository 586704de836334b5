# SPDX-License-Identifier: BSD-3-Clause
"""Component and device registers: discovery by software, and writes of software."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.cxl.registers import component, device_tables
from nupa.cxl.registers import component_tables as tables
from nupa.cxl.registers.block import AccessError, Registers
from nupa.cxl.registers.component import CACHEMEM_AT, ComponentRegisters
from nupa.cxl.registers.device_tables import DeviceRegisters
from nupa.cxl.registers.space import Space

EVERY = (
    tables.ras(),
    tables.link(),
    tables.hdm(10),
    tables.extended_security(3),
    tables.snoop_filter(1, 1 << 20),
    tables.isolation(),
    tables.bi_route_table(),
    tables.bi_decoder(explicit_commit=True),
)


def test_software_finds_each_capability_where_the_list_says() -> None:
    block = ComponentRegisters(EVERY)
    found = component.find_capabilities(block.read)
    assert [each.number for each in found] == [capability.number for capability in EVERY]
    for each, capability in zip(found, EVERY, strict=True):
        assert each.version == capability.version
        assert each.offset == block.offset_of(capability.name)
        assert each.offset % 8 == 0


def test_a_block_that_is_all_ones_or_zeros_has_no_capabilities() -> None:
    assert component.find_capabilities(lambda _at, _size: 0) == []
    assert component.find_capabilities(lambda _at, _size: 0xFFFFFFFF) == []
    assert device_tables.find_capabilities(lambda _at, size: (1 << 8 * size) - 1) == []


def test_empty_entries_of_the_list_are_passed_over() -> None:
    words = {
        CACHEMEM_AT: 2 << 24 | 1 << 20 | 1 << 16 | 1,
        CACHEMEM_AT + 8: 0x80 << 20 | 3 << 16 | 5,
    }
    found = component.find_capabilities(lambda at, _size: words.get(at, 0))
    assert found == [(5, 3, CACHEMEM_AT + 0x80)]


def test_too_many_decoders_for_one_block_are_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        ComponentRegisters(tables.hdm(32)._replace(name=f"hdm{i}") for i in range(4))


@pytest.mark.parametrize("decoders", tables.DECODER_COUNTS)
def test_the_number_of_decoders_is_encoded_as_the_specification_does(decoders: int) -> None:
    """CXL 3.1 8.2.4.20.1."""
    capability = tables.hdm(decoders)
    registers = Registers(capability.rows, capability.bytes)
    code = registers["capability.decoder_count"]
    assert decoders == (1 if code == 0 else code * 2 if code <= 8 else (code - 4) * 4)
    assert capability.bytes == 0x10 + 0x20 * decoders


@pytest.mark.parametrize(("decoders", "targets"), [(3, 8), (0, 8), (34, 8), (4, 3), (4, 16)])
def test_numbers_without_an_encoding_are_refused(decoders: int, targets: int) -> None:
    with pytest.raises(ValueError, match="no encoding"):
        tables.hdm(decoders, targets=targets)


def test_a_decoder_is_where_the_specification_has_it() -> None:
    capability = tables.hdm(4)
    registers = Registers(capability.rows, capability.bytes)
    registers.write(0x30, 4, 0x1000_0000)  # decoder 1, base low
    registers.write(0x34, 4, 0x2)
    registers.write(0x38, 8, 0x7_5FFF_FFFF)
    registers.write(0x40, 4, 0xFFFFFFFF & ~(1 << 13))
    registers.write(0x44, 4, 0x04030201)
    values = {
        name[9:]: value for name, value in registers.dump().items() if name[:9] == "decoder1."
    }
    assert values == {
        "base": 0x21,
        "size": 0x75,
        "granularity": 15,
        "ways": 15,
        "lock_on_commit": 1,
        "commit": 1,
        "committed": 0,
        "error": 0,
        "host_only": 1,
        "back_invalidate": 0,
        **{f"target{i}": i + 1 if i < 4 else 0 for i in range(8)},
    }
    registers.locks["decoder1.lock"] = lambda: True
    before = bytes(registers)
    for at in range(0x30, 0x50, 4):
        registers.write(at, 4, 0xA5A5A5A5)
    assert bytes(registers) == before


def test_a_device_has_a_skip_in_place_of_targets() -> None:
    capability = tables.hdm(2, targets=0)
    registers = Registers(capability.rows, capability.bytes)
    registers.write(0x24, 4, 0xFFFFFFFF)
    registers.write(0x28, 4, 1)
    assert registers["decoder0.dpa_skip"] == 0x1F
    assert registers["capability.target_count"] == 1
    assert "decoder0.target0" not in registers.fields


def test_component_registers_take_no_partial_access() -> None:
    with pytest.raises(AccessError, match="4, 8 bytes"):
        ComponentRegisters(EVERY).read(CACHEMEM_AT, 2)


@settings(max_examples=40)
@given(
    st.sampled_from([4, 8]),
    st.lists(st.tuples(st.integers(0, 0x3FF), st.integers(0, 2**64 - 1)), max_size=20),
)
def test_no_write_changes_where_capabilities_are(size: int, writes: list[tuple[int, int]]) -> None:
    for space, find, base in (
        (ComponentRegisters(EVERY), component.find_capabilities, CACHEMEM_AT),
        (DeviceRegisters(), device_tables.find_capabilities, 0),
    ):
        before, found = space.dump(), find(space.read)
        for at, value in writes:
            space.write(base + at // size * size, size, value)
        assert find(space.read) == found
        rows = {
            f"{block}.{name}": row for block in space for name, row in space[block].fields.items()
        }
        for name, value in space.dump().items():
            assert rows[name].access.stored or value == before[name]


def test_every_field_has_its_section() -> None:
    spaces: tuple[Space, ...] = (ComponentRegisters(EVERY), DeviceRegisters())
    for space in spaces:
        for block in space:
            assert all(row.section.startswith("8.2.") for row in space[block].fields.values())


def test_software_finds_status_mailbox_and_memory_of_a_device() -> None:
    device = DeviceRegisters(payload_shift=9)
    assert device_tables.find_capabilities(device.read) == [
        (device_tables.DEVICE_STATUS, 2, 0x80, 8),
        (device_tables.PRIMARY_MAILBOX, 1, 0x88, 0x20 + 512),
        (device_tables.MEMORY_DEVICE, 1, 0x88 + 0x20 + 512, 8),
    ]
    with pytest.raises(ValueError, match="256 B to 1 MiB"):
        DeviceRegisters(payload_shift=21)


def test_a_mailbox_is_written_and_read_in_pieces_of_any_size() -> None:
    device = DeviceRegisters()
    payload = bytes(range(256)) * 8
    at = device.offset_of("mailbox") + device_tables.MAILBOX_HEADER_BYTES
    for i, size in enumerate([1, 2, 4, 8] * 64):
        offset = i * 8
        for part in range(offset, offset + 8, size):
            device.write(at + part, size, int.from_bytes(payload[part : part + size], "little"))
    assert device["mailbox"]["payload"].to_bytes(2048, "little") == payload
    rung = []
    device["mailbox"].on_write("doorbell", lambda written, old: rung.append((written, old)))
    device.write(device.offset_of("mailbox") + 8, 8, 0x4000 | 2048 << 16)
    device.write(device.offset_of("mailbox") + 4, 4, 1)
    assert rung == [(1, 0)]
    assert device["mailbox"]["command.opcode"] == 0x4000
    assert device["mailbox"]["command.payload_length"] == 2048
