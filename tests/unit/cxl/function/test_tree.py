# SPDX-License-Identifier: BSD-3-Clause
"""A tree of ports and devices: a bus walk, the ways of requests, and resets."""

from __future__ import annotations

from functools import partial

import pytest

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.function import Function
from nupa.cxl.function.port import Port, downstream_port, root_port, upstream_port
from nupa.cxl.link.bdf import Bdf
from nupa.cxl.registers import component, device_tables
from nupa.cxl.registers import dvsec_tables as dvsec
from nupa.cxl.registers.block import Registers
from nupa.cxl.registers.config import ConfigSpace
from nupa.cxl.registers.pci_tables import Bar, type0
from tests.unit.cxl.tree import BRIDGE_BASE, BUS, MEMORY_BYTES, Tree
from tests.unit.cxl.walk import ONES, Walk


def test_a_bus_walk_finds_what_linux_finds() -> None:
    tree = Tree()
    walk = Walk(tree.root, BUS, 0xFE00_0000)
    read = tree.root.config_read
    classes = {str(bdf): read(bdf, 0x08, 4) >> 8 for bdf in walk.found}
    assert classes == {
        "0c:00.0": 0x060400,
        "0d:00.0": 0x060400,
        "0e:00.0": 0x060400,
        "0f:00.0": 0x050210,
        "0e:01.0": 0x060400,
        "0c:01.0": 0x060400,
    }
    dvsecs = {
        str(bdf): {found.number for found in dvsec.find(partial(read, bdf))} for bdf in walk.found
    }
    assert dvsecs == {
        "0c:00.0": {3, 4, 7, 8},
        "0c:01.0": {3, 4, 7, 8},
        "0d:00.0": {3, 7, 8},
        "0e:00.0": {3, 4, 7, 8},
        "0e:01.0": {3, 4, 7, 8},
        "0f:00.0": {0, 5, 7, 8},
    }


def test_each_register_block_is_where_the_locator_says() -> None:
    tree = Tree()
    walk = Walk(tree.root, BUS, 0xFE00_0000)
    kinds = []
    for bdf in walk.found:
        for location in dvsec.locations(partial(tree.root.config_read, bdf)):
            base = walk.bars[bdf][location.bar][0] + location.offset
            kinds.append((str(bdf), location.block.name))

            def read(offset: int, size: int, base: int = base) -> int:
                return tree.root.read(base + offset, size)

            if location.block is dvsec.BlockId.COMPONENT:
                assert component.find_capabilities(read)[0].number == 2  # RAS
            else:
                assert len(device_tables.find_capabilities(read)) == 3
    assert kinds == [
        ("0c:00.0", "COMPONENT"),
        ("0d:00.0", "COMPONENT"),
        ("0e:00.0", "COMPONENT"),
        ("0f:00.0", "COMPONENT"),
        ("0f:00.0", "DEVICE"),
        ("0e:01.0", "COMPONENT"),
        ("0c:01.0", "COMPONENT"),
    ]
    bridge = component.find_capabilities(lambda at, size: tree.root.read(BRIDGE_BASE + at, size))
    assert [each.number for each in bridge] == [5, 6, 8]


def test_requests_without_completer_read_as_ones_and_take_no_write() -> None:
    tree = Tree()
    assert tree.root.config_read(Bdf(13), 0, 4) == ONES  # no bus is numbered yet
    assert tree.root.config_read(Bdf(BUS, 2), 0, 4) == ONES
    assert tree.root.config_read(Bdf(BUS, 0, 1), 0, 2) == 0xFFFF
    walk = Walk(tree.root, BUS, 0xFE00_0000)
    assert tree.root.config_read(Bdf(17), 0, 4) == ONES
    address = walk.bars[Bdf(15)][2][0]
    before = tree.device.config.dump()
    tree.root.config_write(Bdf(15, 1), 4, 2, 0)
    tree.root.write(0x1000, 4, 1)
    assert tree.root.read(0x1000, 8) == 2**64 - 1
    assert tree.device.config.dump() == before
    assert tree.root.read(address, 8) != 2**64 - 1


