# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes of a host through all its decoders: the place of each byte, and failures."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest

from nupa.base.errors import LocalError
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.interleave import Interleave
from nupa.cxl.host.bus import Bus, Counters, MemoryAccessError, RequestStatus
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.switch.switch import Switch
from nupa.cxl.switch.vppb import Vppb
from tests.unit.cxl.host_model import BASE, DEVICE_BYTES, STEP, Host, commit, decommit

SIZE = 8 * STEP
XOR = (1 << 8 | 1 << 11 | 1 << 17 | 1 << 25,)


def window(*maps: int, size: int = SIZE) -> FixedWindow:
    return FixedWindow(BASE, size, (10, 11), Interleave(2, 256, maps))


@pytest.fixture
def host() -> Host:
    host = Host([window()])
    host.interleave_all()
    return host


@pytest.mark.parametrize("maps", [(), XOR])
def test_a_region_of_eight_devices_is_byte_for_byte_where_the_dealer_put_it(
    maps: tuple[int, ...],
) -> None:
    """Bridges are selected by address bit 8, or by the parity of bits 8, 11, 17 and 25; then bits 9
    and 10."""
    host = Host([window(*maps)])
    host.interleave_all()
    start, blocks = BASE + (1 << 25) - 64 * 256, 128
    data = Random(7).randbytes(blocks * 256)
    dealt: dict[int, bytes] = dict.fromkeys(range(8), b"")
    for i in range(blocks):
        address = start + i * 256
        bits = (8, 11, 17, 25) if maps else (8,)
        bridge = sum(address >> bit & 1 for bit in bits) % 2
        number = 4 * bridge + 2 * (address >> 9 & 1) + (address >> 10 & 1)
        dealt[number] += data[i * 256 : i * 256 + 256]
    with host.bus() as bus:
        bus.write(start, data)
        own = (start - BASE) // 8
        for number, device in enumerate(host.devices):
            assert host.memory[device][own : own + blocks * 32] == dealt[number]
        assert bus.read(start, len(data)) == data


def test_c_finds_what_the_map_of_the_model_finds(host: Host) -> None:
    # Behind the shared region one of device 5's own, and nothing behind that.
    assert commit(host.bridges[1].decoders, 1, BASE + SIZE, STEP, Interleave(), (1,))
    assert host.ups[2].decoders
    assert commit(host.ups[2].decoders, 1, BASE + SIZE, STEP, Interleave(), (2,))
    assert commit(host.devices[5].decoders, 1, BASE + SIZE, STEP, Interleave())
    host.windows = [window(), FixedWindow(BASE + SIZE, 2 * STEP, (11,))]
    random = Random(3)
    with host.bus() as bus:
        edges = [edge + i for edge in (BASE, BASE + SIZE, BASE + SIZE + STEP) for i in (-1, 0, 1)]
        for hpa in [*edges, *(random.randrange(BASE - STEP, BASE + 12 * STEP) for _ in range(500))]:
            there = bus.map.find(hpa)
            assert bus.find(hpa) == (there and (there[0].device, there[1]))
            assert (there is None) != (BASE <= hpa < BASE + SIZE + STEP)
        assert bus.find(BASE + SIZE + 7) == (host.devices[5], STEP + 7)


def test_bytes_of_any_place_and_length_come_back(host: Host) -> None:
    random, copy = Random(5), bytearray(8192)
    with host.bus() as bus:
        for _ in range(200):
            at = random.randrange(len(copy))
            data = random.randbytes(random.randrange(len(copy) - at + 1))
            copy[at : at + len(data)] = data
            bus.write(BASE + at, data)
        assert bus.read(BASE, len(copy)) == copy
        assert bus.read(BASE, 0) == b""


