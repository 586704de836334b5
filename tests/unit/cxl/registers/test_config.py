# SPDX-License-Identifier: BSD-3-Clause
"""Configuration space: headers, BARs, capabilities and their discovery by software."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.cxl.registers import ext_tables as ext
from nupa.cxl.registers import pcie_tables as pcie
from nupa.cxl.registers.block import RW, AccessError, BitField, Registers
from nupa.cxl.registers.config import ConfigSpace, walk, walk_extended
from nupa.cxl.registers.pci_tables import CLASS_CXL_MEMORY, HEADER_BYTES, Bar, type0, type1
from nupa.cxl.registers.space import Space

ALL_ONES = 0xFFFFFFFF
BARS = (Bar(0, 1 << 16), Bar(2, 1 << 12, prefetchable=True), Bar(4, 256, wide=False))


def endpoint() -> ConfigSpace:
    config = ConfigSpace(type0(0x1E98, 0x1234, CLASS_CXL_MEMORY, BARS))
    config.add_capability("pcie", pcie.pcie(pcie.PortType.ENDPOINT), pcie.PCIE_BYTES)
    config.add_capability("msix", pcie.msix(8, 4, 0, 0x80), pcie.MSIX_BYTES)
    config.add_extended("dsn", ext.dsn(0x1122334455667788), ext.DSN_BYTES)
    config.add_extended("aer", ext.aer(), ext.AER_BYTES)
    config.add_extended("doe", ext.doe(), ext.DOE_BYTES)
    return config


def bridge(port_type: pcie.PortType) -> ConfigSpace:
    config = ConfigSpace(type1(0x1E98, 0x5678, BARS[:1]))
    config.add_capability("pcie", pcie.pcie(port_type, port=3, slot=7), pcie.PCIE_BYTES)
    config.add_extended("aer", ext.aer(root=port_type is pcie.PortType.ROOT), ext.AER_BYTES)
    config.add_extended("acs", ext.acs(), ext.ACS_BYTES)
    return config


def every_function() -> list[ConfigSpace]:
    ports = [each for each in pcie.PortType if each is not pcie.PortType.ENDPOINT]
    return [endpoint(), *map(bridge, ports)]


def test_software_finds_capabilities_in_the_order_in_which_they_were_added() -> None:
    config = endpoint()
    assert list(walk(config.read)) == [(0x40, pcie.PCIE_ID), (0x7C, pcie.MSIX_ID)]
    found = list(walk_extended(config.read))
    assert found == [(0x100, ext.DSN_ID), (0x10C, ext.AER_ID), (0x154, ext.DOE_ID)]
    config.reset()
    assert list(walk_extended(config.read)) == found


def test_capabilities_may_be_put_anywhere_but_over_another() -> None:
    config = ConfigSpace(type0(1, 2, 3))
    config.add_capability("pcie", pcie.pcie(pcie.PortType.ENDPOINT), pcie.PCIE_BYTES, at=0x80)
    config.add_capability("msix", pcie.msix(1, 0, 0, 8), pcie.MSIX_BYTES, at=0x40)
    assert list(walk(config.read)) == [(0x80, pcie.PCIE_ID), (0x40, pcie.MSIX_ID)]
    with pytest.raises(ValueError, match="not below"):
        config.add_capability("more", pcie.pcie(pcie.PortType.ENDPOINT), 0x3C, at=0xF0)
    with pytest.raises(ValueError, match="begin at 0x100"):
        config.add_extended("dsn", ext.dsn(1), ext.DSN_BYTES, at=0x200)
    config.add_extended("dsn", ext.dsn(1), ext.DSN_BYTES)
    with pytest.raises(ValueError, match="overlap dsn"):
        config.add_extended("acs", ext.acs(), ext.ACS_BYTES, at=0x104)
    with pytest.raises(ValueError, match="two blocks"):
        config.add_extended("dsn", ext.dsn(1), ext.DSN_BYTES)


def test_a_walk_ends_where_pointers_go_round() -> None:
    image = bytearray(4096)
    image[0x34], image[0x40:0x42], image[0x50:0x52] = 0x40, b"\1\x50", b"\2\x40"
    image[0x100:0x104] = (0x100 << 20 | 1 << 16 | 3).to_bytes(4, "little")

    def read(offset: int, size: int) -> int:
        return int.from_bytes(image[offset : offset + size], "little")

    assert list(walk(read)) == [(0x40, 1), (0x50, 2)]
    assert list(walk_extended(read)) == [(0x100, 3)]


@pytest.mark.parametrize("bar", BARS, ids=str)
def test_a_bar_tells_its_size_by_the_bits_that_stay_zero(bar: Bar) -> None:
    """PCIe 6.0 7.5.1.2.1: write all ones, read, clear the low bits, invert, add one."""
    config = endpoint()
    at = 0x10 + 4 * bar.number
    kind = config.read(at, 4) & 0xF
    assert kind == (4 if bar.wide else 0) | (8 if bar.prefetchable else 0)
    mask = 0
    for half in range(2 if bar.wide else 1):
        config.write(at + 4 * half, 4, ALL_ONES)
        mask |= config.read(at + 4 * half, 4) << 32 * half
    width = 64 if bar.wide else 32
    assert (~(mask & ~0xF) + 1) & ((1 << width) - 1) == bar.size_bytes
    config.write(at, 4, 0x8000_0000)
    assert config.header[f"bar{bar.number}.base"] << bar.shift & ALL_ONES == 0x8000_0000


def test_a_bar_that_is_not_there_reads_as_zero_whatever_is_written() -> None:
    config = endpoint()
    config.write(0x24, 4, ALL_ONES)
    assert config.read(0x24, 4) == 0
    with pytest.raises(ValueError, match="power of two"):
        type0(1, 2, 3, [Bar(0, 3000)])


@settings(max_examples=20)
@given(st.data())
def test_no_write_changes_what_a_function_says_of_itself(data: st.DataObject) -> None:
    for config in every_function():
        before = config.dump()
        for _ in range(data.draw(st.integers(0, 10))):
            size = data.draw(st.sampled_from([1, 2, 4]))
            offset = data.draw(st.integers(0, 0x200 // size - 1)) * size
            config.write(offset, size, data.draw(st.integers(0, 2 ** (8 * size) - 1)))
        changed = {name for name, value in config.dump().items() if value != before[name]}
        rows = {
            f"{block}.{name}": row for block in config for name, row in config[block].fields.items()
        }
        assert all(rows[name].access.stored for name in changed)
        assert next(walk_extended(config.read))[0] == 0x100


def test_every_field_has_its_section_and_belongs_to_it_alone() -> None:
    for config in every_function():
        for block in config:
            assert all(row.section for row in config[block].fields.values())


def test_slots_and_root_registers_are_there_where_the_port_has_them() -> None:
    root, upstream, downstream = map(
        bridge, (pcie.PortType.ROOT, pcie.PortType.UPSTREAM, pcie.PortType.DOWNSTREAM)
    )
    slots = [each["pcie"]["capabilities.slot_implemented"] for each in (root, upstream, downstream)]
    assert slots == [1, 0, 1]
    assert root["pcie"]["slot.number"] == 7
    assert "root.rrs_visibility" in root["pcie"].fields
    assert "root.rrs_visibility" not in downstream["pcie"].fields
    assert "slot.number" not in upstream["pcie"].fields


def test_errors_are_cleared_by_ones_and_outlive_a_hot_reset() -> None:
    aer = endpoint()["aer"]
    aer["uncorrectable_status.malformed_tlp"] = aer["header_log"] = 1
    aer.reset(hot=True)
    assert aer["uncorrectable_status.malformed_tlp"] == aer["header_log"] == 1
    assert aer.read(0x0C, 4) == 0x00462030  # PCIe 6.0 7.8.4.4: the default severities
    aer.write(4, 4, 1 << 18)
    assert aer["uncorrectable_status.malformed_tlp"] == 0


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4, 8]), st.integers(0, 15))
def test_a_space_is_its_blocks_and_zeros(value: int, size: int, index: int) -> None:
    space = Space(64)
    word = [BitField("word", 0, "31:0", RW)]
    blocks = {offset: Registers(word, 4) for offset in (0, 4, 12, 40)}
    for offset, block in blocks.items():
        space.add(f"at{offset}", offset, block)
    at = index * size % 64
    space.write(at, size, value)
    image = bytearray(64)
    image[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    for byte in range(64):
        if byte & ~3 not in blocks:
            image[byte] = 0
    assert bytes(space) == image
    assert space.read(at, size) == int.from_bytes(image[at : at + size], "little")
    assert space.dump() == {f"at{at}.word": block["word"] for at, block in blocks.items()}


def test_configuration_space_takes_no_access_beyond_a_double_word() -> None:
    for offset, size in ((0, 8), (2, 4), (4096, 4)):
        with pytest.raises(AccessError):
            endpoint().read(offset, size)


def test_a_header_is_64_bytes() -> None:
    assert Registers(type1(1, 2), HEADER_BYTES).read(0x0E, 1) == 1
