# SPDX-License-Identifier: BSD-3-Clause
"""The keeper of a wire: which process gets a packet, QP 1, and what it refuses."""

from __future__ import annotations

import errno
import ipaddress
import json
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from nupa.fabric import Fabric, LocalError, NupaError
from nupa.packet.scapy.transport import BTH
from nupa.topology.topology import WireConfig, star
from nupa.verbs import Context
from nupa.verbs import cm_enums as ce
from nupa.verbs.cmid import CMID, AddrInfo, CMEventChannel
from tests.unit.wire import mads
from tests.unit.wire.keeping import (
    HELLO,
    MAGIC,
    PORT,
    REQUEST,
    WAIT_S,
    Far,
    Member,
    address,
    await_wire,
    expect,
    mad_packet,
    mapped,
    packet,
    send_to,
)

OWN, THERE, ELSEWHERE = address(0), address(1), address(2)
REQ, REJ, REP, RTU, DREQ, DREP = 0x10, 0x12, 0x13, 0x14, 0x15, 0x16
HOSTS = 9


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """A fabric whose host `far` is a wire from OWN to THERE."""
    topology = star(HOSTS).with_wires((WireConfig("far", THERE, OWN),))
    with Fabric(topology=topology) as made:
        yield made


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far(THERE, OWN)
    yield made
    made.close()


@pytest.fixture
def members(fabric: Fabric) -> Iterator[list[Member]]:
    """Processes, as far as the keeper knows, on HOSTS hosts."""
    contexts = [Context(fabric=fabric, host=host) for host in range(HOSTS)]
    joined = [Member.of(fabric, host) for host in range(HOSTS)]
    yield joined
    for member in joined:
        member.close()
    for context in contexts:
        context.close()


def hello_of(fabric: Fabric) -> tuple[int, int]:
    (slot,) = [slot for slot in fabric.processes() if slot.host == 0]
    return slot.slot, slot.epoch


# --- hello --------------------------------------------------------------------------------


@pytest.mark.usefixtures("fabric")
def test_a_process_gets_a_socket_at_our_address_and_port(members: list[Member]) -> None:
    for member in members:
        (udp,) = member.udp
        assert udp.getsockname() == (OWN, PORT)
        assert udp.getsockopt(socket.IPPROTO_IP, 10) == 2  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
        with pytest.raises(OSError, match=r"not connected"):
            udp.getpeername()


def test_hellos_that_lie_are_refused(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=0):
        slot, epoch = hello_of(fabric)
        path = fabric.wires.of("far").socket
        for hello, status in [
            (b"x", errno.EPROTO),
            (HELLO.pack(MAGIC, 1, slot, epoch)[:-1], errno.EPROTO),
            (HELLO.pack(MAGIC, 1, slot, epoch) + b"x", errno.EPROTO),
            (HELLO.pack(MAGIC + 1, 1, slot, epoch), errno.EPROTO),
            (HELLO.pack(MAGIC, 2, slot, epoch), errno.EPROTONOSUPPORT),
            (HELLO.pack(MAGIC, 1, 0, epoch), errno.EINVAL),
            (HELLO.pack(MAGIC, 1, 256, epoch), errno.EINVAL),
            (HELLO.pack(MAGIC, 1, 0xFFFFFFFF, epoch), errno.EINVAL),
            (HELLO.pack(MAGIC, 1, slot + 1, epoch + 9), errno.ESTALE),
            (HELLO.pack(MAGIC, 1, slot, epoch + 1), errno.ESTALE),
        ]:
            member = Member(path, hello)
            assert (member.status, member.udp) == (status, []), hello
            assert member.socket.recv(64) == b""
            member.close()
        first = Member.of(fabric, 0)
        again = Member(path, HELLO.pack(MAGIC, 1, slot, epoch))
        assert again.status == errno.EEXIST
        again.close()
        first.close()


def test_requests_that_are_none_are_refused(fabric: Fabric) -> None:
    # A fabric of this process has no commands: the keeper hangs up, and serves on.
    path = fabric.wires.of("far").socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asker:
        asker.connect(path)
        asker.send(struct.pack("=I", REQUEST) + json.dumps({"op": "remove"}).encode())
        asker.settimeout(10)
        assert asker.recv(64) == b""
    with Context(fabric=fabric, host=0):
        Member.of(fabric, 0).close()


# --- steering -----------------------------------------------------------------------------


