# SPDX-License-Identifier: BSD-3-Clause
"""Checks of each injected packet (IBTA 9.6.1): one that fails is dropped and counted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import hypothesis
import pytest
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet

from nupa.base.errors import LocalError
from nupa.packet.scapy.inject import Outcome, Reason, Verdict, frame_of, inject
from nupa.packet.scapy.transport import AETH, BTH, DETH, GRH
from nupa.verbs import QPAttr
from nupa.verbs import enums as e
from tests.packet.inject.scene import Scene

MakeScene = Callable[..., Scene]

# One scene takes all examples: making one takes longer than an example.
ANY = hypothesis.settings(
    deadline=None,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)


def dropped(scene: Scene, packet: Packet | bytes, reason: Reason, counter: str | None) -> None:
    """Asserts that a packet is dropped for this reason and counted, and changes nothing."""
    psn = scene.psn()
    scene.end.recv()
    scene.counted()
    verdict = scene.inject(packet)
    assert (verdict.outcome, verdict.reason) == (Outcome.DROPPED, reason)
    expected = {counter: 1} if counter else {}
    assert scene.counted() == {"rx_injected": 1, **expected}
    assert scene.end.nothing()
    assert scene.psn() == psn


def test_a_wrong_icrc_is_dropped_and_counted(scene: Scene) -> None:
    packet = scene.bth("SEND_ONLY", icrc=0x12345678) / b"x"
    dropped(scene, packet, Reason.ICRC, "rx_icrc_errors")


@pytest.mark.parametrize("bit", [0, 7, 100, 500])
def test_one_wrong_bit_behind_the_ip_header_is_a_wrong_icrc(scene: Scene, bit: int) -> None:
    frame = bytearray(
        frame_of(scene.fabric, scene.injector.host, scene.bth("SEND_ONLY") / bytes(60))
    )
    at = 14 + 20 + 8 + 12 + bit // 8  # in the payload
    frame[at] ^= 1 << bit % 8
    dropped(scene, bytes(frame), Reason.ICRC, "rx_icrc_errors")


def test_a_version_that_is_not_0_is_dropped(scene: Scene) -> None:
    dropped(scene, scene.bth("SEND_ONLY", version=1) / b"x", Reason.VERSION, "rx_invalid")


@pytest.mark.parametrize("pkey", [0x0000, 0x8000, 0x1234, 0x7FFE, 0xFFFE])
def test_another_partition_is_dropped_and_counted(scene: Scene, pkey: int) -> None:
    dropped(scene, scene.bth("SEND_ONLY", pkey=pkey) / b"x", Reason.PKEY, "pkey_violations")


@pytest.mark.parametrize("pkey", [0x7FFF, 0xFFFF])
def test_full_and_limited_members_of_the_partition_are_let_in(scene: Scene, pkey: int) -> None:
    scene.end.recv()
    assert scene.inject(scene.bth("SEND_ONLY", pkey=pkey) / b"x").executed


@pytest.mark.parametrize("code", [0x24, 0x44, 0x64, 0xA4, 0xE4])
def test_an_opcode_of_another_service_is_dropped(scene: Scene, code: int) -> None:
    dropped(scene, scene.bth(code) / bytes(16), Reason.OPCODE, "rx_invalid")


def test_a_congestion_notification_is_not_taken(scene: Scene) -> None:
    dropped(scene, scene.bth(0x81) / bytes(16), Reason.UNSUPPORTED, None)


def test_a_qp_that_is_not_there_gets_nothing(scene: Scene) -> None:
    packet = scene.bth("SEND_ONLY", dqpn=scene.end.qp.qp_num + 77) / b"x"
    dropped(scene, packet, Reason.NO_QP, "rx_invalid")


@pytest.mark.parametrize("state", ["RESET", "INIT", "ERR"])
def test_a_qp_that_is_not_ready_gets_nothing(scene: Scene, state: str) -> None:
    packet = scene.bth("SEND_ONLY") / b"x"
    if state == "ERR":
        scene.end.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
    else:
        scene.end.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
    if state == "INIT":
        scene.end.qp.to_init(QPAttr(port_num=1))
    verdict = scene.inject(packet)
    assert verdict.reason is Reason.NO_QP
    assert scene.counted() == {"rx_injected": 1, "rx_invalid": 1}


def test_a_partner_elsewhere_is_not_believed(scene: Scene) -> None:
    packet = IP(src="10.0.0.3") / UDP() / scene.bth("SEND_ONLY") / b"x"
    dropped(scene, packet, Reason.SOURCE, "rx_invalid")


def test_a_wrong_checksum_of_ipv4_is_dropped(scene: Scene) -> None:
    packet = IP(chksum=0xBAD) / UDP() / scene.bth("SEND_ONLY") / b"x"
    psn = scene.psn()
    assert scene.inject(packet).reason is Reason.MALFORMED
    assert scene.psn() == psn


def test_roce_v1_is_not_taken(scene: Scene) -> None:
    grh = GRH(sgid="::ffff:10.0.0.1", dgid="::ffff:10.0.0.2")
    packet = Ether(type=0x8915) / grh / scene.bth("SEND_ONLY") / b"x"
    assert scene.inject(packet).reason is Reason.MALFORMED


# --- where it goes --------------------------------------------------------------------------------


def good(scene: Scene) -> Packet:
    scene.end.recv()
    return scene.bth("SEND_ONLY") / b"hello"


@pytest.mark.parametrize(
    "below",
    [
        UDP(),
        UDP(sport=50000),
        IP() / UDP(),
        IP(src="10.0.0.1", dst="10.0.0.2", ttl=9, tos=7) / UDP(),
        IPv6() / UDP(),
        IPv6(src="::ffff:10.0.0.1", dst="::ffff:10.0.0.2") / UDP(),
        IPv6(src="fd4e:5550:4100::1", dst="fd4e:5550:4100::2") / UDP(),
        Ether() / IP() / UDP(),
        Ether() / IPv6() / UDP(),
        Ether() / Dot1Q(vlan=5) / IP() / UDP(),
        Ether(src="02:00:0a:00:00:01", dst="02:00:0a:00:00:02") / IP(dst="10.0.0.2") / UDP(),
    ],
    ids=lambda packet: packet.summary(),
)
def test_layers_below_that_are_missing_are_filled_in(scene: Scene, below: Packet) -> None:
    packet = below / good(scene)
    given = bytes(packet[BTH].payload)
    assert scene.inject(packet).executed
    assert scene.end.wait().byte_len == len(given)


@pytest.mark.parametrize("port", ["host0", 0, "host0/1", "switch0/1", "host0-switch0"])
def test_a_packet_enters_at_any_name_of_the_port(scene: Scene, port: str | int) -> None:
    packet = good(scene)
    assert inject(port, packet, fabric=scene.fabric).executed


def test_a_port_brings_its_fabric(scene: Scene) -> None:
    assert inject(scene.fabric.port("host0"), good(scene)).executed


def test_a_port_that_is_not_there_is_the_callers_error(scene: Scene) -> None:
    with pytest.raises(LocalError, match="no port, host or link is named 'host9'"):
        inject("host9", good(scene), fabric=scene.fabric)


def test_to_says_the_host_where_the_number_of_the_qp_does_not(scene: Scene) -> None:
    stray = BTH(opcode="RC_SEND_ONLY", dqpn=0x770001) / b"x"
    with pytest.raises(LocalError, match="no process of 'local' has the QP 0x770001"):
        scene.inject(stray)
    verdict = inject(scene.injector, stray, to="host1")
    assert (verdict.reason, verdict.expected_psn) == (Reason.NO_QP, None)


def test_an_address_of_nobody_is_no_host(scene: Scene) -> None:
    packet = IP(dst="10.0.0.99") / UDP() / scene.bth("SEND_ONLY")
    assert scene.inject(packet).reason is Reason.NO_HOST


def test_the_qp_of_another_host_than_the_address_is_none(scene: Scene) -> None:
    assert inject(scene.injector, scene.bth("SEND_ONLY"), to="host2").reason is Reason.NO_QP


@pytest.mark.parametrize("host", ["host0", "host1"])
def test_a_port_that_is_down_lets_nothing_through(scene: Scene, host: str) -> None:
    packet = good(scene)
    scene.fabric.set_port(host, up=False)
    verdict = scene.inject(packet)
    assert (verdict.reason, str(verdict)) == (Reason.PATH, "dropped: a port on its way is down")
    scene.fabric.set_port(host, up=True)
    assert scene.inject(packet).executed


@pytest.mark.parametrize("qpn", [0, 1, 0xFFFFFF])
def test_management_and_multicast_are_not_taken(scene: Scene, qpn: int) -> None:
    packet = BTH(opcode="UD_SEND_ONLY", dqpn=qpn) / DETH() / bytes(256)
    reason = Reason.UNSUPPORTED if qpn else Reason.NO_QP
    assert inject(scene.injector, packet, to="host1").reason is reason


def test_a_packet_without_a_bth_is_the_callers_error(scene: Scene) -> None:
    with pytest.raises(LocalError, match="the packet has no BTH"):
        scene.inject(IP() / UDP() / b"x")


def test_a_frame_that_is_too_long_is_the_callers_error(scene: Scene) -> None:
    most = scene.injector.max_bytes
    assert scene.injector.send(bytes(most)).reason is Reason.MALFORMED
    with pytest.raises(LocalError, match=f"at most {most} are taken"):
        scene.injector.send(bytes(most + 1))


def test_an_injector_that_is_closed_says_so(scene: Scene) -> None:
    scene.injector.close()
    with pytest.raises(LocalError, match="the injector is closed"):
        scene.injector.expected_psn(1)


def test_a_datagram_qp_and_one_that_is_not_there_expect_no_psn(make_scene: MakeScene) -> None:
    scene = make_scene(e.IBV_QPT_UD)
    for qpn in (scene.end.qp.qp_num, scene.end.qp.qp_num + 9, 5):
        with pytest.raises(LocalError, match="expects no PSN"):
            scene.injector.expected_psn(qpn)


# --- any bytes ------------------------------------------------------------------------------------


def test_a_packet_that_is_cut_off_anywhere_is_dropped(scene: Scene) -> None:
    packet = scene.bth("RDMA_WRITE_ONLY") / scene.reth(0, 8) / b"12345678"
    frame = frame_of(scene.fabric, scene.injector.host, packet)
    for length in range(len(frame)):
        assert scene.inject(frame[:length]).reason is Reason.MALFORMED, length
    assert scene.inject(frame).executed


@hypothesis.given(data=st.binary(max_size=200))
@hypothesis.settings(ANY, max_examples=100)
def test_any_bytes_have_a_verdict(scene: Scene, data: bytes) -> None:
    below = Ether(dst="02:00:0a:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(dport=4791)
    for frame in (data, bytes(below / data)):
        assert scene.inject(frame).dropped


@pytest.fixture
def all_scenes(make_scene: MakeScene) -> list[Scene]:
    return [make_scene(kind) for kind in (e.IBV_QPT_RC, e.IBV_QPT_UC, e.IBV_QPT_UD)]


@hypothesis.given(
    which=st.integers(0, 2),
    code=st.integers(0, 255),
    psn=st.integers(-3, 3),
    headers=st.binary(max_size=40),
    payload=st.integers(0, 600),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "padcount": st.integers(0, 3),
            "pad": st.binary(max_size=5),
            "solicited": st.just(1),
            "version": st.just(1),
            "pkey": st.just(0x1234),
        },
    ),
)
@hypothesis.settings(ANY, max_examples=300)
def test_any_packet_with_a_right_icrc_has_a_verdict(
    all_scenes: list[Scene],
    which: int,
    code: int,
    psn: int,
    headers: bytes,
    payload: int,
    fields: dict[str, int | bytes],
) -> None:
    scene = all_scenes[which]
    if scene.service != "UD" and scene.end.state() is e.IBV_QPS_ERR:
        scene.reconnect(psn=100)
    expected = 0 if scene.service == "UD" else scene.psn(psn)
    verdict = scene.inject(scene.bth(code, expected, **fields) / (headers + bytes(payload)))
    assert isinstance(verdict, Verdict)
    assert verdict.reason not in (Reason.ICRC, Reason.PATH, Reason.NO_HOST)


@hypothesis.given(seed=st.randoms(use_true_random=False), flips=st.integers(1, 8))
@hypothesis.settings(ANY, max_examples=100)
def test_a_mutated_packet_has_a_verdict(scene: Scene, seed: Random, flips: int) -> None:
    if scene.end.state() is e.IBV_QPS_ERR:
        scene.reconnect(psn=100)
    packet = scene.bth("RDMA_WRITE_ONLY") / scene.reth(0, 64) / bytes(64)
    frame = bytearray(frame_of(scene.fabric, scene.injector.host, packet))
    for _ in range(flips):
        at = seed.randrange(len(frame))
        frame[at] ^= 1 << seed.randrange(8)
    assert isinstance(scene.inject(bytes(frame)), Verdict)


def test_an_answer_that_nobody_waits_for_is_dropped(scene: Scene) -> None:
    packet = scene.bth("ACKNOWLEDGE") / AETH(syndrome=0x1F)
    assert scene.inject(packet).reason is Reason.UNASKED
    packet = scene.bth("RDMA_READ_RESPONSE_ONLY") / AETH(syndrome=0x1F) / b"data"
    assert scene.inject(packet).reason is Reason.UNASKED
