# SPDX-License-Identifier: BSD-3-Clause
"""A host with two bridges, four switches and eight devices, and its decoders by their registers."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.hdm import DecoderSet
from nupa.cxl.function.interleave import CODE_OF_WAYS, Interleave
from nupa.cxl.function.port import downstream_port, root_port, upstream_port
from nupa.cxl.host.bus import Bus
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.root import HostBridge, RootComplex

STEP = 256 << 20
DEVICE_BYTES = 2 * STEP
BASE = 64 * STEP
COMMIT, COMMITTED, ERROR = 1 << 9, 1 << 10, 1 << 11


def commit(
    decoders: DecoderSet,
    number: int,
    base: int,
    size: int,
    interleave: Interleave,
    targets: Sequence[int] = (),
) -> bool:
    """Program decoder *number* as a driver does, and return whether it is committed."""
    at, write = 0x10 + 0x20 * number, decoders.registers.write
    granularity = interleave.shift - 8
    write(at, 8, base)
    write(at + 8, 8, size)
    for i in range(0, 8, 4):
        word = int.from_bytes(bytes(targets)[i : i + 4].ljust(4, b"\0"), "little")
        write(at + 0x14 + i, 4, word)
    write(at + 0x10, 4, granularity | CODE_OF_WAYS[interleave.ways] << 4 | COMMIT)
    return decoders.registers.read(at + 0x10, 4) & (COMMITTED | ERROR) == COMMITTED


def decommit(decoders: DecoderSet, number: int) -> None:
    decoders.registers.write(0x20 + 0x20 * number, 4, 0)


class Host:
    """A host with bridges of uids 10 and 11, two root ports each.  Behind each root port is a
    switch with two downstream ports, and a device at each.

    `devices` are by their number, 4 × bridge + 2 × root + down.  Ports are numbered from 1 on.
    `memory` is each device's."""

    def __init__(self, windows: Sequence[FixedWindow]) -> None:
        self.bridges = [HostBridge(10 + i, 16 * i, i << 16, ports=2) for i in range(2)]
        self.devices = [Type3(DEVICE_BYTES, serial=i, name=f"device{i}") for i in range(8)]
        self.memory = {each: mmap.mmap(-1, DEVICE_BYTES) for each in self.devices}
        self.roots, self.ups, self.downs = [], [], []
        waiting = iter(self.devices)
        for bridge in self.bridges:
            for i in range(2):
                root, up = root_port(i + 1), upstream_port()
                bridge.below[i << 3] = root
                root.attach(up)
                self.roots.append(root)
                self.ups.append(up)
                for k in range(2):
                    down = downstream_port(k + 1)
                    up.attach(down, k << 3)
                    down.attach(next(waiting))
                    self.downs.append(down)
        for device in self.devices:
            device.component["hdm"].write(4, 4, 2)
            device.config["device"].write(0x0C, 2, 1 << 2)
        self.root = RootComplex(*self.bridges)
        self.windows = windows

    def bus(self, *, raises: bool = True) -> Bus:
        return Bus(self.root, self.windows, memory=self.memory.__getitem__, raises=raises)

    def interleave_all(self, granularity: int = 256) -> None:
        """Make a region of all devices' first 256 MiB at BASE: interleaved over bridges first, then
        over root ports below each, then over downstream ports."""
        size = 8 * STEP
        for bridge in self.bridges:
            assert commit(bridge.decoders, 0, BASE, size, Interleave(2, 2 * granularity), (1, 2))
        for up in self.ups:
            assert up.decoders
            assert commit(up.decoders, 0, BASE, size, Interleave(2, 4 * granularity), (1, 2))
        for device in self.devices:
            assert commit(device.decoders, 0, BASE, size, Interleave(8, granularity))