def test_the_kernel_finds_the_socket_by_the_slot_while_processes_come_and_go(
    fabric: Fabric, far: Far, members: list[Member]
) -> None:
    rng = random.Random(17)
    here = dict(enumerate(members))
    for step in range(40):
        host = rng.randrange(HOSTS)
        if host in here and len(here) > 1:
            here.pop(host).close()
        elif host not in here:
            members.append(_join(fabric, host))
            here[host] = members[-1]
        for member in here.values():
            expect(far, member, step)


def _join(fabric: Fabric, host: int) -> Member:
    """Joins once the keeper has seen the hang-up of a former connection."""
    slot = next(slot for slot in fabric.processes() if slot.host == host)
    path = fabric.wires.of("far").socket
    for _ in range(1000):
        member = Member(path, HELLO.pack(MAGIC, 1, slot.slot, slot.epoch))
        if member.status != errno.EEXIST:
            assert member.status == 0
            member.slot = slot.slot
            return member
        member.close()
    raise AssertionError("the keeper does not see the hang-up")


def test_a_packet_that_came_by_the_wrong_socket_is_passed_on(
    fabric: Fabric, members: list[Member]
) -> None:
    one, other = members[:2]
    sent = packet(THERE, OWN, send_to(other.slot))
    one.pass_on(sent, THERE, OWN)
    assert other.passed() == (mapped(THERE), mapped(OWN), sent)
    # One from elsewhere is not, nor one that would leave by a medium with sockets.
    before = fabric.wires.of("far").counters
    one.pass_on(sent, ELSEWHERE, OWN)
    one.pass_on(sent, OWN, THERE)
    one.pass_on(sent, THERE, OWN)
    assert other.passed()[2] == sent
    assert fabric.wires.of("far").counters["foreign"] == before["foreign"]


@pytest.mark.parametrize("wrong", ["short", "more", "long"])
@pytest.mark.usefixtures("fabric")
def test_a_process_that_does_not_speak_the_protocol_is_hung_up(
    members: list[Member], wrong: str
) -> None:
    sent = packet(THERE, OWN, send_to(members[1].slot))
    if wrong == "short":
        members[0].socket.send(b"x" * 47)
    elif wrong == "more":
        members[0].socket.send(
            struct.pack("=16s16sHBBIIHH", b"", b"", 0, 0, 0, 0, len(sent) + 1, 0, 0) + sent
        )
    else:
        members[0].pass_on(bytes(4096 + 129), THERE, OWN)
    assert members[0].socket.recv(64) == b""
    members[1].pass_on(packet(THERE, OWN, send_to(members[2].slot)), THERE, OWN)
    members[2].passed()


# --- QP 1 ---------------------------------------------------------------------------------


def test_probes_are_answered_and_answers_make_the_round_trip(fabric: Fabric, far: Far) -> None:
    assert fabric.wires.of("far").rtt_ns == 0
    while True:
        probe, _port = far.receive()
        mad = bytes(probe[BTH].payload.payload)[:256]
        if mad[17] == DREQ:
            break
    answer = mads.refusal(mad)
    assert answer is not None
    assert answer[17] == DREP
    far.send(packet(THERE, OWN, mad_packet(answer)))
    wire = await_wire(fabric, lambda wire: wire.state == "UP" and wire.rtt_ns > 0)
    assert wire.error == ""
    # And the other way round: theirs gets a DREP with the ids changed over.
    theirs = bytearray(mad)
    theirs[24:28] = b"\x12\x34\x56\x00"
    far.send(packet(THERE, OWN, mad_packet(bytes(theirs))))
    while True:
        found, port = far.receive()
        reply = bytes(found[BTH].payload.payload)[:256]
        if reply[17] == DREP:
            break
    assert port == PORT
    assert reply[28:32] == b"\x12\x34\x56\x00"
    assert reply[8:16] == mad[8:16]


@pytest.mark.usefixtures("fabric")
def test_a_request_that_nobody_listens_for_is_rejected(far: Far) -> None:
    req = next(mad for mad in mads.of_the_kernel() if mad[17] == 0x10)
    far.send(packet(THERE, OWN, mad_packet(req)))
    while True:
        found, _ = far.receive()
        reply = bytes(found[BTH].payload.payload)[:256]
        if reply[17] == 0x12:
            break
    assert reply == mads.refusal(req)


@pytest.mark.usefixtures("fabric")
def test_a_datagram_for_a_slot_goes_to_its_process(far: Far, members: list[Member]) -> None:
    drep = bytearray(next(mad for mad in mads.of_the_kernel() if mad[17] == DREP))
    drep[28:32] = bytes((7, 7, 4, members[3].slot))
    sent = packet(THERE, OWN, mad_packet(bytes(drep)))
    far.send(sent)
    assert members[3].passed() == (mapped(THERE), mapped(OWN), sent)


