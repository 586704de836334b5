# SPDX-License-Identifier: BSD-3-Clause
"""Our tree beside a capture of a Linux guest (tests/data/capture_guest.py).

The functions that read our registers read the captured bytes. Ids of vendors and devices differ:
the guest's are QEMU's.
"""

from __future__ import annotations

import re
from functools import partial

import pytest

from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.enumerate import FoundFunction
from nupa.cxl.host.host import Host
from nupa.cxl.link.bdf import Bdf
from nupa.cxl.registers import component, device_tables
from nupa.cxl.registers import component_tables as tables
from nupa.cxl.registers import dvsec_tables as dvsec
from nupa.cxl.registers.block import decode
from nupa.cxl.registers.component import CACHEMEM_AT
from nupa.cxl.registers.config import walk, walk_extended
from nupa.cxl.registers.pcie_tables import PCIE_ID, PortType
from tests.unit.cxl.capture import BY_BDF, CAPTURE, FUNCTIONS, Captured, Read, sysfs
from tests.unit.cxl.tree import BRIDGE_BASE, BUS, MEMORY_BYTES, Tree
from tests.unit.cxl.walk import Walk

HDM = 5
_SIZES = {"K": 1 << 10, "M": 1 << 20, "": 1}


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree()


@pytest.fixture(scope="module")
def found(tree: Tree) -> Walk:
    return Walk(tree.root, BUS, 0xFD00_0000)


def each_function() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("theirs", FUNCTIONS, ids=lambda each: str(each.bdf))


def test_both_trees_have_the_same_functions(found: Walk) -> None:
    assert sorted(map(str, found.found)) == sorted(BY_BDF)


@each_function()
def test_headers_have_the_same_class_kind_and_buses(
    tree: Tree, found: Walk, theirs: Captured
) -> None:
    assert theirs.bdf in found.found
    ours = partial(tree.root.config_read, theirs.bdf)
    assert ours(8, 4) >> 8 == theirs.read(8, 4) >> 8
    assert ours(14, 1) == theirs.read(14, 1)
    if ours(14, 1) & 0x7F == 1:
        assert ours(0x18, 2) == theirs.read(0x18, 2)
        assert ours(0x1A, 1) == theirs.read(0x1A, 1)


@each_function()
def test_memory_bars_are_the_same_and_of_the_same_size(found: Walk, theirs: Captured) -> None:
    regions = re.findall(
        r"Region (\d): Memory at \S+ \((\d\d)-bit,.*\[size=(\d+)([KM]?)\]", theirs.text
    )
    sizes = {int(number): int(size) * _SIZES[unit] for number, _, size, unit in regions}
    assert {number: size for number, (_, size) in found.bars[theirs.bdf].items()} == sizes


@each_function()
def test_ports_are_of_the_same_type_with_slots_in_the_same_places(
    tree: Tree, found: Walk, theirs: Captured
) -> None:
    assert found
    seen = []
    for read in (partial(tree.root.config_read, theirs.bdf), theirs.read):
        at = next(at for at, number in walk(read) if number == PCIE_ID)
        flags = read(at + 2, 2)
        presence = read(at + 0x1A, 2) >> 6 & 1 if flags >> 8 & 1 else None
        seen.append((PortType(flags >> 4 & 0xF), flags & 0xF, flags >> 8 & 1, presence))
    ours, linux = seen
    assert ours == linux


@each_function()
def test_dvsecs_are_the_same_of_the_same_revision_and_length(
    tree: Tree, found: Walk, theirs: Captured
) -> None:
    """Compared as a set, as their order is up to the implementation."""
    assert found
    ours = dvsec.find(partial(tree.root.config_read, theirs.bdf))
    linux = dvsec.find(theirs.read)
    printed = re.findall(r"Vendor=1e98 ID=([0-9a-f]{4}) Rev=(\d+) Len=(\d+): CXL", theirs.text)
    assert [(each.number, each.revision, each.length) for each in linux] == [
        (int(number, 16), int(revision), int(length)) for number, revision, length in printed
    ]
    kinds = [{(each.number, each.revision) for each in some} for some in (ours, linux)]
    assert kinds[0] == kinds[1]
    lengths = [
        {each.number: each.length for each in some if each.number != LOCATOR}
        for some in (ours, linux)
    ]
    assert lengths[0] == lengths[1]