@pytest.mark.parametrize("bdf", [Bdf(12), Bdf(13), Bdf(14), Bdf(15)], ids=str)
def test_memory_is_reached_while_all_above_have_memory_space_enabled(bdf: Bdf) -> None:
    tree = Tree()
    walk = Walk(tree.root, BUS, 0xFE00_0000)
    address = walk.bars[Bdf(15)][2][0]
    assert tree.root.read(address + 0x10, 4) & 0xFFFF == device_tables.DEVICE_STATUS
    tree.root.config_write(bdf, 4, 2, 4)
    assert tree.root.read(address + 0x10, 4) == ONES


def test_a_secondary_bus_reset_resets_all_below_and_keeps_what_is_sticky() -> None:
    tree = Tree()
    Walk(tree.root, BUS, 0xFE00_0000)
    aer = tree.device.config["aer"]
    aer["uncorrectable_status.malformed_tlp"] = 1
    hdm = tree.device.component["hdm"]
    hdm["decoder0.base"] = 5
    bus = tree.roots[0].config.header["secondary_bus"]
    extensions = tree.roots[0].config.offset_of("port_extensions")
    tree.root.config_write(Bdf(12), 0x3E, 2, 0x40)
    assert hdm["decoder0.base"] == 5  # masked: CXL 3.1 8.1.5.2
    tree.root.config_write(Bdf(12), 0x3E, 2, 0)
    tree.root.config_write(Bdf(12), extensions + 0x0C, 2, 1)
    tree.root.config_write(Bdf(12), 0x3E, 2, 0x40)
    assert tree.device.config.header["command.memory_space"] == 0
    assert tree.upstream.config.header["secondary_bus"] == 0
    assert hdm["decoder0.base"] == 0
    assert aer["uncorrectable_status.malformed_tlp"] == 1
    assert tree.roots[0].config.header["secondary_bus"] == bus
    assert tree.downs[0].config["pcie"]["slot_status.presence"] == 1


def test_a_function_level_reset_leaves_what_is_cxls_and_a_cxl_reset_does_not() -> None:
    """CXL 3.1 9.5 and 9.7."""
    device = Type3(MEMORY_BYTES)
    config = device.config
    at = {name: config.offset_of(name) for name in config}
    for initiate in (
        partial(config.write, at["pcie"] + 8, 2, 1 << 15),
        partial(config.write, at["device"] + 0x10, 2, 1 << 2),
    ):
        config.write(4, 2, 6)
        config.write(at["device"] + 0x0C, 2, 4)
        device.component["hdm"]["decoder0.base"] = 1
        initiate()
        assert config.header["command.memory_space"] == 0
        kept = int(config["device"]["status_2.reset_complete"] == 0)
        assert config["device"]["control.mem_enable"] == kept
        assert device.component["hdm"]["decoder0.base"] == kept
    assert config["device"]["status_2.reset_complete"] == 1


def test_config_lock_makes_what_it_locks_read_only_until_a_reset() -> None:
    """CXL 3.1 8.1.3.6."""
    config = Type3(MEMORY_BYTES).config
    block = config["device"]
    at = config.offset_of("device")
    config.write(at + 0x0C, 2, 0x4004)
    config.write(at + 0x20, 4, 0x12)
    config.write(at + 0x14, 2, 1)
    config.write(at + 0x0C, 2, 0)
    config.write(at + 0x14, 2, 0)
    for offset in range(0x18, 0x38, 4):
        config.write(at + offset, 4, ONES)
    assert block["control.mem_enable"] == block["control.viral_enable"] == 1
    assert block["range1.base_high"] == 0x12
    assert block["range2.base_low"] == 0
    assert block["lock.config_lock"] == 1
    config.write(at + 0x10, 2, 8)  # not one of those
    assert block["control_2.reset_clears_memory"] == 1
    config.write(at + 0x10, 2, 4)  # a CXL reset
    assert block["lock.config_lock"] == block["control.mem_enable"] == 1
    assert block["range1.base_high"] == 0x12
    assert block["control_2.reset_clears_memory"] == 0
    config.reset(hot=True)
    assert block["lock.config_lock"] == block["control.mem_enable"] == 0
    config.write(at + 0x0C, 2, 4)
    assert block["control.mem_enable"] == 1