def test_wrong_packets_are_dropped_and_counted(fabric: Fabric, far: Far) -> None:
    before = fabric.wires.of("far").counters
    good = packet(THERE, OWN, mad_packet(mads.of_the_kernel()[0]))
    far.send(good[:-1] + bytes((good[-1] ^ 1,)))  # the ICRC
    far.send(good[:20])
    far.send(b"")
    far.send(packet(THERE, OWN, send_to(200)))  # nobody's slot
    elsewhere = Far(ELSEWHERE, OWN)
    elsewhere.send(packet(ELSEWHERE, OWN, mad_packet(mads.of_the_kernel()[0])))
    elsewhere.close()
    wire = await_wire(
        fabric,
        lambda wire: (
            wire.counters["icrc_errors"] > before["icrc_errors"]
            and wire.counters["malformed"] >= before["malformed"] + 2
            and wire.counters["foreign"] >= before["foreign"] + 2
        ),
    )
    assert wire.nat == ""


def test_nat_is_told_by_a_probe_that_was_made_for_other_addresses(fabric: Fabric, far: Far) -> None:
    while True:
        probe, _ = far.receive()
        mad = bytearray(bytes(probe[BTH].payload.payload)[:256])
        if mad[17] == DREQ:
            break
    # The far keeper's address is ELSEWHERE, and something on the way made it THERE.
    at = mad.index(b"NUPA")
    mad[at + 4 : at + 20] = mapped(ELSEWHERE)
    mad[at + 20 : at + 36] = mapped(OWN)
    mad[at + 36 : at + 38] = PORT.to_bytes(2, "big")
    far.send(packet(ELSEWHERE, OWN, mad_packet(bytes(mad))))
    assert await_wire(fabric, lambda wire: wire.nat != "").nat == ELSEWHERE


def test_no_answer_from_a_closed_port_is_down(fabric: Fabric) -> None:
    # ICMP: nobody has THERE's port 4791.
    wire = await_wire(fabric, lambda wire: wire.state == "DOWN")
    assert wire.error == "Connection refused"
    assert wire.counters["refused"] > 0


# --- deaths -------------------------------------------------------------------------------

LOCAL, REMOTE, QPN = 0x0A0B0C00, 0x12345678, 0x234567
PEERS_PORT = 7471


def message(attribute: int, local: int, remote: int) -> bytes:
    """Returns the kernel's message of that kind with these communication ids, and QPN."""
    model = DREP if attribute == REJ else attribute  # which has the ids at the same places
    made = bytearray(next(mad for mad in mads.of_the_kernel() if mad[17] == model))
    made[17] = attribute
    made[24:28] = local.to_bytes(4, "big")
    if attribute == REQ:
        made[38:40] = PEERS_PORT.to_bytes(2, "big")  # of the service
        made[56:59] = QPN.to_bytes(3, "big")
        return bytes(made)
    made[28:32] = remote.to_bytes(4, "big")
    if attribute == REP:
        made[36:39] = QPN.to_bytes(3, "big")
    return bytes(made)


def say(far: Far, attribute: int, local: int, remote: int) -> None:
    far.send(packet(THERE, OWN, mad_packet(message(attribute, local, remote))))


def told(far: Far) -> tuple[int, int, int]:
    """Returns local id, remote id and remote QPN of the next DREQ that is no probe."""
    while True:
        mad = bytes(far.receive()[0][BTH].payload.payload)[:256]
        if mad[17] == DREQ and b"NUPA" not in mad:
            ids = (int.from_bytes(mad[at : at + 4], "big") for at in (24, 28))
            return (*ids, int.from_bytes(mad[32:35], "big"))


def await_leave(far: Far, member: Member) -> None:
    """Waits until the keeper itself answers for a process that has hung up."""
    far.socket.settimeout(0.02)
    while True:
        say(far, DREQ, REMOTE + 99, LOCAL | member.slot)
        with suppress(TimeoutError):
            mad = bytes(far.receive()[0][BTH].payload.payload)[:256]
            if mad[17] == DREP and mad[28:32] == (REMOTE + 99).to_bytes(4, "big"):
                break
    far.socket.settimeout(WAIT_S)


