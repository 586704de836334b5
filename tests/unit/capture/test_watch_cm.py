# SPDX-License-Identifier: BSD-3-Clause
"""A watch shows connection management as datagrams on QP 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scapy.utils import wrpcap

from nupa.core.watch import Watch
from nupa.fabric import Fabric, Faulty
from nupa.packet.scapy.cm import DREP, DREQ, IPCM, MAD, MRA, REJ, REP, REQ, RTU, SIDR_REP, SIDR_REQ
from nupa.packet.scapy.transport import BTH, DETH
from nupa.verbs import cm_enums as ce
from nupa.verbs.cmid import CMID
from tests.unit.capture.watched import transport
from tests.unit.packet import tshark
from tests.unit.packet.test_tshark import NUMBERS
from tests.unit.verbs.names.test_cmid import PORT, Side, connect


@pytest.fixture
def make_sides(fabric: Fabric) -> Iterator[Callable[..., tuple[Side, Side]]]:
    sides: list[Side] = []

    def make(port_space: int = ce.RDMA_PS_TCP) -> tuple[Side, Side]:
        sides.extend(Side(fabric, host, port_space) for host in (0, 1))
        return sides[-2], sides[-1]

    yield make
    for side in sides:
        side.close()


def test_a_connection_begins_and_ends_with_messages(
    make_sides: Callable[..., tuple[Side, Side]], fabric: Fabric, tmp_path: Path
) -> None:
    client, server = make_sides()
    with Watch(fabric, ("transport",)) as watch:
        child = connect(client, server)
        client.event(ce.RDMA_CM_EVENT_ESTABLISHED)
        server.event(ce.RDMA_CM_EVENT_ESTABLISHED)
        client.id.disconnect()
        server.event(ce.RDMA_CM_EVENT_DISCONNECTED)
        client.event(ce.RDMA_CM_EVENT_DISCONNECTED)
        packets = transport(watch)
    assert [type(p[MAD].payload) for p in packets[:3]] == [REQ, REP, RTU]
    assert {DREQ, DREP} <= {type(p[MAD].payload) for p in packets[3:]}
    req, rep, rtu = packets[:3]
    assert (req[REQ].local_qpn, rep[REP].local_qpn) == (client.id.qpn, child.qpn)
    assert (req[REQ].service_id, req[REQ].pkey) == (0x01060000 | int(PORT), 0xFFFF)
    assert req[REQ].primary_local_gid == "::ffff:10.0.0.1"
    assert req[REQ].primary_remote_gid == "::ffff:10.0.0.2"
    assert (req[IPCM].source, req[IPCM].destination) == ("::10.0.0.1", "::10.0.0.2")
    assert bytes(req[IPCM].payload).startswith(b"from the client")
    assert rep[REP].remote_comm_id == rtu[RTU].local_comm_id == req[REQ].local_comm_id
    assert len({p[MAD].transaction_id for p in packets[:3]}) == 1
    for packet in packets:
        assert (packet[BTH].opcode, packet[BTH].dqpn, packet[DETH].srcqp) == (0x64, 1, 1)
        assert (packet[DETH].qkey, len(bytes(packet[MAD]))) == (0x80010000, 256)
        assert packet[BTH].icrc == packet[BTH].computed_icrc()
    wrpcap(str(tmp_path / "x.pcap"), packets)
    for packet, fields in zip(packets, tshark.dissect(tmp_path / "x.pcap"), strict=True):
        assert "_ws.malformed" not in fields
        for name, (layer, field) in NUMBERS.items():
            if name in fields and layer in packet:
                assert tshark.number(fields[name][0]) == packet[layer].getfieldval(field), name


def test_a_refusal_has_its_reason_and_private_data(
    make_sides: Callable[..., tuple[Side, Side]], fabric: Fabric
) -> None:
    client, server = make_sides()
    with Watch(fabric, ("transport",)) as watch:
        server.listen()
        client.resolve(server)
        client.id.create_qp(client.qp_init())
        client.id.connect()
        CMID(server.event(ce.RDMA_CM_EVENT_CONNECT_REQUEST), listen_id=server.id).reject(b"no")
        assert client.channel is not None
        packets = transport(watch)
    assert (packets[-1][REJ].reason, bytes(packets[-1][REJ].payload)[:2]) == (28, b"no")
    assert packets[-1][REJ].remote_comm_id == packets[0][REQ].local_comm_id


def test_a_request_that_comes_twice_is_acknowledged(
    make_sides: Callable[..., tuple[Side, Side]], fabric: Fabric
) -> None:
    client, server = make_sides()
    with Watch(fabric, ("transport",)) as watch, Faulty(fabric.port("host0"), "duplicate", count=1):
        child = connect(client, server)
        client.event(ce.RDMA_CM_EVENT_ESTABLISHED)
        packets = transport(watch)
    child.close()
    (request, *_), (mra,) = ([p for p in packets if kind in p] for kind in (REQ, MRA))
    assert mra[MRA].remote_comm_id == request[REQ].local_comm_id
    assert (mra[MRA].message, mra[MRA].service_timeout) == (0, 24)  # REQ; 4.096 us * 2^24


def test_datagram_services_are_asked_for(
    make_sides: Callable[..., tuple[Side, Side]], fabric: Fabric
) -> None:
    client, server = make_sides(ce.RDMA_PS_UDP)
    with Watch(fabric, ("transport",)) as watch:
        child = connect(client, server)
        client.event(ce.RDMA_CM_EVENT_ESTABLISHED)
        request, answer = transport(watch)
    assert request[SIDR_REQ].service_id == 0x01110000 | int(PORT)
    assert request[IPCM].destination == "::10.0.0.2"
    assert bytes(request[IPCM].payload).startswith(b"from the client")
    assert answer[SIDR_REP].request_id == request[SIDR_REQ].request_id
    assert (answer[SIDR_REP].status, answer[SIDR_REP].qpn) == (0, child.qpn)