def test_a_device_tells_its_size() -> None:
    device = Type3(5 << 30).config["device"]
    assert (device["range1.size_high"] << 32 | device["range1.size_low"] << 28) == 5 << 30
    with pytest.raises(ValueError, match="256 MiB"):
        Type3(100)


def test_a_slot_shows_what_is_in_it_also_after_a_reset() -> None:
    port = downstream_port(3)
    pcie = port.config["pcie"]
    assert (pcie["slot_status.presence"], pcie["link_status.active"]) == (0, 0)
    device = Type3(MEMORY_BYTES)
    port.attach(device)
    port.reset(hot=True)
    assert (pcie["slot_status.presence"], pcie["link_status.active"]) == (1, 1)
    with pytest.raises(ValueError, match="already"):
        port.attach(device)
    assert port.detach() is device
    assert (pcie["slot_status.presence"], pcie["link_status.active"]) == (0, 0)


def test_a_bar_smaller_than_what_is_behind_it_is_refused() -> None:
    bars = [Bar(0, 4096)]
    with pytest.raises(ValueError, match="BAR 0 is smaller"):
        Function("small", ConfigSpace(type0(1, 2, 3, bars)), {bars[0]: Type3(0).component})


EVERY = (
    dvsec.device(MEMORY_BYTES, cache=True, mld=True),
    dvsec.non_cxl_map([1, 8]),
    dvsec.port_extensions(),
    dvsec.gpf_port(),
    dvsec.gpf_device(base=5, scale=3, power_mw=70),
    dvsec.flex_bus("mem", "cache", "pbr"),
    dvsec.register_locator([dvsec.Location(dvsec.BlockId.PERFORMANCE, 2, 0x1_0002_0000)]),
    dvsec.mld(16),
)


def test_each_dvsec_says_what_it_is() -> None:
    config = ConfigSpace(type0(1, 2, 3))
    for each in EVERY:
        config.add_extended(each.name, each.rows, each.bytes)
        assert all(row.section for row in each.rows)
    found = dvsec.find(config.read)
    assert [(each.number, each.revision, each.length) for each in found] == [
        (0, 3, 0x3C),
        (2, 0, 0x2C),
        (3, 0, 0x28),
        (4, 0, 0x10),
        (5, 0, 0x10),
        (7, 2, 0x20),
        (8, 0, 0x14),
        (9, 0, 0x10),
    ]
    assert dvsec.locations(config.read) == [(dvsec.BlockId.PERFORMANCE, 2, 0x1_0002_0000)]
    assert [config["non_cxl_map"][f"map{i}"] for i in range(3)] == [2, 1, 0]


def test_a_dvsec_of_another_vendor_is_not_taken_for_cxls() -> None:
    config = ConfigSpace(type0(1, 2, 3))
    mld = config.add_extended("mld", EVERY[-1].rows, EVERY[-1].bytes)
    mld["vendor_id"] = 0x8086
    assert dvsec.find(config.read) == []


def test_values_without_encoding_are_refused() -> None:
    with pytest.raises(ValueError, match="64 KiB"):
        dvsec.register_locator([dvsec.Location(dvsec.BlockId.DEVICE, 0, 0x1000)])
    with pytest.raises(ValueError, match="no 'warp'"):
        dvsec.flex_bus("warp")


def test_only_ports_with_a_slot_have_a_gpf_dvsec() -> None:
    ports: list[Port] = [root_port(0), upstream_port(), downstream_port(0)]
    assert ["gpf_port" in port.config for port in ports] == [True, False, True]
    for port in ports:
        registers: Registers = port.config["pcie"]
        assert registers["link.port"] == port.number