def ids_of(far: Far, members: list[Member], count: int) -> list[int]:
    """Makes connections of the first processes, one each, and returns our ids."""
    made = [LOCAL | member.slot for member in members[:count]]
    for i, (local, member) in enumerate(zip(made, members, strict=False)):
        say(far, REP, REMOTE + i, local)
        member.passed()
    return made


@pytest.mark.usefixtures("fabric")
def test_a_death_is_told_again_until_it_is_answered(far: Far, members: list[Member]) -> None:
    first, second = ids_of(far, members, 2)
    members[0].close()
    assert told(far) == (first, REMOTE, QPN)
    assert told(far) == (first, REMOTE, QPN)
    say(far, DREP, REMOTE, second)  # which names another connection
    assert told(far) == (first, REMOTE, QPN)
    say(far, DREP, REMOTE, first)
    members[1].close()
    for _ in range(2):
        assert told(far) == (second, REMOTE + 1, QPN)


@pytest.mark.parametrize("ending", [DREQ, DREP, REJ])
@pytest.mark.usefixtures("fabric")
def test_a_connection_that_has_ended_is_not_told_of(
    far: Far, members: list[Member], ending: int
) -> None:
    first, second = ids_of(far, members, 2)
    say(far, ending, REMOTE, first)
    members[0].passed()
    members[0].close()
    members[1].close()
    for _ in range(2):
        assert told(far) == (second, REMOTE + 1, QPN)


@pytest.mark.usefixtures("fabric")
def test_the_newest_connections_of_a_process_are_told_of(far: Far, members: list[Member]) -> None:
    bound = 1024  # csrc/wire/notes.c
    member = members[0]
    for i in range(bound + 1):
        say(far, REP, REMOTE + i, LOCAL | member.slot)
        member.passed()
    member.close()
    assert told(far) == (LOCAL | member.slot, REMOTE + 1, QPN)


@contextmanager
def asked(fabric: Fabric, far: Far, member: Member) -> Iterator[None]:
    """Has the other end's request passed to a listener of *member*, which has not replied yet."""
    with Context(fabric=fabric, host=0) as context, CMEventChannel() as channel:
        with CMID(channel, port_space=ce.RDMA_PS_TCP, context=context) as listener:
            port = str(PEERS_PORT)
            listener.bind_addr(
                AddrInfo("0.0.0.0", None, port, None, ce.RDMA_PS_TCP, ce.RAI_PASSIVE)
            )
            listener.listen()
            say(far, REQ, REMOTE, 0)
            member.passed()
        yield


def rejected(far: Far) -> tuple[int, int, int, int]:
    """Returns local id, remote id, message and reason of the next REJ."""
    while True:
        mad = bytes(far.receive()[0][BTH].payload.payload)[:256]
        if mad[17] == REJ:
            ids = (int.from_bytes(mad[at : at + 4], "big") for at in (24, 28))
            return (*ids, mad[32] >> 6, int.from_bytes(mad[34:36], "big"))


@pytest.mark.parametrize("late", [False, True])
def test_a_passive_end_is_told_of_once_its_id_is_known(
    fabric: Fabric, far: Far, members: list[Member], late: bool
) -> None:
    with asked(fabric, far, members[0]):
        if late:
            members[0].close()
            await_leave(far, members[0])
        say(far, RTU, REMOTE, LOCAL | members[1].slot)  # which is not its
        say(far, RTU, REMOTE, LOCAL | members[0].slot)
        if not late:
            members[0].passed()
            members[0].close()
        assert told(far) == (LOCAL | members[0].slot, REMOTE, QPN)


def test_a_passive_end_is_told_of_by_its_own_reply(
    fabric: Fabric, far: Far, members: list[Member]
) -> None:
    """An RTU may be lost, and nobody asks for it again.  Or the reply was lost."""
    with asked(fabric, far, members[0]):
        reply = message(REP, LOCAL | members[0].slot, REMOTE)
        members[0].pass_on(packet(OWN, THERE, mad_packet(reply)), OWN, THERE)
        members[0].close()
        for _ in range(2):
            assert rejected(far)[:2] == (0, REMOTE)
            assert told(far) == (LOCAL | members[0].slot, REMOTE, QPN)


def test_a_request_without_a_reply_is_rejected_when_its_process_dies(
    fabric: Fabric, far: Far, members: list[Member]
) -> None:
    """An MRA of that process may have told the other end to wait for a minute."""
    consumer = 28  # IBTA table 108
    with asked(fabric, far, members[0]):
        others = message(REP, LOCAL | members[1].slot, REMOTE)
        for member in members[:2]:
            member.pass_on(packet(OWN, THERE, mad_packet(others)), OWN, THERE)
        members[0].close()
        for _ in range(2):
            assert rejected(far) == (0, REMOTE, 0, consumer)