#: Differences of QEMU's functions: no resets, no 256-byte flits, a cache in
#: ports, no links that train; and how long its device takes to flush.
QEMU_IS_OTHERWISE = {
    0: r"capability\.(reset|viral|pm_init_reporting)|capability_2\.no_clean_writeback|status_2\..*",
    3: r"status\.pm_init_complete",
    5: r"phase2\..*",
    7: r"(capability|status)\.(cache|flit_68|flit_256)",
}


@each_function()
def test_dvsecs_say_the_same_but_for_what_qemu_is(
    tree: Tree, found: Walk, theirs: Captured
) -> None:
    """All fields are compared but those that software writes, by our rows."""
    assert found
    read = partial(tree.root.config_read, theirs.bdf)
    made = dvsec.device(MEMORY_BYTES), dvsec.port_extensions(), dvsec.gpf_port()
    compared = 0
    for each in (*made, dvsec.gpf_device(), dvsec.flex_bus()):
        places = [
            next((it.offset for it in dvsec.find(some) if it.number == each.number), 0)
            for some in (read, theirs.read)
        ]
        if not any(places):
            continue
        ours, linux = (
            decode(each.rows, b"".join(some(at + i, 1).to_bytes() for i in range(each.bytes)))
            for some, at in zip((read, theirs.read), places, strict=True)
        )
        for row in each.rows:
            otherwise = re.fullmatch(QEMU_IS_OTHERWISE.get(each.number, ""), row.name)
            if not (row.access.stored or row.name == "next" or otherwise):
                assert (row.name, ours[row.name]) == (row.name, linux[row.name])
                compared += 1
    assert compared > 10


#: Its length is of as many entries as there are blocks; QEMU always has room for three.
LOCATOR = 8


@each_function()
def test_register_locators_name_the_same_blocks(tree: Tree, found: Walk, theirs: Captured) -> None:
    assert found
    ours = dvsec.locations(partial(tree.root.config_read, theirs.bdf))
    assert ours == dvsec.locations(theirs.read)


def test_the_device_tells_the_same_memory(tree: Tree, found: Walk) -> None:
    """CXL 3.1 8.1.3: capabilities io, mem, hardware init and ranges; range 1 without its base."""
    assert found
    theirs = BY_BDF["0f:00.0"]
    seen = []
    for read in (partial(tree.root.config_read, theirs.bdf), theirs.read):
        at = next(each.offset for each in dvsec.find(read) if each.number == 0)
        seen.append([read(at + 0x0A, 2) & 0x3F, read(at + 0x18, 4), read(at + 0x1C, 4)])
    assert seen[0] == seen[1]


def test_extended_capabilities_beside_dvsecs_are_ours_too(tree: Tree, found: Walk) -> None:
    """Ours are more (a serial number); AER, ACS and DOE of the guest are among ours."""
    for bdf in found.found:
        ours = {number for _, number in walk_extended(partial(tree.root.config_read, bdf))}
        assert {number for _, number in walk_extended(BY_BDF[str(bdf)].read)} <= ours


# Memory-mapped registers, as QEMU's monitor read them with Linux' region, and without it.


def captured(when: str, place: str, base: int = CACHEMEM_AT) -> Read:
    """Return the registers of a place by offset in its block; those that the capture lacks are
    0."""
    words = {int(at, 16): int(word, 16) for at, word in CAPTURE["registers"][when][place].items()}

    def read(offset: int, size: int) -> int:
        low = words.get(offset - base, 0)
        return low if size == 4 else low | words.get(offset - base + 4, 0) << 32

    return read


#: By place in the capture: the bridge, the upstream port, the device.
PLACES = {"bridge": 8, "0000:0d:00.0": 8, "0000:0f:00.0": 0}


def decoders_of(read: Read, targets: int) -> dict[str, int]:
    """Return the HDM decoders behind *read*, found through the capability list, by our rows."""
    at = next(each.offset for each in component.find_capabilities(read) if each.number == HDM)
    capability = tables.hdm(tables.DECODER_COUNTS[read(at, 4) & 0xF], targets=targets)
    words = [read(at + offset, 4) for offset in range(0, capability.bytes, 4)]
    return decode(capability.rows, b"".join(word.to_bytes(4, "little") for word in words))