def test_ports_on_the_way_count_what_passes(host: Host) -> None:
    with host.bus() as bus:
        bus.write(BASE, bytes(2048))
        bus.write(BASE + 256, b"partial")
        bus.read(BASE, 1024)
        # Blocks 0 to 7 go to the bridges in turn; 0 and 4 to the first one's first root port.
        assert bus.counters(host.roots[0]) == Counters(4, 8, 0, 0, 0)
        assert bus.counters(host.ups[0]) == bus.counters(host.roots[0])
        assert bus.counters(host.downs[0]) == Counters(4, 4, 0, 0, 0)
        assert bus.counters(host.downs[4]) == Counters(4, 4, 1, 0, 0)
        with pytest.raises(LocalError, match="not a port of this host"):
            bus.counters(Vppb(0, name="elsewhere"))


def test_decommitted_addresses_read_as_all_ones(host: Host) -> None:
    with host.bus() as bus:
        bus.write(BASE, bytes(2048))
        decommit(host.devices[0].decoders, 0)
        with pytest.raises(MemoryAccessError, match="no device decodes it") as caught:
            bus.read(BASE - 64, 2048)
        assert (caught.value.hpa, caught.value.status) == (BASE - 64, RequestStatus.NO_DECODER)
        with pytest.raises(MemoryAccessError) as caught:
            bus.write(BASE, bytes(512))
        assert caught.value.hpa == BASE
        bus.raises = False
        assert bus.read(BASE, 512) == b"\xff" * 256 + bytes(256)
        assert commit(host.devices[0].decoders, 0, BASE, SIZE, Interleave(8, 256))
        assert bus.read(BASE, 512) == bytes(512)


def test_a_device_answers_once_memory_and_decoders_are_enabled(host: Host) -> None:
    with host.bus() as bus:
        for registers, at, size in (
            (host.devices[0].component["hdm"], 4, 4),
            (host.devices[0].config["device"], 0x0C, 2),
        ):
            was = registers.read(at, size)
            assert bus.find(BASE)
            registers.write(at, size, 0)
            assert bus.find(BASE) is None
            registers.write(at, size, was)
            assert bus.find(BASE) == (host.devices[0], 0)


def test_a_reset_of_the_device_ends_what_it_decodes(host: Host) -> None:
    with host.bus() as bus:
        host.devices[0].reset(hot=True)
        assert bus.find(BASE) is None
        assert bus.find(BASE + 256) == (host.devices[4], 0)


def test_poison_fails_reads_until_the_line_is_written(host: Host) -> None:
    with host.bus() as bus:
        bus.set_poison(host.devices[4], 64, 128)
        assert bus.is_poisoned(host.devices[4], 191)
        assert not bus.is_poisoned(host.devices[4], 192)
        with pytest.raises(MemoryAccessError) as caught:
            bus.read(BASE, 4096)
        assert (caught.value.hpa, caught.value.status) == (BASE + 256 + 64, RequestStatus.POISON)
        assert bus.counters(host.downs[4]).poison == 2
        bus.write(BASE + 256 + 64, bytes(64))
        bus.set_poison(host.devices[4], 128, poisoned=False)
        # The contents are lost: windows on the memory have seen ones, too.
        assert bus.read(BASE + 256 + 128, 64) == b"\xff" * 64
        bus.write(BASE + 256 + 128, bytes(64))
        assert bus.read(BASE, 4096) == bytes(4096)
        for dpa in (32, DEVICE_BYTES):
            with pytest.raises(LocalError, match="whole lines of its memory"):
                bus.set_poison(host.devices[4], dpa)
        with pytest.raises(LocalError, match="not plugged in"):
            bus.set_poison(Type3(STEP), 0)