# --- wires --------------------------------------------------------------------------------


def test_two_fabrics_hear_each_other() -> None:
    ours = star(1).with_wires((WireConfig("far", THERE, OWN),))
    theirs = star(1).with_wires((WireConfig("far", OWN, THERE),))
    with Fabric(topology=ours) as one, Fabric(topology=theirs) as other:
        for fabric in (one, other):
            wire = await_wire(fabric, lambda wire: wire.state == "UP" and wire.rtt_ns > 0)
            assert (wire.nat, wire.medium, wire.mtu_bytes, wire.exact) == ("", "UDP", 4096, False)
            assert wire.counters["icrc_errors"] == 0


def test_wires_behind_one_address_share_a_keeper_and_keep_apart(far: Far) -> None:
    topology = star(1).with_wires((WireConfig("far", THERE, OWN), WireConfig("b", ELSEWHERE, OWN)))
    with Fabric(topology=topology) as fabric, Context(fabric=fabric, host=0):
        to_far, to_b = Member.of(fabric, 0), Member.of(fabric, 0, "b")
        elsewhere = Far(ELSEWHERE, OWN)
        for source, member in ((far, to_far), (elsewhere, to_b)):
            sent = packet(source.own, OWN, send_to(member.slot))
            source.send(sent)
            assert member.udp[0].recv(8192) == sent
        fabric.wires.remove("far")
        assert to_far.socket.recv(64) == b""
        expect(elsewhere, to_b, 2)
        for each in (to_far, to_b, elsewhere):
            each.close()


@pytest.mark.usefixtures("fabric")
def test_an_address_has_one_keeper() -> None:
    with Fabric(hosts=2) as other:
        with pytest.raises(NupaError, match=r"4791 of .* is in use: by a wire of another fabric"):
            other.wires.add("host1", THERE, listen=OWN)
        assert list(other.wires) == []


@pytest.mark.usefixtures("far")
def test_a_port_that_another_program_has_is_named() -> None:
    with Fabric(hosts=2) as other, pytest.raises(NupaError, match="or by the kernel's RoCE"):
        other.wires.add("host1", OWN, listen=THERE)


@pytest.mark.parametrize(
    ("host", "remote", "listen", "why"),
    [
        ("host9", "THERE", "OWN", "has no host 'host9'"),
        ("host1", "192.0.2.256", None, "give an IPv4 or IPv6 address"),
        ("host1", "224.0.0.1", None, "address of no one machine"),
        ("host1", "fe80::1", None, "holds on one link only"),
        ("host1", "THERE", "::1", "two families"),
        ("host1", "THERE", "192.0.2.77", "--listen takes one"),
        ("host1", "THERE", "THERE", "own address"),
        ("host1", "192.0.2.77", "OWN", "no route|does not send there"),
        ("host0", "THERE", "OWN", "a wire needs a host without processes"),
    ],
)
def test_wires_that_cannot_be_are_refused(
    host: str, remote: str, listen: str | None, why: str
) -> None:
    # Names, as the numbers differ between the processes that run the tests.
    ours = {"OWN": OWN, "THERE": THERE}
    listen = listen and ours.get(listen, listen)
    with Fabric(hosts=2) as fabric, Context(fabric=fabric, host=0):
        with pytest.raises(NupaError, match=why):
            fabric.wires.add(host, ours.get(remote, remote), listen=listen)
        assert list(fabric.wires) == []


def test_no_program_attaches_to_a_wire(fabric: Fabric) -> None:
    with pytest.raises(NupaError, match="is a wire, whose programs run on"):
        Context(fabric=fabric, host="far")
    with pytest.raises(LocalError, match="host0 is no wire"):
        fabric.wires.remove("host0")


def test_a_removed_wire_leaves_nothing(fabric: Fabric) -> None:
    path = fabric.wires.of("far").socket
    with Context(fabric=fabric, host=0) as context:
        member = Member.of(fabric, 0)
        assert ipaddress.ip_address(str(context.query_gid(1, 3))).packed == mapped(OWN)
        fabric.wires.remove("far")
        assert member.socket.recv(64) == b""
        assert ipaddress.ip_address(str(context.query_gid(1, 3))).is_unspecified
        member.close()
    assert not Path(path).exists()
    # The address is free.
    with Fabric(hosts=2) as other:
        other.wires.add("host1", THERE, listen=OWN)