def block_base(tree: Tree, found: Walk, place: str) -> int:
    if place == "bridge":
        return BRIDGE_BASE
    bus, device, function = (int(part, 16) for part in re.split("[:.]", place)[1:])
    read = partial(tree.root.config_read, Bdf(bus, device, function))
    where = next(each for each in dvsec.locations(read) if each.block is dvsec.BlockId.COMPONENT)
    return found.bars[Bdf(bus, device, function)][where.bar][0] + where.offset


def our_block(tree: Tree, found: Walk, place: str) -> Read:
    base = block_base(tree, found, place)
    return lambda offset, size: tree.root.read(base + offset, size)


@pytest.mark.parametrize("place", PLACES)
def test_decoders_are_as_many_and_can_as_much(tree: Tree, found: Walk, place: str) -> None:
    """Except poison on errors, MemData-NXM, and a device's two coherency models, which QEMU lacks
    (CXL 3.1 8.2.4.20.1)."""
    ours = decoders_of(our_block(tree, found, place), PLACES[place])
    theirs = decoders_of(captured("before", place), PLACES[place])
    more = {f"capability.{name}" for name in ("poison_on_error", "memdata_nxm", "coherency_models")}
    names = [name for name in theirs if name.startswith("capability.") and name not in more]
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}


@pytest.mark.parametrize(("place", "port"), list(zip(PLACES, (1, 2, 3), strict=True)))
@pytest.mark.parametrize("when", ["before", "after"])
def test_decoders_of_sysfs_are_as_their_registers(place: str, port: int, when: str) -> None:
    decoders = decoders_of(captured(when, place), PLACES[place])
    for number in range(4):
        said = sysfs(when, f"decoder{port}.{number}")
        name = f"decoder{number}"
        if decoders[f"{name}.committed"]:  # Linux may show old values of others
            assert number == 0
            assert int(said["start"], 16) == decoders[f"{name}.base"] << tables.STEP_BITS
            assert int(said["size"], 16) == decoders[f"{name}.size"] << tables.STEP_BITS
        assert int(said["interleave_granularity"]) == 256 << decoders[f"{name}.granularity"]
        assert int(said["interleave_ways"]) == 1 << decoders[f"{name}.ways"]
        assert said["locked"] == str(decoders[f"{name}.lock_on_commit"])
        if PLACES[place]:
            assert said["target_list"] == str(decoders[f"{name}.target0"])


def program(tree: Tree, base: int, at: int, values: dict[str, int]) -> None:
    """Program decoder 0 of the block at *base* as a driver does: all fields, then its commit."""
    decoder = base + at + 0x10
    hpa, size = values["start"], values["size"]
    for offset, value in (
        (0, hpa),
        (4, hpa >> 32),
        (8, size),
        (12, size >> 32),
        (0x14, 0),
        (0x18, 0),
    ):
        tree.root.write(decoder + offset, 4, value & 0xFFFFFFFF)
    tree.root.write(decoder + 0x10, 4, 1 << 12)
    tree.root.write(decoder + 0x10, 4, 1 << 12 | 1 << 9)


def test_our_decoders_hold_what_the_guests_do_once_the_region_is_made() -> None:
    """The writes are Linux's: all fields of decoder 0 are as in the capture, the commit is
    answered, and all other decoders are as before."""
    tree = Tree()
    found = Walk(tree.root, BUS, 0xFD00_0000)
    region = sysfs("after", "region0")
    values = {"start": int(region["resource"], 16), "size": int(region["size"], 16)}
    for place in reversed(PLACES):
        base, read = block_base(tree, found, place), our_block(tree, found, place)
        at = next(each.offset for each in component.find_capabilities(read) if each.number == HDM)
        if not PLACES[place]:
            tree.root.write(base + at + 4, 4, 2)  # Linux enables a device's decoders
        program(tree, base, at, values)
        ours, theirs = (
            decoders_of(read, PLACES[place]),
            decoders_of(captured("after", place), PLACES[place]),
        )
        names = [name for name in theirs if name.startswith("decoder0.")]
        assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}
        assert ours["decoder0.committed"] == 1
        assert ours["control.enable"] == theirs["control.enable"]
        for field in ("commit", "committed", "error"):
            names = [f"decoder{i}.{field}" for i in range(1, 4)]
            assert [ours[name] for name in names] == [theirs[name] for name in names]