def test_a_link_that_is_down_and_a_viral_device_disturb_nobody_else(host: Host) -> None:
    with host.bus(raises=False) as bus:
        bus.write(BASE, bytes(2048))
        bus.set_link(host.ups[0], False)
        host.devices[7].config["device"]["control.viral_enable"] = 1
        host.devices[7].viral.fail()
        ones, zeros = b"\xff" * 256, bytes(256)
        # Blocks in turn are of devices 0 4 2 6 1 5 3 7; 0 and 1 are behind the first switch.
        gone = {0, 1, 7}
        wanted = b"".join(ones if n in gone else zeros for n in (0, 4, 2, 6, 1, 5, 3, 7))
        assert bus.read(BASE, 2048) == wanted
        assert bus.counters(host.ups[0]).refused == 8
        bus.raises = True
        for hpa, status in ((BASE, RequestStatus.LINK_DOWN), (BASE + 7 * 256, RequestStatus.VIRAL)):
            with pytest.raises(MemoryAccessError) as caught:
                bus.write(hpa, bytes(64))
            assert caught.value.status == status
        bus.set_link(host.ups[0], True)
        host.devices[7].reset(hot=True)
        assert commit(host.devices[7].decoders, 0, BASE, SIZE, Interleave(8, 256))
        host.devices[7].component["hdm"].write(4, 4, 2)
        host.devices[7].config["device"].write(0x0C, 2, 1 << 2)
        assert bus.read(BASE, 2048) == bytes(2048)


def test_a_device_that_is_pulled_out_is_gone_at_once_and_may_come_back(host: Host) -> None:
    with host.bus() as bus:
        bus.write(BASE, b"x" * 4096)
        gone = host.downs[0].detach()
        assert gone is host.devices[0]
        with pytest.raises(MemoryAccessError):
            bus.read(BASE, 64)
        assert bus.read(BASE + 256, 256) == b"x" * 256
        host.downs[0].attach(gone)
        assert bus.read(BASE, 4096) == b"x" * 4096


def test_bound_devices_are_decoded_and_unbound_ones_are_not() -> None:
    host = Host([FixedWindow(BASE, STEP, (10,))])
    host.roots[0].detach()
    switch, device = Switch(hosts=1, downstream=1, vppbs=2), Type3(STEP)
    switch.connect(0, host.roots[0])
    upstream = switch.virtual[0].upstream.decoders
    assert upstream
    with Bus(host.root, host.windows) as bus:
        switch.port(1).insert(device)
        switch.bind(0, 1, 1).finish()
        assert commit(host.bridges[0].decoders, 0, BASE, STEP, Interleave(), (1,))
        assert commit(upstream, 0, BASE, STEP, Interleave(), (1,))
        assert commit(device.decoders, 0, BASE, STEP, Interleave())
        device.component["hdm"].write(4, 4, 2)
        device.config["device"].write(0x0C, 2, 1 << 2)
        bus.write(BASE, b"bound")
        assert bus.read(BASE, 5) == b"bound"
        switch.unbind(0, 1)
        with pytest.raises(MemoryAccessError):
            bus.read(BASE, 5)


def test_a_window_that_cannot_be_is_refused(host: Host) -> None:
    for base, size, targets, why in (
        (BASE + 4096, STEP, (10,), "are not 1 times"),
        (BASE, 0, (10,), "are not 1 times"),
        (BASE, STEP, (10, 11), "as many targets"),
    ):
        with pytest.raises(ValueError, match=why):
            FixedWindow(base, size, targets)
    with pytest.raises(ValueError, match="overlap"):
        Bus(host.root, [window(), FixedWindow(BASE + STEP, STEP, (10,))])


def test_a_bus_of_too_few_devices_or_ports_and_a_closed_one_say_so(host: Host) -> None:
    with pytest.raises(LocalError, match="fewer devices"):
        Bus(host.root, host.windows, devices=7)
    with pytest.raises(LocalError, match="15 ports"):
        Bus(host.root, host.windows, ports=15)
    with pytest.raises(LocalError, match="were given"):
        Bus(host.root, host.windows, memory=lambda _device: bytearray(64))
    bus = host.bus()
    bus.close()
    decommit(host.devices[0].decoders, 0)  # no handler
    with pytest.raises(LocalError, match="is closed"):
        bus.read(BASE, 64)
    bus.close()


def test_a_bus_that_nobody_keeps_is_freed_and_the_model_goes_on(host: Host) -> None:
    kept = weakref.ref(host.bus())
    gc.collect()
    assert kept() is None
    decommit(host.devices[0].decoders, 0)
    with host.bus() as bus:
        assert bus.find(BASE) is None
