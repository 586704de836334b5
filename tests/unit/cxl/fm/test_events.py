# SPDX-License-Identifier: BSD-3-Clause
"""Events for the fabric manager: which changes become records, and notifications."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from uuid import UUID

import pytest

from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.fm.event_records import MLD_PORT, PHYSICAL_SWITCH, VIRTUAL_SWITCH
from nupa.cxl.fm.mctp import FramingError, MctpMessage, MessageType
from nupa.cxl.fm.messages import Cci, FmOpcode
from nupa.cxl.fm.server.manager import Manager, Session
from nupa.cxl.fm.server.server import Server, path_of
from nupa.cxl.fm.server.session import DONE_BIT, EVENTS_MAX, NOTIFICATION
from nupa.cxl.function.cci import Code, CommandError
from nupa.cxl.media.dcd import DynamicCapacity
from nupa.cxl.media.events import DYNAMIC_CAPACITY, Log
from nupa.cxl.media.extents import DcRegion
from nupa.cxl.media.parts import Memory
from nupa.cxl.switch.physical_port import ErrorMessage, UnbindMode
from tests.unit.cxl.rack import STEP, Rack


class Site:
    """A rack, whose time counts from 1; the device at port 4 has dynamic capacity."""

    def __init__(self) -> None:
        self.rack = Rack()
        self.switch = self.rack.switch
        regions = [DcRegion(8 * STEP, STEP)]
        self.capacity = DynamicCapacity(Memory.anonymous(9 * STEP), regions, hosts=4)
        self.rack.mld.dynamic = self.capacity
        self.later: list[Callable[[], None]] = []
        self.manager = Manager(self.switch, now_ns=itertools.count(1).__next__)
        self.fm = FabricManager.of(self.manager)

    def texts(self) -> list[str]:
        return [each.text for each in self.fm.events(clear=True)]


@pytest.fixture(scope="module")
def shared() -> Site:
    return Site()


def test_each_change_of_the_switch_is_a_record_in_its_log() -> None:
    site = Site()
    fm, switch = site.fm, site.switch
    assert site.texts() == []
    fm.bind(0, 1, 2)
    fm.bind(1, 0, 4, 2)
    device = switch.port(2).remove()
    switch.port(2).insert(device)
    switch.port(3).set_link(False)
    switch.disconnect(1)
    fm.unbind(0, 1)
    assert site.texts() == [
        "virtual switch 0, vPPB 1: bound to port 2",
        "virtual switch 1, vPPB 0: bound to port 4, LD 2",
        "port 2: nothing is there",
        "port 2 (downstream): its link is down",
        "port 2: something is there",
        "port 2 (downstream): its link is up",
        "port 3 (downstream): its link is down",
        "port 1: nothing is there",
        "port 1 (upstream): its link is down",
        "virtual switch 0, vPPB 1: unbound",
    ]
    assert site.texts() == []


def test_changes_of_a_host_to_its_bridge_are_reported() -> None:
    site = Site()
    site.fm.bind(0, 1, 2)
    site.texts()
    config = site.switch.vcs(0).vppb(1).config
    config["port_extensions"]["control.unmask_secondary_bus_reset"] = 1
    config["pcie"].write(0x18, 2, 1 << 10)  # power off
    config["pcie"].write(0x18, 2, 1 << 10)  # as before
    config["pcie"].write(0x10, 2, 1 << 4)  # link disable
    config.write(0x3E, 2, 1 << 6)  # secondary bus reset
    found = site.fm.events(clear=True)
    assert {each.event.kind for each in found} == {VIRTUAL_SWITCH}
    assert [each.text.rpartition(" has used ")[2] for each in found] == [
        "slot control",
        "link control",
        "secondary bus reset",
    ]
    assert found[-1].event.data[6:10] == b"\x10\0\0\4"  # Link Control, Slot Control


def test_a_binding_that_failed_is_a_warning() -> None:
    site = Site()
    site.fm.bind(0, 0, 2)
    site.fm.unbind(0, 0, UnbindMode.LINK_DOWN, wait=False)
    site.texts()
    site.fm.abort()
    (event,) = site.fm.events()
    assert (event.log, event.text) == (Log.WARNING, "virtual switch 0, vPPB 0: bound to port 2")


def test_error_messages_of_a_device_go_to_their_logs() -> None:
    site = Site()
    port = site.switch.port(4)
    for error in ErrorMessage:
        port.receive_error(error, b"message: more")
    found = site.fm.events()
    assert [each.log for each in found] == [Log.WARNING, Log.FAILURE, Log.FAILURE]
    assert {each.event.kind for each in found} == {MLD_PORT}
    assert found[0].event.data[:12] == b"\0\4\0\0message:"
    assert "port 4: its device has sent a fatal error" in site.texts()


def test_a_logical_device_that_fails_is_a_message_if_its_host_wants_it() -> None:
    site = Site()
    ld, config = site.rack.mld.logical[1], site.rack.mld.lds[1].config
    ld.fail()
    assert site.fm.events() == []  # masked, and not enabled
    config["aer"]["uncorrectable_mask.internal"] = 0
    for kind in ("fatal", "non_fatal"):
        config["pcie"][f"device_control.{kind}_reporting"] = 1
    ld.fail()
    config["aer"]["uncorrectable_severity.internal"] = 0
    ld.fail()
    found = site.fm.events(clear=True)
    assert [each.event.data[0] for each in found] == [ErrorMessage.FATAL, ErrorMessage.NON_FATAL]
    assert [each.event.data[11] for each in found] == [0x33, 0x31]
    site.switch.port(4).set_link(False)
    ld.fail()
    assert [each.event.kind for each in site.fm.events()] == [PHYSICAL_SWITCH]


def test_answers_and_releases_of_hosts_are_reported() -> None:
    site = Site()
    capacity, device = site.fm.capacity(4), site.capacity
    capacity.add(1, 0, 2 << 20, tag=UUID(int=3))
    (offer,) = device.hosts[1].offers
    device.accept(1, [(extent.dpa, extent.size) for extent in offer])
    capacity.add(1, 0, 2 << 20)
    device.accept(1, [])
    device.release(1, [(8 * STEP, 1 << 21)])
    found = site.fm.events(clear=True)
    assert [(each.port, each.log, each.event.kind) for each in found] == [
        (4, Log.DYNAMIC_CAPACITY, DYNAMIC_CAPACITY)
    ] * 3
    assert [each.text for each in found] == [
        "host 1 accepts 0x200000 bytes at 0x80000000",
        "host 1 accepts nothing",
        "host 1 gives back 0x200000 bytes at 0x80000000",
    ]
    data = found[0].event.data
    assert data[:8] == b"\4\1\1\0\0\0\0\0"
    assert data[24:40] == UUID(int=3).bytes
    assert data[72:] == (511).to_bytes(4, "little") + (127).to_bytes(4, "little")


def test_each_manager_has_all_events_and_one_that_comes_later_the_last(shared: Site) -> None:
    first, second = FabricManager.of(shared.manager), FabricManager.of(shared.manager)
    shared.switch.port(3).set_link(False)
    assert [each.text for each in first.events(clear=True)][-1] == (
        "port 3 (downstream): its link is down"
    )
    assert len(second.events(clear=True)) == 1
    assert (first.events(), second.events()) == ([], [])
    shared.switch.port(3).set_link(True)
    assert len(first.events()) == 1
    assert len(FabricManager.of(shared.manager).events()) == 2


def test_a_full_log_counts_what_it_has_no_room_for() -> None:
    site = Site()
    port = site.switch.port(3)
    site.fm.events(clear=True)
    for turn in range(EVENTS_MAX + 3):
        port.set_link(bool(turn % 2))
    found = site.fm.events()
    assert len(found) == EVENTS_MAX
    assert {each.lost for each in found} == {3}
    assert len(site.fm.events(clear=True)) == EVENTS_MAX
    assert site.fm.events() == []


def test_a_notification_comes_once_until_the_log_is_cleared() -> None:
    site = Site()
    fm, port = site.fm, site.switch.port(3)
    port.set_link(False)
    fm.notify(1 << Log.INFORMATIONAL | DONE_BIT)
    assert fm.notified() == 1 | DONE_BIT
    port.set_link(True)
    assert fm.wait_for_notification(0) == 0  # there was a record before
    fm.events(clear=True)
    port.set_link(False)
    port.set_link(True)
    assert fm.wait_for_notification(5) == 1
    assert fm.wait_for_notification(0) == 0
    fm.bind(0, 0, 2)
    assert fm.wait_for_notification(5) == DONE_BIT
    fm.notify(0)
    fm.events(clear=True)
    port.set_link(False)
    assert fm.wait_for_notification(0) == 0


def test_nothing_more_is_sent_before_a_notification_is_acknowledged(shared: Site) -> None:
    session = Session(shared.manager)
    session.inbox(shared.manager.component).policy = DONE_BIT
    done = shared.manager.component.on_done
    assert session.notification() is None
    done()
    done()
    note = session.notification()
    assert note is not None
    done()
    assert session.notification() is None
    request = Cci(NOTIFICATION, bytes(2), note.body[1])
    for wrong in (request._replace(tag=note.body[1] + 1), request._replace(opcode=0x100)):
        with pytest.raises(FramingError):
            session.answer(note.answer(wrong.answer(Code.SUCCESS).pack()))
    assert session.answer(note.answer(request.answer(Code.SUCCESS).pack())) is None
    again = session.notification()
    assert again is not None
    assert again.body[12:] == DONE_BIT.to_bytes(2, "little")


def test_a_notification_from_a_manager_is_discarded(shared: Site) -> None:
    session = Session(shared.manager)
    assert session.answer(MctpMessage(MessageType.CCI, Cci(NOTIFICATION, bytes(2)).pack())) is None
    request = MctpMessage(MessageType.CCI, Cci(FmOpcode.IDENTIFY).pack())
    answer = session.answer(request)
    assert answer is not None
    assert not answer.owner


def test_a_wrong_clear_changes_no_log() -> None:
    site = Site()
    site.switch.port(3).set_link(False)
    site.switch.port(3).set_link(True)
    second = site.fm.events()[1].event.handle.to_bytes(2, "little")
    for payload, code in (
        (b"\0\0\1\0\0\0" + second, Code.INVALID_HANDLE),  # not the oldest
        (b"\0\0\1\0\0\0", Code.INVALID_PAYLOAD_LENGTH),
        (b"\0\1\0\0\0\0", Code.INVALID_INPUT),  # it has not overflown
        (b"\5\0\1\0\0\0\1\0", Code.INVALID_INPUT),
    ):
        with pytest.raises(CommandError) as refused:
            site.fm.request(0x101, payload, cci=True)
        assert refused.value.code is code
        assert len(site.fm.events()) == 2


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    site = Site()
    with Server(site.manager, path_of("a")).start():
        yield site
    assert list(tmp_path.iterdir()) == []


def test_managers_follow_over_the_socket_while_another_works(served: Site) -> None:
    found: dict[int, list[str]] = {0: [], 1: []}
    ready = [FabricManager.open("a"), FabricManager.open("a")]
    for fm in ready:
        fm.notify()

    def follow(number: int) -> None:
        for event in ready[number].follow(30):
            found[number].append(event.text)
            if event.event.kind == PHYSICAL_SWITCH and "is up" in event.text:
                return

    followers = [Thread(target=follow, args=(number,)) for number in found]
    for each in followers:
        each.start()
    with FabricManager.open("a") as fm:
        for _ in range(20):
            fm.bind(0, 1, 2)
            fm.unbind(0, 1)
        fm.assert_reset(3)
        fm.assert_reset(3, False)
    for each in followers:
        each.join(30)
        assert not each.is_alive()
    for fm in ready:
        fm.close()
    assert found[0] == found[1]
    assert len(found[0]) == 42
    assert list(ready[0].__class__.of(served.manager).follow(0))
