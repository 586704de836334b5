# SPDX-License-Identifier: BSD-3-Clause
"""Wires of medium RAW: packet sockets beside UDP sockets, and what the identification is worth."""

from __future__ import annotations

import errno
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from scapy.layers.inet import IP, UDP
from scapy.packet import Packet, Raw

from nupa.fabric import Fabric, LocalError, NupaError
from nupa.packet.scapy.transport import BTH, DETH
from nupa.topology.file import parse
from nupa.topology.topology import WireConfig, star
from nupa.verbs import Context, RecvWR
from nupa.verbs import enums as e
from tests.unit.conftest import End
from tests.unit.wire import mads
from tests.unit.wire.keeping import (
    PORT,
    WAIT_S,
    Far,
    Member,
    address,
    await_wire,
    expect,
    mad_packet,
    packet,
    send_to,
)

OWN, THERE = address(0), address(1)
HOSTS = 3
SO_DETACH_FILTER = 27
ETH_P_IP = 0x0800
GRH_BYTES = 40
DREQ, DREP = 0x15, 0x16


def may_open() -> bool:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except PermissionError:
        return False
    return True


needs_cap_net_raw = pytest.mark.skipif(not may_open(), reason="no CAP_NET_RAW")


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far(THERE, OWN)
    yield made
    made.close()


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    topology = star(HOSTS).with_wires((WireConfig("far", THERE, OWN, raw=True),))
    with Fabric(topology=topology) as made:
        yield made


@pytest.fixture
def members(fabric: Fabric) -> Iterator[list[Member]]:
    contexts = [Context(fabric=fabric, host=host) for host in range(HOSTS)]
    joined = [Member.of(fabric, host) for host in range(HOSTS)]
    yield joined
    for member in joined:
        member.close()
    for context in contexts:
        context.close()


def numbered(bth: Packet, number: int, counted: int | None = None) -> bytes:
    """Returns an IP packet of identification *number* whose ICRC is that of *counted*."""
    head = IP(src=THERE, dst=OWN, id=number, flags="DF") / UDP(sport=PORT, dport=PORT, chksum=0)
    whole = bytes(head / bth)
    if counted is None or counted == number:
        return whole
    return whole[:-4] + numbered(bth, counted)[-4:]


