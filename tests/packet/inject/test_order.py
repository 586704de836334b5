# SPDX-License-Identifier: BSD-3-Clause
"""PSNs, opcodes and lengths that do not follow the packets before: IBTA 9.7.4.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scapy.packet import Packet

from nupa.packet.scapy.inject import Reason
from nupa.packet.scapy.transport import ImmDt
from nupa.verbs import SendWR
from nupa.verbs import enums as e
from tests.packet.inject.scene import FIRST_PSN, MTU_BYTES, Scene

MakeScene = Callable[..., Scene]
WHOLE = bytes(MTU_BYTES)


# --- packet sequence numbers ----------------------------------------------------------------------


def test_a_gap_is_naked_once_and_then_dropped_until_it_is_filled(scene: Scene) -> None:
    scene.end.recv(1)
    scene.end.recv(2)
    late = scene.bth("SEND_ONLY", scene.psn(1)) / b"late"
    verdict = scene.inject(late)
    assert (verdict.naked, verdict.syndrome) == (True, 0x60)
    assert verdict.syndrome_name == "NAK_PSN_SEQUENCE_ERROR"
    again = scene.inject(late)
    assert (again.dropped, again.reason) == (True, Reason.PSN)
    assert scene.end.nothing()
    assert scene.inject(scene.bth("SEND_ONLY") / b"first").executed
    assert scene.inject(late).executed
    assert [scene.end.wait().byte_len for _ in range(2)] == [5, 4]
    counted = scene.counted()
    assert (counted["rx_injected"], counted["rx_out_of_sequence"]) == (4, 2)


def test_a_gap_after_a_gap_was_filled_is_naked_again(scene: Scene) -> None:
    scene.end.recv()
    assert scene.inject(scene.bth("SEND_ONLY", scene.psn(5)) / b"x").naked
    assert scene.inject(scene.bth("SEND_ONLY") / b"x").executed
    assert scene.inject(scene.bth("SEND_ONLY", scene.psn(5)) / b"x").syndrome == 0x60


def test_a_duplicate_is_acknowledged_and_not_executed_again(scene: Scene) -> None:
    scene.end.recv(1)
    scene.end.recv(2)
    packet = scene.bth("SEND_ONLY") / b"once"
    assert scene.inject(packet).executed
    assert scene.inject(packet).reason is Reason.DUPLICATE
    assert scene.end.wait().wr_id == 1
    assert scene.end.nothing()
    assert scene.counted() == {"rx_injected": 2, "duplicate_request": 1}


def test_a_duplicate_write_leaves_memory_alone(scene: Scene) -> None:
    packet = scene.bth("RDMA_WRITE_ONLY") / scene.reth(0, 5) / b"hello"
    assert scene.inject(packet).executed
    scene.end.mr.write(b"other")
    assert scene.inject(packet).reason is Reason.DUPLICATE
    assert scene.end.mr.read(5) == b"other"


def test_a_duplicate_atomic_is_not_executed_again(scene: Scene) -> None:
    packet = scene.bth("FETCH_ADD") / scene.atomic(0, swap=3)
    assert scene.inject(packet).executed
    scene.inject(packet)
    assert scene.end.mr.read(8) == (3).to_bytes(8, "little")


@pytest.mark.parametrize("distance", [1, 0x7FFFFE])
def test_psns_are_compared_around_the_circle(scene: Scene, distance: int) -> None:
    scene.end.recv()
    behind = (FIRST_PSN - distance) & 0xFFFFFF
    assert scene.inject(scene.bth("SEND_ONLY", behind) / b"x").reason is Reason.DUPLICATE
    ahead = (FIRST_PSN + distance) & 0xFFFFFF
    assert scene.inject(scene.bth("SEND_ONLY", ahead) / b"x").syndrome == 0x60


def test_what_was_injected_is_a_duplicate_when_the_partner_sends_it(scene: Scene) -> None:
    scene.end.recv(1)
    scene.end.recv(2)
    assert scene.inject(scene.bth("SEND_ONLY") / b"in its name").executed
    assert scene.end.wait().byte_len == 11
    wr = SendWR(5, sg=[scene.partner.mr.sge(0, 8)], send_flags=e.IBV_SEND_SIGNALED)
    scene.partner.qp.post_send(wr)
    wc = scene.partner.wait()
    assert (wc.wr_id, wc.status) == (5, e.IBV_WC_SUCCESS)
    assert scene.end.nothing()


# --- opcodes in order -----------------------------------------------------------------------------


def opcodes_of(scene: Scene, names: list[str]) -> list[Packet]:
    """Makes packets of these opcodes with PSNs in order; first and middle ones are full."""
    packets: list[Packet] = []
    for i, name in enumerate(names):
        packet = scene.bth(name, scene.psn(i))
        if name.startswith("RDMA_READ"):
            packets.append(packet / scene.reth(0, 8))
            continue
        if name.startswith("RDMA_WRITE_FIRST"):
            packet /= scene.reth(0, 2 * MTU_BYTES + 4)
        elif name.startswith("RDMA_WRITE_ONLY"):
            packet /= scene.reth(0, 4)
        if name.startswith("FETCH"):
            packets.append(packet / scene.atomic(0, 1))
            continue
        whole = name.endswith(("FIRST", "MIDDLE"))
        packets.append(packet / (WHOLE if whole else b"tail"))
    return packets


@pytest.mark.parametrize(
    "names",
    [
        ["SEND_MIDDLE"],
        ["SEND_LAST"],
        ["SEND_ONLY", "SEND_LAST"],
        ["SEND_FIRST", "SEND_FIRST"],
        ["SEND_FIRST", "SEND_ONLY"],
        ["SEND_FIRST", "RDMA_WRITE_LAST"],
        ["SEND_FIRST", "RDMA_WRITE_ONLY"],
        ["SEND_FIRST", "RDMA_READ_REQUEST"],
        ["SEND_FIRST", "SEND_LAST", "SEND_LAST"],
        ["RDMA_WRITE_MIDDLE"],
        ["RDMA_WRITE_LAST"],
        ["RDMA_WRITE_FIRST", "RDMA_WRITE_FIRST"],
        ["RDMA_WRITE_FIRST", "RDMA_WRITE_ONLY"],
        ["RDMA_WRITE_FIRST", "SEND_MIDDLE"],
        ["RDMA_WRITE_FIRST", "SEND_ONLY"],
        ["RDMA_WRITE_FIRST", "FETCH_ADD"],
        ["RDMA_WRITE_FIRST", "RDMA_READ_REQUEST"],
        ["RDMA_WRITE_ONLY", "RDMA_WRITE_MIDDLE"],
        ["RDMA_WRITE_FIRST", "RDMA_WRITE_MIDDLE", "RDMA_WRITE_LAST", "RDMA_WRITE_LAST"],
    ],
    ids=" ".join,
)
def test_a_broken_sequence_of_opcodes_is_an_invalid_request(scene: Scene, names: list[str]) -> None:
    for i in range(4):
        scene.end.recv(i, i * 1024, 1024)
    *good, bad = opcodes_of(scene, names)
    for packet in good:
        assert scene.inject(packet).executed
    verdict = scene.inject(bad)
    assert (verdict.syndrome, verdict.syndrome_name) == (0x61, "NAK_INVALID_REQUEST")
    assert scene.end.state() is e.IBV_QPS_ERR


def test_a_reset_forgets_a_write_that_had_begun(scene: Scene) -> None:
    first, middle = opcodes_of(scene, ["RDMA_WRITE_FIRST", "RDMA_WRITE_MIDDLE"])
    assert scene.inject(first).executed
    scene.reconnect(psn=scene.psn())
    assert scene.inject(middle).syndrome == 0x61


@pytest.mark.parametrize("code", [0x15, 0x18, 0x1B, 0x1E, 0x1F])
def test_an_opcode_that_is_none_is_an_invalid_request(scene: Scene, code: int) -> None:
    assert scene.inject(scene.bth(code) / b"abcd").syndrome_name == "NAK_INVALID_REQUEST"


# --- lengths --------------------------------------------------------------------------------------


def broken_lengths(scene: Scene) -> dict[str, Packet]:
    reth, imm = scene.reth, ImmDt(data=1)
    return {
        "only longer than the MTU": scene.bth("SEND_ONLY") / (WHOLE + b"long"),
        "first shorter than the MTU": scene.bth("SEND_FIRST") / WHOLE[4:],
        "first longer than the MTU": scene.bth("SEND_FIRST") / (WHOLE + b"long"),
        "write shorter than its RETH": scene.bth("RDMA_WRITE_ONLY") / reth(0, 8) / b"1234",
        "write longer than its RETH": scene.bth("RDMA_WRITE_ONLY") / reth(0, 3) / b"1234",
        "first has it all": scene.bth("RDMA_WRITE_FIRST") / reth(0, MTU_BYTES) / WHOLE,
        "immediate and nothing of what the RETH says": scene.bth("RDMA_WRITE_ONLY_WITH_IMMEDIATE")
        / reth(0, 4)
        / imm,
        "read with a payload": scene.bth("RDMA_READ_REQUEST") / reth(0, 4) / b"1234",
        "atomic with a payload": scene.bth("FETCH_ADD") / scene.atomic() / b"1234",
        "atomic write of four bytes": scene.bth("ATOMIC_WRITE") / reth(0, 4) / b"1234",
        "more than 2 GiB": scene.bth("RDMA_READ_REQUEST") / reth(0, (1 << 31) + 1),
        "no padding": scene.bth("SEND_ONLY", padcount=0, pad=b"") / b"12345",
    }


@pytest.mark.parametrize("which", range(12))
def test_a_length_that_the_opcode_does_not_have_is_an_invalid_request(
    scene: Scene, which: int
) -> None:
    scene.end.recv()
    name, packet = list(broken_lengths(scene).items())[which]
    assert scene.inject(packet).syndrome_name == "NAK_INVALID_REQUEST", name
    assert scene.end.mr.read(16) == bytes(16)


def test_a_write_has_to_end_where_its_reth_says(scene: Scene) -> None:
    first = scene.bth("RDMA_WRITE_FIRST") / scene.reth(0, MTU_BYTES + 8) / WHOLE
    assert scene.inject(first).executed
    assert scene.inject(scene.bth("RDMA_WRITE_LAST") / b"1234").syndrome_name == (
        "NAK_INVALID_REQUEST"
    )


def test_the_mtu_is_the_paths(make_scene: MakeScene) -> None:
    scene = make_scene(mtu=e.IBV_MTU_1024)
    scene.end.recv()
    assert scene.inject(scene.bth("SEND_FIRST") / bytes(1024)).executed
    assert scene.inject(scene.bth("SEND_LAST") / bytes(1024)).executed
    assert scene.end.wait().byte_len == 2048