def test_our_host_programs_decoders_as_linux_does() -> None:
    """The same window and the same device give the same registers."""
    tree, said = Tree(), sysfs("after", "decoder0.0")
    window = FixedWindow(int(said["start"], 16), int(said["size"], 16), (int(said["target_list"]),))
    with Host(tree.root, [window]) as host:
        region = host.create_region(host.devices)
        wanted = sysfs("after", "region0")
        assert (region.base, region.size) == (int(wanted["resource"], 16), int(wanted["size"], 16))
        blocks = [tree.bridge.component["hdm"], tree.upstream.component["hdm"]]
        blocks.append(tree.device.component["hdm"])
        for place, block in zip(PLACES, blocks, strict=True):
            theirs = decoders_of(captured("after", place), PLACES[place])
            ours = block.dump()
            assert {name: ours[name] for name in theirs if name.startswith("decoder")} == {
                name: value for name, value in theirs.items() if name.startswith("decoder")
            }
        region.write(0x1234, b"through root port, switch and decoders")
        assert region.read(0x123C, 4) == b"root"


def ports_below(functions: list[FoundFunction], above: str) -> dict[str, dict[str, str]]:
    """Returns the ports of sysfs: components with decoders, each with its children by number."""
    found: dict[str, dict[str, str]] = {}
    for each in functions:
        if each.hdm and not each.below:
            continue
        if each.hdm:
            found |= ports_below(each.below, f"0000:{each.bdf}")
        else:
            found.setdefault(above, {})[f"dport{each.number}"] = f"0000:{each.bdf}"
            found |= ports_below(each.below, "")
    return found


def test_ports_and_regions_of_sysfs_are_those_that_our_host_finds() -> None:
    """They are port1 and port2 with their dports, the endpoint below them, and region0 on it."""
    tree, said = Tree(), sysfs("after", "decoder0.0")
    window = FixedWindow(int(said["start"], 16), int(said["size"], 16), (int(said["target_list"]),))
    with Host(tree.root, [window]) as host:
        linux = {}
        for name in ("port1", "port2"):
            port = sysfs("after", name)
            linux[port["uport"]] = {key: port[key] for key in port if key.startswith("dport")}
        roots = [each for each in host.functions if each.parent is None]
        assert ports_below(roots, f"pci0000:{BUS:02x}") == linux
        device, region = host.devices[0], host.create_region(host.devices)
        endpoint, theirs = sysfs("after", "decoder3.0"), sysfs("after", "region0")
        assert (theirs["target0"], sysfs("after", "endpoint3")["uport"]) == ("decoder3.0", "mem0")
        assert f"0000:{device.name}" in CAPTURE["lspci"]
        assert (len(region.devices), len(host.devices)) == (int(theirs["interleave_ways"]), 1)
        assert device.used == int(endpoint["dpa_size"], 16) == region.size
        numbers = [int(sysfs("after", f"decoder{port}.0")["target_list"]) for port in (1, 2)]
        assert [number for _, number in device.route] == numbers
        for decoders in (each for each, _ in device.route):
            assert decoders.used == int(sysfs("after", "port1")["decoders_committed"])
        host.destroy_region(region)
        assert device.used == int(sysfs("before", "decoder3.0")["dpa_size"], 16) == 0


def test_device_registers_are_the_same_structures_at_the_same_offsets(
    tree: Tree, found: Walk
) -> None:
    base = found.bars[Bdf(15)][2][0]
    ours = device_tables.find_capabilities(lambda at, size: tree.root.read(base + at, size))
    theirs = device_tables.find_capabilities(captured("after", "0000:0f:00.0 device", base=0))
    assert [(each.number, each.offset, each.length) for each in ours] == [
        (each.number, each.offset, each.length) for each in theirs
    ]
    mailbox = next(each for each in ours if each.number == device_tables.PRIMARY_MAILBOX)
    payload = 1 << (tree.root.read(base + mailbox.offset, 4) & 0x1F)
    assert payload == int(CAPTURE["after"]["mem0"]["payload_max"])
