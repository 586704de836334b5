# SPDX-License-Identifier: BSD-3-Clause
"""Commands of the FM API and of the mailbox answer with the bytes of vectors.py.  Events have the
bytes below.  Our packers made none of them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from nupa.cxl.commands.memory import Capacity
from nupa.cxl.fm.mctp import Assembler, encode
from nupa.cxl.fm.server.manager import Manager, Session
from nupa.cxl.media import events
from nupa.cxl.media.dcd import DynamicCapacity
from nupa.cxl.media.extents import DcRegion
from nupa.cxl.media.parts import Memory
from tests.unit.cxl.driver import Driver
from tests.unit.cxl.rack import STEP, Rack
from tests.unit.cxl.vectors import DEVICE, MAILBOX, SWITCH, TAG, Vector, data

FM_API, CCI = 7, 8  # DSP0239: message types
MANAGER, THE_SWITCH, HOST_0 = 8, 9, 16  # endpoints
TIME_NS = 0x0102030405060708


def capacity() -> DynamicCapacity:
    second = DcRegion(2 * STEP, STEP, dsmad_handle=1, shareable=True)
    regions = [DcRegion(STEP, STEP, sanitize=True), second]
    return DynamicCapacity(Memory.anonymous(3 * STEP), regions, hosts=4, extents_max=20)


def framed(opcode: str, payload: bytes, tag: int = 0x11) -> bytes:
    """Frame a request (7.6.3): category, tag, reserved, opcode, 3 bytes of length, return code,
    extended status."""
    length = len(payload).to_bytes(3, "little")
    return bytes([0, tag, 0]) + data(opcode) + length + bytes(4) + payload


def answered(opcode: str, code: int, payload: bytes, tag: int = 0x11) -> bytes:
    """Make an answer; bit 23 of its length: the operation goes on in the background."""
    length = (len(payload) | (code == 1) << 23).to_bytes(3, "little")
    status = code.to_bytes(2, "little") + bytes(2)
    return bytes([1, tag, 0]) + data(opcode) + length + status + payload


class Site:
    """A switch to which MCTP packets are sent."""

    def __init__(self) -> None:
        self.rack = Rack()
        self.capacity = self.rack.mld.dynamic = capacity()
        manager = Manager(self.rack.switch, serial=0x1122334455667788, now_ns=lambda: TIME_NS)
        self.session = Session(manager)

    def exchange(self, packets: bytes) -> bytes:
        """Send packets, and return the packets of the answer."""
        [message] = Assembler().feed(packets)
        answer = self.session.answer(message)
        assert answer is not None
        return encode(answer)

    def ask(self, body: bytes, *, host: bool = False) -> bytes:
        """Send a request as DSP0236 says: version, destination, source, start and end and tag
        owner; the type, the body. The length of each packet precedes it in the stream."""
        opcode = int.from_bytes(body[3:5], "little")
        kind = CCI if opcode < 0x5000 or host else FM_API
        kind = FM_API if host else kind
        source = HOST_0 if host else MANAGER
        packet = bytes([1, THE_SWITCH, source, 0xC8, kind]) + body
        packets = self.exchange(len(packet).to_bytes(2, "little") + packet)
        assert packets[2:7] == bytes([1, source, THE_SWITCH, 0xC0, kind])
        assert int.from_bytes(packets[:2], "little") == len(packets) - 2
        return packets[7:]

    def send(self, vector: Vector) -> tuple[int, bytes]:
        answer = self.ask(framed(vector.opcode, data(vector.request)), host=vector.host)
        code = int.from_bytes(answer[8:10], "little")
        assert answer == answered(vector.opcode, code, answer[12:])
        return code, answer[12:]

    def do(self, name: str) -> None:
        assert name == "ACCEPT"
        (offer,) = self.capacity.hosts[1].offers
        self.capacity.accept(1, [(extent.dpa, extent.size) for extent in offer])


class DeviceSite(Site):
    """A switch to which commands for the device at port 4 are sent."""

    def send(self, vector: Vector) -> tuple[int, bytes]:
        inner = framed(vector.opcode, data(vector.request), 0x22)
        answer = self.ask(framed("00 53", b"\4\0" + len(inner).to_bytes(2, "little") + inner))
        assert answer[8:10] == bytes(2)
        size = int.from_bytes(answer[12:14], "little")
        inside = answer[16:]
        assert size == len(inside)
        code = int.from_bytes(inside[8:10], "little")
        assert inside == answered(vector.opcode, code, inside[12:], 0x22)
        return code, inside[12:]


class DriverSite:
    """The registers of a mailbox."""

    def __init__(self) -> None:
        self.capacity = capacity()
        self.driver = Driver(dynamic=(self.capacity, 0))

    def send(self, vector: Vector) -> tuple[int, bytes]:
        return self.driver.send(int.from_bytes(data(vector.opcode), "little"), data(vector.request))

    def do(self, name: str) -> None:
        if name == "FINISH":
            assert self.driver.mailbox.advance()
        else:
            assert name == "OFFER"
            self.capacity.add(0, 0, STEP // 2, tag=UUID(bytes=data(TAG)))


AnySite = Site | DriverSite


def check(site: AnySite, vector: Vector, every: Sequence[Vector]) -> None:
    by_name = {each.name: each for each in every}
    for name in vector.before:
        if name.isupper():
            site.do(name)
        else:
            assert site.send(by_name[name])[0] == by_name[name].code, name
    code, answer = site.send(vector)
    assert (code, answer.hex()) == (vector.code, data(vector.answer).hex()), vector.origin


def named(vectors: Sequence[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[each.name for each in vectors])


@named(SWITCH)
def test_the_switch_answers_as_the_specification_has_it(vector: Vector) -> None:
    check(Site(), vector, SWITCH)


@named(DEVICE)
def test_the_device_behind_a_tunnel_answers_as_the_specification_has_it(vector: Vector) -> None:
    check(DeviceSite(), vector, DEVICE)


@named(MAILBOX)
def test_the_mailbox_answers_as_the_specification_has_it(vector: Vector) -> None:
    check(DriverSite(), vector, MAILBOX)


def opcodes(vectors: Sequence[Vector]) -> set[int]:
    return {int.from_bytes(data(each.opcode), "little") for each in vectors if each.code in (0, 1)}


def effects_log(site: Site) -> set[int]:
    """Return the opcodes of the Command Effects Log, 4 bytes for each command."""
    log = Vector("", "00 04")
    entry = site.send(log)[1][8:28]
    found = site.send(Vector("", "01 04", entry[:16].hex() + "00000000" + entry[16:].hex()))[1]
    return {int.from_bytes(found[at : at + 2], "little") for at in range(0, len(found), 4)}


def test_each_command_that_is_served_has_a_vector_that_succeeds() -> None:
    assert effects_log(Site()) <= opcodes(SWITCH)
    assert effects_log(DeviceSite()) - {0x5300, 0x0101} <= opcodes(DEVICE)
    # Set Partition Info needs memory of both kinds, which this device has not: see below.
    assert set(DriverSite().driver.mailbox.commands) - {0x4101} <= opcodes(MAILBOX)


def test_a_binding_and_its_notification_are_these_bytes_on_the_stream() -> None:
    site = Site()
    policy = "13 00  01 09 08 c8  08  00 01 00 0501 020000 0000 0000  01 80"
    assert site.exchange(data(policy)) == data(
        "13 00  01 08 09 c0  08  01 01 00 0501 020000 0000 0000  01 80"
    )
    bind = "17 00  01 09 08 c9  07  00 02 00 0152 060000 0000 0000  00 01 02 00 ffff"
    assert site.exchange(data(bind)) == data(
        "11 00  01 08 09 c1  07  01 02 00 0152 000080 0100 0000"
    )
    note = site.session.notification()
    assert note is not None
    assert encode(note) == data("13 00  01 08 09 c8  08  00 01 00 0601 020000 0000 0000  01 80")


def test_a_request_in_two_packets_is_answered_once() -> None:
    """DSP0236 8.1: start without end, sequence 0; then end without start, sequence 1."""
    first = "0b 00  01 09 08 8a  07  00 02 00 0251 02"
    second = "0c 00  01 09 08 5a  00 00 0000 0000 02 02"
    assert Site().exchange(data(first) + data(second)) == data(
        "11 00  01 08 09 c2  07  01 02 00 0251 000000 0000 0000"
    )


def test_a_partition_of_memory_of_both_kinds_is_set() -> None:
    """8.2.9.9.2.1, 8.2.9.9.2.2: in units of 256 MiB; flag 0 is immediate."""
    driver = Driver(capacity=Capacity(4 * STEP, STEP, STEP, align_bytes=STEP))
    assert driver.send(0x4101, data("02 0*7 00")) == (0, b"")
    assert driver.send(0x4100)[1] == data("01 0*7 03 0*7  03 0*7 01 0*7")
    assert driver.send(0x4101, data("01 0*7 01")) == (0, b"")
    assert driver.send(0x4100)[1] == data("02 0*7 02 0*7  0*8 0*8")


#: 8.2.9.2.1: identifier, length and severity; handle and related handle, time, maintenance class.
RECORDS = [
    pytest.param(
        events.general_media(
            0x1240,
            descriptor=events.Descriptor.THRESHOLD,
            media=events.MediaEventType.DATA_PATH,
            transaction=events.Transaction.SCRUB,
            channel=3,
            device=0x030201,
        ),
        events.Log.WARNING,
        """
        fbcd0a77 c260 417f 85a9 088b1621eba6  80 010000 0000 0000 0*8 0*16
        40 12 0*6 02 02 05              # 8.2.9.2.1.1: address, threshold, data path, scrub
        0500 03 00 01 02 03             # channel and device are valid
        0*16 0*46
        """,
        id="general media",
    ),
    pytest.param(
        events.dram(
            0x1240,
            media=events.DramEventType.SCRUB_ECC,
            transaction=events.Transaction.HOST_READ,
            rank=1,
            nibbles=0x030201,
            bank_group=4,
            bank=5,
            row=0x0A0908,
            column=0x0C0B,
        ),
        events.Log.FAILURE,
        """
        601dcbb3 9c06 4eab b8af 4e9bfb5c9624  80 020000 0000 0000 0*8 0*16
        40 12 0*6 01 01 01              # 8.2.9.2.1.2: uncorrectable, scrub media ECC, host read
        7e00 00 01 01 02 03             # rank to column are valid; channel, rank, nibble mask
        04 05 08 09 0a 0b 0c            # bank group, bank, row, column
        0*32 0*23
        """,
        id="DRAM",
    ),
    pytest.param(
        events.memory_module(3, data("01 02 03 5f 5f00 04000000 05000000 06000000")),
        events.Log.FATAL,
        """
        fe927475 dd59 4339 a586 79bab113b774  80 030000 0000 0000 0*8 0*16
        03                              # 8.2.9.2.1.3: temperature change
        01 02 03 5f 5f00 04000000 05000000 06000000     # Get Health Info
        0*61
        """,
        id="memory module",
    ),
]


@pytest.mark.parametrize(("event", "log", "text"), RECORDS)
def test_an_event_record_is_as_linux_reads_it(
    event: events.EventRecord, log: events.Log, text: str
) -> None:
    assert event.packed(log).hex() == data(text).hex()
    assert len(data(text)) == 128
