# SPDX-License-Identifier: BSD-3-Clause
"""A whole memory expander: its registers as software finds them, and its state after resets."""

from __future__ import annotations

import gc
import weakref

import pytest

from nupa.cxl.device.expander import Expander
from nupa.cxl.media.cdat import DataType, Dslbis
from nupa.cxl.media.media import MediaError
from nupa.cxl.media.parts import Memory, PartedMedia
from nupa.cxl.media.performance import bandwidth_mbps
from nupa.topology.topology import SPEEDS_MTPS, LinkConfig

UNIT = 256 << 20


def test_its_link_and_its_table_tell_of_the_same_speed() -> None:
    link = LinkConfig(2, SPEEDS_MTPS["gen4"])
    expander = Expander(PartedMedia.of(Memory.anonymous(UNIT), UNIT), link)
    pcie = expander.function.config["pcie"]
    assert (pcie["link_status.speed"], pcie["link_status.width"]) == (4, 2)
    found = {
        x.data: x.base * x.entries[0] for x in expander.cdat.structures if isinstance(x, Dslbis)
    }
    assert found[DataType.READ_BANDWIDTH] == bandwidth_mbps(link)


def test_a_function_level_reset_ends_what_is_said_over_doe_but_no_command() -> None:
    expander = Expander(PartedMedia.of(Memory.anonymous(UNIT), UNIT), LinkConfig())
    config, device = expander.function.config, expander.function.device
    config["doe"].write(0x10, 4, 1)
    at = device.offset_of("mailbox")
    device.write(at + 8, 8, 0x4400)
    device.write(at + 4, 4, 1)
    pcie = config["pcie"]
    control = pcie.fields["device_control.initiate_reset"]
    pcie.write(control.low // 16 * 2, 2, 1 << control.low % 16)
    for dword in (1, 3, 0):
        config["doe"].write(0x10, 4, dword)
    config["doe"].write(0x08, 4, 1 << 31)
    assert config["doe"]["status.object_ready"] == 1
    assert expander.memory.mailbox.running == 0x4400


def test_a_hot_reset_does_a_sanitize_to_its_end() -> None:
    media = PartedMedia.of(Memory.anonymous(UNIT), UNIT)
    expander = Expander(media, LinkConfig())
    media.write(UNIT - 3, b"end")
    device = expander.function.device
    at = device.offset_of("mailbox")
    device.write(at + 8, 8, 0x4400)
    device.write(at + 4, 4, 1)
    expander.function.reset(hot=True)
    assert expander.memory.mailbox.running is None
    assert device["memory"]["status.media"] == 1
    assert not expander.memory.mailbox.is_media_disabled
    assert media.read(UNIT - 3, 3) == bytes(3)


def test_an_access_one_byte_beyond_the_memory_is_refused() -> None:
    media = Memory.anonymous(4096)
    media.write(4095, b"x")
    assert media.read(4095, 1) == b"x"
    for access in (lambda: media.read(4095, 2), lambda: media.clear(-1, 1)):
        with pytest.raises(MediaError):
            access()
    with pytest.raises(MediaError):
        media.write(4095, b"xy")
    assert media.read(4095, 1) == b"x"


def test_memory_of_a_view_is_freed_with_the_cycle_that_it_is_in() -> None:
    memory = Memory(memoryview(bytearray(4096)))
    gone = weakref.ref(memory)
    vars(memory)["itself"] = memory
    del memory
    gc.collect()
    assert gone() is None
