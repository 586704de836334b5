# SPDX-License-Identifier: BSD-3-Clause
"""Interleaving as Linux programs it: regions of a guest (tests/data/capture_interleave.py), and
ours of the same devices in the same order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.port import downstream_port, root_port, upstream_port
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.host import Host
from nupa.cxl.host.root import HostBridge, RootComplex
from nupa.cxl.registers import component_tables as tables
from nupa.cxl.registers.block import Registers, decode
from tests.unit.cxl.tree import BRIDGE_BASE, BUS, MEMORY_BYTES

CAPTURE: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "data/linux_interleave.json").read_text()
)
DECODERS, DEVICES = 4, 4
CONTROL = "0x020"  # of decoder 0


class Wide:
    """Two root ports, a switch with two downstream ports behind each, a device behind each of
    these.  `blocks` are the HDM decoders by the capture's names of places."""

    def __init__(self) -> None:
        self.bridge = HostBridge(BUS, BUS, BRIDGE_BASE, ports=2)
        self.blocks: dict[str, Registers] = {"bridge": self.bridge.component["hdm"]}
        for root in range(2):
            port, upstream = root_port(root, slot=root), upstream_port()
            self.bridge.below[root << 3] = port
            port.attach(upstream)
            bus = BUS + 1 + 4 * root
            self.blocks[f"0000:{bus:02x}:00.0"] = upstream.component["hdm"]
            for down in range(2):
                below, device = downstream_port(down, slot=2 + 2 * root + down), Type3(MEMORY_BYTES)
                upstream.attach(below, down << 3)
                below.attach(device)
                self.blocks[f"0000:{bus + 2 + down:02x}:00.0"] = device.component["hdm"]
        self.root = RootComplex(self.bridge)


def decoders(words: dict[str, str], block: Registers) -> dict[str, int]:
    """Reads the registers that Linux programmed, by our rows."""
    known = {int(at, 16): int(word, 16) for at, word in words.items()}
    targets = 8 if any(name.endswith("target0") for name in block.fields) else 0
    capability = tables.hdm(DECODERS, targets=targets)
    image = b"".join(known.get(at, 0).to_bytes(4, "little") for at in range(0, capability.bytes, 4))
    return decode(capability.rows, image)


@pytest.mark.parametrize("name", CAPTURE["regions"])
def test_our_host_programs_each_decoder_as_linux_does(name: str) -> None:
    asked = CAPTURE["regions"][name]
    sysfs = asked["sysfs"]
    said = sysfs["decoder0.0"]
    window = FixedWindow(int(said["start"], 16), int(said["size"], 16), (int(said["target_list"]),))
    wide = Wide()
    with Host(wide.root, [window]) as host:
        devices = {f"0000:{each.name}": each for each in host.devices}
        # QEMU's root ports have decoders, too, which Linux does not program.
        others = {
            place: asked["registers"][place]
            for place in asked["registers"].keys() - wide.blocks.keys()
        }
        assert not any(CONTROL in words for words in others.values())
        assert len(devices) == DEVICES
        chosen = [devices[function] for function in asked["functions"]]
        region = host.create_region(chosen, granularity=asked["granularity"])
        (theirs,) = (value for key, value in sysfs.items() if key.startswith("region"))
        assert region.base == int(theirs["resource"], 16)
        assert region.size == int(theirs["size"], 16)
        programmed = 0
        for place, block in wide.blocks.items():
            linux = decoders(asked["registers"][place], block)
            ours = block.dump()
            for number in range(DECODERS):
                committed = f"decoder{number}.committed"
                assert (place, ours[committed]) == (place, linux[committed])
            if linux["decoder0.committed"]:
                programmed += 1
                mine, his = (
                    {key: some[key] for key in linux if key.startswith("decoder0.")}
                    for some in (ours, linux)
                )
                assert (place, mine) == (place, his)
        assert programmed >= 2 + len(chosen)
