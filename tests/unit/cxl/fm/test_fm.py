# SPDX-License-Identifier: BSD-3-Clause
"""Commands of the fabric manager: effects, and return codes of refusals."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.base.errors import LocalError, RemoteError
from nupa.cxl.device.mld import FM_LD
from nupa.cxl.fm import messages
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.fm.mctp import FramingError, MctpMessage, MessageType
from nupa.cxl.fm.messages import Cci, FmOpcode
from nupa.cxl.fm.server.manager import Manager, Session
from nupa.cxl.function.cci import Code, CommandError
from nupa.cxl.switch.physical_port import BindingStatus, PortState, UnbindMode
from nupa.cxl.switch.vppb import Severity
from tests.unit.cxl.rack import STEP, Rack


class Site:
    """A rack and its manager; bindings complete by `finish` if *slow*."""

    def __init__(self, *, slow: bool = False) -> None:
        self.rack = Rack()
        self.later: list[Callable[[], None]] = []
        self.switch = self.rack.switch
        self.manager = (
            Manager(self.switch, later=self.later.append) if slow else Manager(self.switch)
        )
        self.fm = FabricManager.of(self.manager)

    def finish(self) -> None:
        self.later.pop(0)()


def code_of(call: Callable[[], object]) -> Code:
    with pytest.raises(CommandError) as refused:
        call()
    return refused.value.code


def test_a_manager_sees_the_switch_and_its_ports() -> None:
    site = Site()
    site.fm.bind(0, 1, 2)
    site.fm.bind(1, 0, 4, 2)
    info = site.fm.switch()
    assert (info.ports, info.virtual_switches, info.vppbs, info.bound_vppbs) == (6, 2, 6, 2)
    assert (info.active_ports[0], info.active_virtual[0], info.decoders) == (0b11111, 0b11, 4)
    ports = site.fm.ports()
    assert [port.device for port in ports] == ["", "", "SLD", "SLD", "MLD", ""]
    assert [port.state for port in ports] == [PortState.UPSTREAM] * 2 + [PortState.DOWNSTREAM] * 4
    assert [port.up for port in ports] == [True] * 5 + [False]
    assert [port.present for port in ports] == [True] * 5 + [False]
    assert (ports[2].speed, ports[2].width) == (6, 16)
    assert site.fm.ports([99])[0].state is PortState.INVALID


def test_a_binding_of_a_manager_is_what_the_host_finds() -> None:
    site = Site()
    site.fm.bind(0, 1, 2)
    site.fm.bind(0, 2, 4, 0)
    assert site.rack.devices(0) == [1, 2]
    zero, one = site.fm.virtual_switches()
    assert (zero.enabled, zero.upstream_port, one.upstream_port) == (True, 0, 1)
    assert [tuple(vppb) for vppb in zero.vppbs] == [
        (0, BindingStatus.UNBOUND, None, None),
        (1, BindingStatus.PORT, 2, None),
        (2, BindingStatus.LD, 4, 0),
    ]
    site.fm.unbind(0, 1)
    assert site.rack.devices(0) == [2]
    assert code_of(lambda: site.fm.virtual_switches([2])) is Code.INVALID_INPUT


def test_a_slow_binding_goes_on_in_the_background_and_there_is_one_at_a_time() -> None:
    site = Site(slow=True)
    site.fm.bind(0, 0, 2, wait=False)
    assert site.fm.background() == (1, FmOpcode.BIND, 0, 0)
    assert site.fm.virtual_switches([0])[0].vppbs[0].status is BindingStatus.IN_PROGRESS
    assert site.fm.ports([2])[0].state is PortState.BINDING
    assert code_of(lambda: site.fm.bind(0, 1, 3)) is Code.BUSY
    assert code_of(lambda: site.fm.unbind(0, 0)) is Code.BUSY
    with pytest.raises(RemoteError, match="is in progress"):
        site.fm.wait(FmOpcode.BIND, timeout_s=0)
    site.finish()
    site.fm.wait(FmOpcode.BIND)
    assert site.fm.background() == (200, FmOpcode.BIND, 0, 0)
    assert site.rack.devices(0) == [0]


def test_a_binding_whose_device_goes_meanwhile_has_failed() -> None:
    site = Site(slow=True)
    site.fm.bind(0, 0, 4, 1, wait=False)
    site.switch.port(4).remove()
    assert site.rack.bound() == []
    site.finish()
    assert code_of(lambda: site.fm.wait(FmOpcode.BIND)) is Code.RETRY_REQUIRED
    site.switch.port(4).insert(site.rack.mld)
    site.fm.bind(0, 0, 4, 1, wait=False)
    site.switch.port(4).remove()
    site.fm.abort()  # too late, too
    site.finish()
    assert site.rack.bound() == []
    assert site.rack.switch.vcs(0).vppb(0).below == {}


def test_an_aborted_binding_leaves_nothing_and_is_reported() -> None:
    site = Site(slow=True)
    site.fm.bind(0, 0, 2, wait=False)
    site.fm.abort()
    site.finish()  # too late
    assert site.rack.bound() == []
    assert code_of(lambda: site.fm.wait(FmOpcode.BIND)) is Code.ABORTED
    site.fm.bind(0, 0, 2, wait=False)
    site.finish()
    site.fm.unbind(0, 0, UnbindMode.LINK_DOWN, wait=False)
    assert site.fm.background().opcode == FmOpcode.UNBIND
    site.fm.abort()
    assert site.rack.bound() == [(0, 0, 2, None)]
    site.fm.unbind(0, 0, UnbindMode.LINK_DOWN, wait=False)
    site.switch.port(2).set_link(False)
    site.fm.wait(FmOpcode.UNBIND)
    assert site.rack.bound() == []


def test_port_control_is_for_ports_that_no_host_has() -> None:
    site = Site()
    site.fm.assert_reset(2)
    assert (site.fm.ports([2])[0].in_reset, site.fm.ports([2])[0].up) == (True, False)
    site.fm.assert_reset(2, False)
    site.fm.reset(4)
    site.fm.bind(0, 0, 2)
    for call in (lambda: site.fm.reset(2), lambda: site.fm.assert_reset(0)):
        assert code_of(call) is Code.INVALID_INPUT
    assert code_of(lambda: site.fm.reset(6)) is Code.INVALID_INPUT
    assert code_of(lambda: site.fm.request(FmOpcode.PORT_CONTROL, b"\2\3")) is Code.INVALID_INPUT


def test_a_manager_reads_and_writes_configuration_space() -> None:
    site = Site()
    assert site.fm.ppb_read(3, 0) == site.switch.port(3).ppb.config.read(0, 4)
    site.fm.ppb_write(3, 0x18, 0x00020100)
    assert site.switch.port(3).ppb.config.header["secondary_bus"] == 1
    assert code_of(lambda: site.fm.ppb_read(0, 0)) is Code.INVALID_INPUT
    assert code_of(lambda: site.fm.ppb_read(3, 2)) is Code.INVALID_INPUT
    assert site.fm.ld_config_read(4, 1, 0x08) >> 8 == 0x050210
    assert site.fm.ld_config_read(4, FM_LD, 0x08) >> 8 == 0x050210
    assert code_of(lambda: site.fm.ld_config_read(4, 4, 0)) is Code.INVALID_INPUT
    assert code_of(lambda: site.fm.ld_config_read(3, 0, 0)) is Code.INVALID_INPUT
    site.fm.ld_config_write(4, 1, 0x04, 2)
    assert site.rack.mld.lds[1].config.header["command.memory_space"] == 1
    assert site.rack.mld.lds[0].config.header["command.memory_space"] == 0


def test_only_enabled_bytes_are_read_and_written() -> None:
    site = Site()
    config = site.switch.port(3).ppb.config
    for enables, kept in ((0b0001, 0xFF), (0b0011, 0xFFFF), (0b0110, 0xFFFF00), (0, 0)):
        config.write(0x18, 4, 0)
        where = (0x18 | enables << 12 | 1 << 23).to_bytes(3, "little")
        access = messages.ConfigAccess(3, where, 0x00FFFFFF)
        site.fm.request(FmOpcode.PPB_CONFIG, messages.CONFIG.pack(access))
        assert config.read(0x18, 4) & 0xFFFFFF == kept
        read = messages.ConfigAccess(3, (enables << 12).to_bytes(3, "little"), 0)
        answer = site.fm.request(FmOpcode.PPB_CONFIG, messages.CONFIG.pack(read))
        mask = sum(0xFF << 8 * i for i in range(4) if enables >> i & 1)
        assert int.from_bytes(answer, "little") == config.read(0, 4) & mask


def test_a_manager_reaches_registers_behind_the_bars_of_an_ld() -> None:
    site = Site()
    base = 0x1000_0000
    assert code_of(lambda: site.fm.ld_read(4, 1, base, 4)) is Code.INVALID_INPUT  # no BAR yet
    site.fm.ld_config_write(4, 1, 0x10, base)
    site.fm.ld_config_write(4, 1, 0x04, 2)
    component = site.rack.mld.lds[1].component
    found = site.fm.ld_read(4, 1, base + 0x1000, 16)
    assert found == b"".join(
        component.read(0x1000 + i, 4).to_bytes(4, "little") for i in (0, 4, 8, 12)
    )
    assert len(site.fm.ld_read(4, 1, base, 4096)) == 4096
    site.fm.ld_write(4, 1, base, bytes(8))
    for address, length in ((base, 4100), (base, 3), (base + 2, 4), (base, 0), (base + 0xFFFC, 8)):
        call = lambda address=address, length=length: site.fm.ld_read(4, 1, address, length)  # noqa: E731
        assert code_of(call) is Code.INVALID_INPUT
    short = messages.LdMemoryAccess(4, (0xF << 12 | 1 << 23).to_bytes(3, "little"), 1, 4, base)
    payload = messages.LD_MEMORY.pack(short) + b"abc"
    refused = code_of(lambda: site.fm.request(FmOpcode.LD_MEMORY, payload))
    assert refused is Code.INVALID_PAYLOAD_LENGTH


def test_memory_of_logical_devices_is_moved_between_them() -> None:
    site = Site()
    found = site.fm.logical_devices(4)
    assert found == (8 * STEP, STEP, [STEP, 2 * STEP, 3 * STEP, 0])
    assert site.fm.allocate(4, 2, [STEP, 4 * STEP]) == [STEP, 4 * STEP]
    assert site.rack.mld.allocated == [1, 2, 1, 4]
    assert code_of(lambda: site.fm.allocate(4, 0, [2 * STEP])) is Code.INVALID_INPUT
    site.fm.bind(0, 0, 4, 3)
    assert code_of(lambda: site.fm.allocate(4, 3, [STEP])) is Code.INVALID_INPUT
    assert code_of(lambda: site.fm.allocate(4, 4, [STEP])) is Code.INVALID_INPUT
    assert site.rack.mld.allocated == [1, 2, 1, 4]
    with pytest.raises(LocalError, match="steps of 256 MiB"):
        site.fm.allocate(4, 0, [1])
    assert code_of(lambda: site.fm.logical_devices(2)) is Code.INVALID_INPUT


def test_quality_of_service_is_set_within_its_ranges() -> None:
    site = Site()
    qos = site.fm.qos(4)
    assert qos == (0, 10, 25, 8, 0, 64)
    assert site.fm.set_qos(4, qos._replace(moderate_percent=100)).moderate_percent == 100
    for wrong in (qos._replace(moderate_percent=101), qos._replace(telemetry=4)):
        assert code_of(lambda wrong=wrong: site.fm.set_qos(4, wrong)) is Code.INVALID_INPUT
    site.fm.set_bandwidth(4, 1, [128, 128])
    site.fm.set_bandwidth(4, 0, [255], limit=True)
    assert site.fm.bandwidth(4) == [0, 128, 128, 0]
    assert site.fm.bandwidth(4, limit=True) == [255, 0, 0, 0]
    assert code_of(lambda: site.fm.set_bandwidth(4, 0, [1])) is Code.INVALID_INPUT
    assert code_of(lambda: site.fm.set_bandwidth(4, 3, [0, 0])) is Code.INVALID_INPUT
    assert site.fm.tunnel(4, FmOpcode.QOS_STATUS) == b"\0"


def test_an_error_is_made_for_a_host_to_see() -> None:
    site = Site()
    virtual = site.switch.vcs(1)
    for vppb, port in ((2, virtual.vppb(2)), (None, virtual.upstream)):
        site.fm.generate_aer(1, vppb, 12, Severity.UNCORRECTABLE, b"header".ljust(32))
        aer = port.config["aer"]
        assert aer["uncorrectable_status.poisoned_tlp"] == 1
        assert aer["control.first_error"] == 12
        assert aer["header_log"].to_bytes(16, "little").startswith(b"header")
    other = site.switch.vcs(0).vppb(0).config["aer"]
    other["uncorrectable_mask.poisoned_tlp"] = 1
    site.fm.generate_aer(0, 0, 12, Severity.UNCORRECTABLE)
    assert (other["uncorrectable_status.poisoned_tlp"], other["control.first_error"]) == (1, 0)
    site.fm.generate_aer(0, 0, 6, Severity.CORRECTABLE)
    assert other["correctable_status.bad_tlp"] == 1
    for vcs, instance, error in ((1, 3, 1), (2, 1, 12), (1, 4, 12), (1, 3, 1 << 31 | 31)):
        payload = messages.AER.pack(messages.AerRequest(vcs, instance, error, bytes(32)))
        call = lambda payload=payload: site.fm.request(FmOpcode.GENERATE_AER, payload)  # noqa: E731
        assert code_of(call) is Code.INVALID_INPUT


def test_a_message_to_no_device_or_of_another_size_is_refused() -> None:
    site = Site()
    inner = Cci(FmOpcode.LD_INFO).pack()
    for port, target, size, code in (
        (5, 0, 12, Code.INVALID_INPUT),
        (6, 0, 12, Code.INVALID_INPUT),
        (0, 0, 12, Code.INVALID_INPUT),
        (4, 1, 12, Code.INVALID_INPUT),
        (4, 0, 11, Code.INVALID_PAYLOAD_LENGTH),
    ):
        payload = messages.TUNNEL.pack(messages.Tunnelled(port, target, size)) + inner
        call = lambda payload=payload: site.fm.request(FmOpcode.TUNNEL, payload)  # noqa: E731
        assert code_of(call) is code
    response = Cci(FmOpcode.LD_INFO, response=True).pack()
    payload = messages.TUNNEL.pack(messages.Tunnelled(4, 0, 12)) + response
    assert code_of(lambda: site.fm.request(FmOpcode.TUNNEL, payload)) is Code.INVALID_INPUT
    assert code_of(lambda: site.fm.tunnel(4, FmOpcode.BIND, bytes(6))) is Code.UNSUPPORTED


def test_the_message_type_chooses_the_commands() -> None:
    site = Site()
    identity = messages.IDENTITY.unpack(site.fm.request(FmOpcode.IDENTIFY, cci=True))
    assert (identity.vendor, identity.kind) == (0x1E98, 0)
    refused = code_of(lambda: site.fm.request(FmOpcode.IDENTIFY_SWITCH, cci=True))
    assert refused is Code.UNSUPPORTED
    with pytest.raises(FramingError):
        Session(site.manager).answer(MctpMessage(MessageType.FM_API, Cci(1, response=True).pack()))


FIXED = [
    (opcode, command.lengths)
    for opcode, command in Manager(Rack().switch).component.commands.items()
]


@pytest.mark.parametrize(("opcode", "lengths"), FIXED)
def test_a_command_of_another_length_is_refused_with_that_code(opcode: int, lengths: range) -> None:
    site = Site()
    for size in {lengths.start - 1, lengths.stop if len(lengths) == 1 else -1} - {-1}:
        call = lambda size=size: site.fm.request(opcode, bytes(size))  # noqa: E731
        assert code_of(call) is Code.INVALID_PAYLOAD_LENGTH


@pytest.mark.parametrize("opcode", [0x0000, 0x5104, 0x5204, 0x5303, 0x5400, 0x5500, 0xFFFF])
def test_an_opcode_that_is_none_of_the_switch_is_unsupported(opcode: int) -> None:
    assert code_of(lambda: Site().fm.request(opcode)) is Code.UNSUPPORTED


@pytest.mark.parametrize(
    ("opcode", "payload"),
    [
        (FmOpcode.PORT_STATE, b"\2\0"),
        (FmOpcode.VCS_INFO, b"\0\1\2\0"),
    ],
)
def test_a_count_that_is_not_that_of_its_list_is_a_wrong_length(
    opcode: int, payload: bytes
) -> None:
    refused = code_of(lambda: Site().fm.request(opcode, payload))
    assert refused is Code.INVALID_PAYLOAD_LENGTH


def _state(rack: Rack) -> object:
    """Return all state that commands may change."""
    ports = [
        (bytes(p.ppb.config["pcie"]), p.in_reset, sorted(map(str, p.bound)))
        for p in rack.switch.ports
    ]
    slots = [bytes(v.config["pcie"]) for s in rack.switch.virtual for v in s.vppbs]
    mld = rack.mld
    return (ports, slots, rack.bound(), mld.allocated, mld.qos, mld.bandwidth, mld.bandwidth_limit)


SMALL = st.integers(0, 7)
BINDING = st.builds(messages.BindRequest, SMALL, SMALL, SMALL, SMALL | st.just(messages.NO_LD)).map(
    messages.BIND.pack
)
UNBINDING = st.builds(messages.UnbindRequest, SMALL, SMALL, SMALL).map(messages.UNBIND.pack)
LD_STEPS = st.lists(st.integers(0, 9), min_size=1, max_size=5)
REQUEST = (
    st.tuples(st.just(int(FmOpcode.BIND)), BINDING)
    | st.tuples(st.just(int(FmOpcode.UNBIND)), UNBINDING)
    | st.tuples(st.just(int(FmOpcode.PORT_CONTROL)), st.tuples(SMALL, SMALL).map(bytes))
    | st.tuples(st.sampled_from(FmOpcode).map(int), st.binary(max_size=48))
    | st.tuples(st.just(int(FmOpcode.ABORT)), st.just(b""))
)


REFUSALS = {
    Code.INVALID_INPUT,
    Code.UNSUPPORTED,
    Code.BUSY,
    Code.INVALID_PAYLOAD_LENGTH,
    Code.ABORTED,
}


@settings(max_examples=60)
@given(st.lists(REQUEST | st.tuples(SMALL, LD_STEPS), max_size=16))
def test_random_commands_are_done_or_refused_and_then_nothing_has_changed(
    requests: list[tuple[int, bytes | list[int]]],
) -> None:
    site = Site()
    codes: set[Code] = set()
    unchanged: list[bool] = []
    for opcode, payload in requests:
        before = _state(site.rack)
        try:
            if isinstance(payload, bytes):
                site.fm.request(opcode, payload)
            else:
                site.fm.allocate(4, opcode, [steps * STEP for steps in payload])
        except CommandError as refused:
            codes.add(refused.code)
            unchanged.append(_state(site.rack) == before)
    assert all(unchanged)
    assert codes <= REFUSALS
    bound = site.rack.bound()
    ends = [(port, ld) for _, _, port, ld in bound]
    assert len(ends) == len(set(ends))
    assert sum(site.rack.mld.allocated) <= 8
    assert {
        (v.number, vppb.vppb)
        for v in site.fm.virtual_switches()
        for vppb in v.vppbs
        if vppb.port is not None
    } == {(vcs, vppb) for vcs, vppb, _, _ in bound}