def inject(*packets: bytes) -> None:
    """Sends IP packets as they are."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for each in packets:
            raw.sendto(each, (OWN, 0))


# --- what wrong packets do ----------------------------------------------------------------


def datagram(end: End, text: bytes) -> Packet:
    head = BTH(opcode="UD_SEND_ONLY", dqpn=end.qp.qp_num, psn=1, pkey=0xFFFF)
    return head / DETH(qkey=end.QKEY, srcqp=77) / Raw(text)


@needs_cap_net_raw
@pytest.mark.parametrize("raw", [False, True])
def test_a_packet_that_is_right_for_another_identification_passes_udp_only(raw: bool) -> None:
    # Its ICRC fits identification 0x1234, and it has 0.  UDP hides that: for the first 16 packets
    # of a sender any identification will do (csrc/packet/icrc.h).
    topology = star(1).with_wires((WireConfig("far", THERE, OWN, raw=raw),))
    with Fabric(topology=topology) as fabric:
        end = End(fabric, 0, e.IBV_QPT_UD)
        for number in range(4):
            end.qp.post_recv(RecvWR(number, sg=[end.mr.sge(256 * number, 256)]))
        wire = await_wire(fabric, lambda wire: wire.state != "DEAD")
        assert (wire.medium, wire.exact) == (("RAW", True) if raw else ("UDP", False))
        wrong = wire.counters["icrc_errors"]
        inject(numbered(datagram(end, b"forged"[:4]), 0, counted=0x1234))
        if raw:
            await_wire(fabric, lambda wire: wire.counters["icrc_errors"] == wrong + 1)
        else:
            end.wait_ok()
        # Right ones pass either, of any identification.
        inject(*(numbered(datagram(end, b"good"), number) for number in (0, 0x1234, 0xFFFF)))
        end.wait_ok(3)
        assert end.mr.read(4, GRH_BYTES) == (b"good" if raw else b"forg")
        assert fabric.wires.of("far").counters["icrc_errors"] == wrong + raw
        end.ctx.close()


@needs_cap_net_raw
def test_management_datagrams_are_judged_exactly(fabric: Fabric, far: Far) -> None:
    while True:
        probe, _ = far.receive()
        mad = bytes(probe[BTH].payload.payload)[:256]
        if mad[17] == DREQ:
            break
    answer = mads.refusal(mad)
    assert answer is not None
    wrong = fabric.wires.of("far").counters["icrc_errors"]
    inject(numbered(mad_packet(answer), 0, counted=0x1234))
    wire = await_wire(fabric, lambda wire: wire.counters["icrc_errors"] == wrong + 1)
    assert wire.rtt_ns == 0
    inject(numbered(mad_packet(answer), 0x1234))
    await_wire(fabric, lambda wire: wire.state == "UP" and wire.rtt_ns > 0)
    # Theirs is answered once, though two sockets of the keeper get it.
    theirs = bytearray(mad)
    theirs[24:28] = b"\x12\x34\x56\x00"
    for last in (1, 2):
        theirs[27] = last
        far.send(packet(THERE, OWN, mad_packet(bytes(theirs))))
    replies: list[int] = []
    while 2 not in replies:
        found, _ = far.receive()
        reply = bytes(found[BTH].payload.payload)[:256]
        if reply[17] == DREP:
            replies.append(reply[31])
    assert replies == [1, 2]


# --- sockets ------------------------------------------------------------------------------


@needs_cap_net_raw
def test_each_process_gets_the_packets_of_its_slot(far: Far, members: list[Member]) -> None:
    for member in reversed(members):
        far.send(packet(THERE, OWN, send_to(member.slot)))
    for member in members:
        udp, raw = member.udp
        assert packet(THERE, OWN, send_to(member.slot)) in raw.recv(8192)
        for nothing in (udp, raw):
            nothing.setblocking(False)
            with pytest.raises(BlockingIOError):
                nothing.recv(8192)


@needs_cap_net_raw
def test_the_filter_of_a_packet_socket_is_for_good(far: Far, members: list[Member]) -> None:
    raw = members[0].udp[1]
    with pytest.raises(PermissionError):
        raw.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    raw.bind(("lo", ETH_P_IP))
    for other in members[1:]:
        far.send(packet(THERE, OWN, send_to(other.slot)))
        other.udp[1].recv(8192)
    raw.setblocking(False)
    with pytest.raises(BlockingIOError):
        raw.recv(8192)


@needs_cap_net_raw
def test_packets_to_nobody_and_from_elsewhere_are_counted_as_by_udp(fabric: Fabric) -> None:
    before = fabric.wires.of("far").counters
    far, elsewhere = Far(THERE, OWN), Far(address(2), OWN)
    far.send(packet(THERE, OWN, send_to(200)))
    far.send(b"short")
    elsewhere.send(packet(elsewhere.own, OWN, send_to(1)))
    await_wire(
        fabric,
        lambda wire: (
            wire.counters["foreign"] == before["foreign"] + 2
            and wire.counters["malformed"] == before["malformed"] + 1
        ),
    )
    far.close()
    elsewhere.close()


@needs_cap_net_raw
def test_both_media_share_an_address(far: Far) -> None:
    with Fabric(hosts=3) as fabric, Context(fabric=fabric, host=0):
        elsewhere = Far(address(2), OWN)
        fabric.wires.add("host1", THERE, listen=OWN, raw=True)
        fabric.wires.add("host2", elsewhere.own, listen=OWN)
        by_raw, by_udp = Member.of(fabric, 0, "host1"), Member.of(fabric, 0, "host2")
        assert [len(member.udp) for member in (by_raw, by_udp)] == [2, 1]
        for _ in range(2):
            for source, member in ((far, by_raw), (elsewhere, by_udp)):
                sent = packet(source.own, OWN, send_to(member.slot))
                source.send(sent)
                assert sent in member.udp[-1].recv(8192)
        fabric.wires.remove("host1")
        expect(elsewhere, by_udp, 2)
        for each in (by_raw, by_udp, elsewhere):
            each.close()


# --- wishes -------------------------------------------------------------------------------


def test_ipv6_has_no_such_wire() -> None:
    with Fabric(hosts=2) as fabric:
        why = r"IPv6 has no identification.* leave --raw out"
        with pytest.raises(NupaError, match=why) as said:
            fabric.wires.add("host1", "::2", listen="::1", raw=True)
        assert said.value.errno == errno.EAFNOSUPPORT
        assert list(fabric.wires) == []


def test_raw_sockets_or_frames() -> None:
    with Fabric(hosts=2) as fabric, pytest.raises(LocalError, match="not both"):
        fabric.wires.add("host1", THERE, listen=OWN, frames="/nowhere", raw=True)


def test_a_topology_says_raw() -> None:
    text = '[[switch]]\nname = "s"\nports = 4\n[[wire]]\nhost = "far"\naddress = "192.0.2.7"\n'
    for raw in (False, True):
        made = parse(f"{text}raw = {str(raw).lower()}\n".encode(), "lab.toml", "lab")
        assert made.wires == (WireConfig("far", "192.0.2.7", raw=raw),)


_TRY = f"""
from nupa.fabric import Fabric
with Fabric(hosts=2) as fabric:
    try:
        fabric.wires.add("host1", "{THERE}", listen="{OWN}", raw=True)
    except Exception as error:
        print(error.errno, error)
    print(len(fabric.wires), fabric.wires.add("host1", "{THERE}", listen="{OWN}").medium)
"""


def test_without_the_capability_the_error_says_what_to_do() -> None:
    prefix = []
    if may_open():
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("setpriv (util-linux) is missing")
        prefix = [setpriv, "--bounding-set=-net_raw", "--inh-caps=-net_raw", "--"]
    done = subprocess.run(
        [*prefix, sys.executable, "-P", "-c", _TRY], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    said, after = done.stdout.splitlines()
    assert said.startswith(f"{errno.EPERM} ")
    assert "setcap cap_net_raw+ep /" in said
    assert "leave --raw out" in said
    assert after == "0 UDP"
