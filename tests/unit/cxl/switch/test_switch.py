# SPDX-License-Identifier: BSD-3-Clause
"""Virtual switches: the enumeration of a host follows the bindings, and its slots report them."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.base.errors import LocalError
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.device.mld import FM_LD, Mld, MldError
from nupa.cxl.function.port import root_port
from nupa.cxl.switch.physical_port import BindingStatus, PortState, UnbindMode
from nupa.cxl.switch.switch import MOST_PORTS, MOST_VPPBS, Switch
from nupa.cxl.switch.vppb import Severity, SwitchError, Vppb, report
from tests.unit.cxl.rack import STEP, Rack

ENABLE_ALL = 1 | 1 << 3 | 1 << 5 | 1 << 12  # attention, presence, interrupts, link state


def status(vppb: Vppb) -> dict[str, int]:
    found = vppb.config["pcie"].dump()
    names = ("presence", "presence_changed", "link_state_changed", "attention_button")
    return {name: found[f"slot_status.{name}"] for name in names} | {
        "link": found["link_status.active"]
    }


def test_a_host_enumerates_what_is_bound_to_its_vppbs() -> None:
    rack = Rack()
    assert rack.devices(0) == rack.devices(1) == []
    rack.bind(0, 1, 2)
    rack.bind(1, 0, 4, 2)
    rack.bind(0, 2, 4, 0)
    assert rack.devices(0) == [1, 2]
    assert rack.devices(1) == [0]
    rack.switch.unbind(0, 1)
    assert rack.devices(0) == [2]


def test_a_logical_device_has_the_memory_that_it_was_given() -> None:
    rack = Rack()
    vppb = rack.bind(1, 0, 4, 2)
    device = vppb.below[0].config["device"]
    assert device["capability.mld"] == 1
    assert device["range1.size_low"] << 28 | device["range1.size_high"] << 32 == 3 * STEP


def test_the_slot_tells_of_plugging_and_interrupts_if_that_is_enabled() -> None:
    rack = Rack()
    vppb = rack.switch.vcs(0).vppb(0)
    heard: list[Vppb] = []
    vppb.interrupts.append(heard.append)
    rack.bind(0, 0, 2)
    assert status(vppb) == {
        "presence": 1,
        "presence_changed": 1,
        "link_state_changed": 1,
        "attention_button": 0,
        "link": 1,
    }
    assert heard == []
    pcie = vppb.config["pcie"]
    pcie.write(0x1A, 2, 0xFFFF)
    assert not status(vppb)["presence_changed"]
    pcie.write(0x18, 2, ENABLE_ALL)
    rack.switch.port(2).remove()
    assert heard == [vppb]
    assert status(vppb)["presence"] == status(vppb)["link"] == 0
    assert vppb.config["aer"]["uncorrectable_status.surprise_down"] == 1
    rack.switch.port(2).insert(rack.singles[0])
    assert heard == [vppb, vppb]
    assert vppb.below == {0: rack.singles[0]}


def test_a_link_that_goes_down_takes_only_its_own_host_s_device() -> None:
    rack = Rack()
    mine, other = rack.bind(0, 0, 2), rack.bind(1, 0, 3)
    rack.switch.port(2).set_link(False)
    assert (status(mine)["presence"], status(mine)["link"], mine.below) == (1, 0, {})
    assert other.below == {0: rack.singles[1]}
    rack.switch.port(2).set_link(True)
    assert mine.below == {0: rack.singles[0]}


def test_all_hosts_of_a_multi_logical_device_lose_it_when_it_is_pulled() -> None:
    rack = Rack()
    mine, other = rack.bind(0, 0, 4, 0), rack.bind(1, 0, 4, 1)
    assert rack.switch.port(4).remove() is rack.mld
    assert mine.below == other.below == {}
    assert mine.config["aer"]["uncorrectable_status.surprise_down"] == 1
    assert rack.bound() == []
    rack.switch.port(4).insert(rack.mld)
    assert mine.below == {}
    assert rack.bind(0, 0, 4, 0).below[0] is rack.mld.lds[0]


def test_a_port_that_is_bound_as_a_whole_takes_no_multi_logical_device() -> None:
    rack = Rack()
    rack.switch.port(4).remove()
    shown = rack.bind(0, 0, 4)
    with pytest.raises(SwitchError, match="is bound as"):
        rack.switch.port(4).insert(rack.mld)
    device = Type3(STEP)
    rack.switch.port(4).insert(device)
    assert shown.below == {0: device}


def test_an_unbound_device_is_reset_and_can_go_to_another_host() -> None:
    rack = Rack()
    vppb = rack.bind(0, 0, 2)
    rack.singles[0].config.header["command.memory_space"] = 1
    rack.switch.unbind(0, 0)
    assert vppb.config["aer"]["uncorrectable_status.surprise_down"] == 1
    assert rack.singles[0].config.header["command.memory_space"] == 0
    assert rack.bind(1, 2, 2).below == {0: rack.singles[0]}


def test_an_unbind_waits_for_the_link_or_for_the_host_as_it_was_asked_to() -> None:
    rack = Rack()
    vcs = rack.switch.vcs(0)
    ended: list[str] = []
    vppb = rack.bind(0, 0, 2)
    rack.switch.unbind(0, 0, UnbindMode.LINK_DOWN, lambda: ended.append("link"))
    assert vcs.status(0) is BindingStatus.IN_PROGRESS
    assert rack.switch.port(2).state is PortState.UNBINDING
    with pytest.raises(SwitchError, match="not bound"):
        rack.switch.unbind(0, 0)
    rack.switch.port(2).set_link(False)
    assert ended == ["link"]
    rack.switch.port(2).set_link(True)
    rack.bind(0, 0, 2)
    vppb.config["pcie"].write(0x18, 2, ENABLE_ALL)
    rack.switch.unbind(0, 0, UnbindMode.MANAGED, lambda: ended.append("host"))
    assert status(vppb)["attention_button"] == 1
    assert ended == ["link"]
    vppb.config["pcie"].write(0x18, 2, ENABLE_ALL | 1 << 10)
    assert ended == ["link", "host"]
    assert vcs.status(0) is BindingStatus.UNBOUND


def test_an_unbind_that_waits_can_be_called_off() -> None:
    rack = Rack()
    rack.bind(0, 0, 2)
    binding = rack.switch.unbind(0, 0, UnbindMode.LINK_DOWN)
    rack.switch.cancel(binding)
    rack.switch.port(2).set_link(False)
    assert rack.switch.vcs(0).status(0) is BindingStatus.PORT
    begun = rack.switch.bind(1, 0, 3)
    assert rack.switch.port(3).state is PortState.BINDING
    rack.switch.cancel(begun)
    assert rack.switch.port(3).state is PortState.DOWNSTREAM


def test_a_link_disabled_by_its_host_hides_the_device_until_a_reset() -> None:
    rack = Rack()
    vppb = rack.bind(0, 0, 2)
    vppb.config["pcie"].write(0x10, 2, 1 << 4)
    assert vppb.below  # masked: CXL 3.1 8.1.5.2
    vppb.config["port_extensions"]["control.unmask_link_disable"] = 1
    vppb.config["pcie"].write(0x10, 2, 1 << 4)
    assert vppb.below == {}
    rack.switch.vcs(0).upstream.reset(hot=True)
    assert vppb.below == {0: rack.singles[0]}


@pytest.mark.parametrize(
    ("vcs", "vppb", "port", "ld", "says"),
    [
        (2, 0, 3, None, "virtual switch 2"),
        (0, 3, 3, None, "vPPB 3"),
        (0, -1, 3, None, "vPPB -1"),
        (0, 1, 6, None, "port 6"),
        (0, 1, 0, None, "is an upstream port"),
        (0, 0, 3, None, "is already bound, to port"),
        (0, 1, 2, None, "is already bound to host0"),
        (0, 1, 4, 1, "LD 1 at port 4 is already bound to host1"),
        (0, 1, 4, None, "name one of its LDs"),
        (0, 1, 3, 0, "no multi-logical device"),
        (0, 1, 4, 4, "LD 4"),
        (0, 1, 4, FM_LD, "LD 65535"),
        (0, 1, 4, 3, "has no memory"),
    ],
)
def test_a_binding_that_cannot_be_is_refused(
    vcs: int, vppb: int, port: int, ld: int | None, says: str
) -> None:
    rack = Rack()
    rack.bind(0, 0, 2)
    rack.bind(1, 0, 4, 1)
    before = rack.bound()
    with pytest.raises(LocalError, match=says):
        rack.switch.bind(vcs, vppb, port, ld)
    assert rack.bound() == before


def test_an_empty_port_is_bound_and_filled_later() -> None:
    rack = Rack()
    vppb = rack.bind(0, 0, 5)
    assert status(vppb)["presence"] == 0
    with pytest.raises(SwitchError, match="is bound as"):
        rack.switch.port(5).insert(Mld(STEP, lds=1))
    rack.switch.port(5).insert(Type3(STEP))
    assert status(vppb)["link"] == 1
    with pytest.raises(SwitchError, match="no room"):
        rack.switch.port(5).insert(Type3(STEP))


def test_a_port_of_a_host_is_not_reset_by_the_manager() -> None:
    rack = Rack()
    rack.bind(0, 0, 2)
    for port in (0, 2):
        with pytest.raises(SwitchError, match="unbind it first"):
            rack.switch.port(port).reset()
        with pytest.raises(SwitchError, match="unbind it first"):
            rack.switch.port(port).assert_reset(True)
    vppb = rack.bind(0, 1, 4, 0)
    rack.switch.port(4).assert_reset(True)
    assert vppb.below == {}
    rack.switch.port(4).assert_reset(False)
    assert vppb.below == {0: rack.mld.lds[0]}


def test_an_error_is_reported_to_the_host_as_a_device_would() -> None:
    vppb = Rack().switch.vcs(0).vppb(0)
    report(vppb, 14, Severity.UNCORRECTABLE, 0xABCD)
    report(vppb, 6, Severity.CORRECTABLE, 0)
    aer = vppb.config["aer"]
    assert aer["uncorrectable_status.completion_timeout"] == 1
    assert (aer["control.first_error"], aer["header_log"]) == (14, 0xABCD)
    assert aer["correctable_status.bad_tlp"] == 1
    with pytest.raises(SwitchError, match="is not defined"):
        report(vppb, 31, Severity.UNCORRECTABLE, 0)


def test_a_host_is_connected_once_and_sees_nothing_when_disconnected() -> None:
    rack = Rack()
    rack.bind(0, 0, 2)
    with pytest.raises(SwitchError, match="is connected to"):
        rack.switch.connect(0, root_port(1))
    rack.switch.disconnect(0)
    assert rack.devices(0) == []
    with pytest.raises(SwitchError, match="no host"):
        rack.switch.disconnect(0)


def test_limits_of_a_switch_hold_one_past_them() -> None:
    assert len(Switch(hosts=1, downstream=MOST_PORTS - 1, vppbs=1).ports) == MOST_PORTS
    with pytest.raises(SwitchError, match="ports at most"):
        Switch(hosts=1, downstream=MOST_PORTS)
    Switch(hosts=1, downstream=0, vppbs=MOST_VPPBS)
    with pytest.raises(SwitchError, match="vPPBs"):
        Switch(hosts=1, downstream=0, vppbs=MOST_VPPBS + 1)


PLACE = st.tuples(
    st.integers(0, 2), st.integers(0, 3), st.integers(0, 6), st.none() | st.integers(0, 4)
)
ACTION = st.sampled_from(["bind", "unbind", "remove", "insert", "link down", "link up", "power"])


@settings(max_examples=50)
@given(st.lists(st.tuples(ACTION, PLACE), max_size=24))
def test_bindings_are_always_one_to_one_and_show_their_device(
    actions: list[tuple[str, tuple[int, int, int, int | None]]],
) -> None:
    rack = Rack()
    pulled: dict[int, Type3 | Mld] = {}
    for action, (vcs, vppb, port, ld) in actions:
        try:
            match action:
                case "bind":
                    rack.bind(vcs, vppb, port, ld)
                case "unbind":
                    rack.switch.unbind(vcs, vppb, list(UnbindMode)[port % 3])
                case "remove":
                    pulled[port] = rack.switch.port(port).remove()
                case "insert" if port in pulled:
                    rack.switch.port(port).insert(pulled.pop(port))
                case "link down" | "link up":
                    rack.switch.port(port).set_link(action == "link up")
                case "power":
                    rack.switch.vcs(vcs).vppb(vppb).config["pcie"].write(0x18, 2, 1 << 10)
        except LocalError:
            continue
    ends = [(binding.port.number, binding.ld) for _, _, binding in rack.switch.bindings]
    assert len(ends) == len(set(ends))
    assert sorted(map(str, ends)) == sorted(
        str((port.number, ld)) for port in rack.switch.ports for ld in port.bound
    )
    bound = {(vcs, vppb): binding for vcs, vppb, binding in rack.switch.bindings}
    for virtual in rack.switch.virtual:
        for shown in virtual.vppbs:
            binding = bound.get((virtual.number, shown.number))
            seen = binding.seen() if binding else None
            there = seen is not None and seen.function is not None
            assert status(shown)["presence"] == there
            assert set(shown.below.values()) <= ({seen.function} if seen else set())
            assert bool(shown.below) == bool(there and seen and seen.up and not shown.powered_off)
            assert status(shown)["link"] == bool(shown.below)


@settings(max_examples=10)
@given(st.integers(0, 1), st.integers(0, 2), st.sampled_from([(2, None), (4, 1)]))
def test_unbinding_restores_what_was_before_a_binding(
    vcs: int, vppb: int, what: tuple[int, int | None]
) -> None:
    rack = Rack()
    before = rack.switch.vcs(vcs).vppb(vppb).config["pcie"].dump()
    rack.bind(vcs, vppb, *what)
    rack.switch.unbind(vcs, vppb)
    shown = rack.switch.vcs(vcs).vppb(vppb)
    shown.config["pcie"].write(0x1A, 2, 0xFFFF)
    assert shown.config["pcie"].dump() == before
    assert rack.switch.bindings == []
    assert not rack.switch.port(what[0]).bound


def test_an_mld_refuses_more_than_it_has() -> None:
    for lds, granularity in ((17, STEP), (0, STEP), (1, 1)):
        with pytest.raises(MldError):
            Mld(STEP, lds=lds, granularity_bytes=granularity)
    with pytest.raises(MldError, match="multiple"):
        Mld(STEP + 1)
    mld = Mld(4 * STEP, lds=16)
    for first, steps in ((0, [5]), (16, [1]), (15, [1, 1]), (0, []), (0, [-1]), (-1, [1])):
        with pytest.raises(MldError):
            mld.allocate(first, steps)
    assert mld.allocated == [0] * 16
    for parts in ([256], [-1], [255, 2], [], [0] * 17):
        with pytest.raises(MldError):
            mld.set_bandwidth(0, parts)
    mld.set_bandwidth(0, [255, 1])
    mld.set_bandwidth(0, [255, 255], limit=True)
    assert (mld.bandwidth[:2], mld.bandwidth_limit[:2]) == ([255, 1], [255, 255])
    for name, value in (("moderate_percent", 0), ("severe_percent", 101), ("sample_interval", 16)):
        with pytest.raises(MldError, match=name):
            mld.set_qos(**{name: value})
    assert mld.set_qos(sample_interval=15).sample_interval == 15


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=12))
def test_memory_of_an_ld_is_its_own_and_stays_when_others_change(
    changes: list[tuple[int, int]],
) -> None:
    mld = Mld(8 * STEP, lds=4)
    for ld, steps in changes:
        before = [[mld.media(n, i * STEP) for i in range(mld.allocated[n])] for n in range(4)]
        try:
            mld.allocate(ld, [steps])
        except MldError:
            assert sum(mld.allocated) - mld.allocated[ld] + steps > 8
            continue
        after = [[mld.media(n, i * STEP) for i in range(mld.allocated[n])] for n in range(4)]
        for n in range(4):
            kept = min(len(before[n]), len(after[n]))
            assert before[n][:kept] == after[n][:kept]
        assert mld.allocated[ld] == steps
        used = [place for places in after for place in places]
        assert len(used) == len(set(used))
        with pytest.raises(MldError):
            mld.media(ld, steps * STEP)


def test_the_manager_s_ld_resets_those_that_it_names() -> None:
    mld = Mld(4 * STEP, lds=2)
    for ld in mld.lds:
        ld.config.header["command.memory_space"] = 1
    assert mld.fm_ld.config["mld"]["logical_devices"] == 2
    mld.fm_ld.config["mld"].write(0x0C, 2, 0b10)
    assert [ld.config.header["command.memory_space"] for ld in mld.lds] == [1, 0]
    assert mld.function(FM_LD) is mld.fm_ld
    with pytest.raises(MldError):
        mld.function(2)


def test_memory_of_a_bound_ld_is_not_taken() -> None:
    rack = Rack()
    rack.bind(0, 0, 4, 1)
    with pytest.raises(SwitchError, match="LD 1"):
        rack.switch.allocate(4, 0, [0, 1])
    assert rack.mld.allocated == [1, 2, 3, 0]
    rack.switch.allocate(4, 0, [3, 2, 0, 3])
    assert rack.mld.allocated == [3, 2, 0, 3]
    with pytest.raises(SwitchError, match="no multi-logical"):
        rack.switch.allocate(2, 0, [1])
