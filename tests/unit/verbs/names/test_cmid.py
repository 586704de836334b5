# SPDX-License-Identifier: BSD-3-Clause
"""Connection management from Python: two hosts in this process, each with its event channel."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address

import pytest

from nupa.fabric import Fabric
from nupa.verbs import (
    CQ,
    MR,
    PD,
    QP,
    Context,
    PyverbsRDMAError,
    PyverbsUserError,
    QPCap,
    QPInitAttr,
)
from nupa.verbs import cm_enums as ce
from nupa.verbs import enums as e
from nupa.verbs.addr import AH
from nupa.verbs.cmid import (
    CMID,
    AddrInfo,
    CMEvent,
    CMEventChannel,
    ConnParam,
    JoinMCAttrEx,
    UDParam,
)

WAIT_S = 10.0  # a deadline: an awaited event comes at once, or not at all
PORT = "7471"
GRH_BYTES = 40


class Side:
    """A host's channel, its id, and the ids that requests brought."""

    def __init__(self, fabric: Fabric, host: int, port_space: int = ce.RDMA_PS_TCP) -> None:
        self.address = fabric.hosts[host].ipv4
        self.port_space = port_space
        self.ctx = Context(fabric=fabric, host=host)
        self.channel = CMEventChannel()
        self.id = CMID(self.channel, port_space=port_space, context=self.ctx)

    def close(self) -> None:
        self.channel.close()
        self.ctx.close()

    def event(self, expected: int) -> CMEvent:
        event = CMEvent(self.channel, WAIT_S)
        assert (event.event_type, event.status) == (expected, 0), event.event_str()
        return event

    def qp_init(self) -> QPInitAttr:
        qp_type = e.IBV_QPT_RC if self.port_space == ce.RDMA_PS_TCP else e.IBV_QPT_UD
        return QPInitAttr(qp_type=qp_type, cap=QPCap(max_send_wr=4, max_recv_wr=4))

    def listen(self) -> None:
        self.id.bind_addr(AddrInfo(self.address, None, PORT, None, self.port_space, ce.RAI_PASSIVE))
        self.id.listen()

    def resolve(self, peer: Side) -> None:
        self.id.resolve_addr(AddrInfo(self.address, peer.address, None, PORT, self.port_space))
        self.event(ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
        self.id.resolve_route()
        self.event(ce.RDMA_CM_EVENT_ROUTE_RESOLVED).ack_cm_event()


@pytest.fixture
def make_sides(fabric: Fabric) -> Iterator[Callable[..., tuple[Side, Side]]]:
    sides: list[Side] = []

    def make(port_space: int = ce.RDMA_PS_TCP) -> tuple[Side, Side]:
        sides.extend(Side(fabric, host, port_space) for host in (0, 1))
        return sides[-2], sides[-1]

    yield make
    for side in sides:
        side.close()


def connect(client: Side, server: Side) -> CMID:
    """Connects both by QPs of rdma_cm; returns the server's end."""
    server.listen()
    client.resolve(server)
    client.id.create_qp(client.qp_init())
    param = ConnParam()
    param.set_private_data(b"from the client")
    client.id.connect(param)
    with_data = server.event(ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    assert (with_data.private_data or b"").startswith(b"from the client")
    child = CMID(with_data, listen_id=server.id)
    with_data.ack_cm_event()
    child.create_qp(server.qp_init())
    child.accept(ConnParam())
    return child


#: Of the client and of the server: rdma_getaddrinfo finds both, and the GIDs are the addresses.
ADDRESSES = [
    ("10.0.0.1", "10.0.0.2"),
    ("::ffff:10.0.0.1", "::ffff:10.0.0.2"),
    ("fe80::aff:fe00:1", "fe80::aff:fe00:2"),
    ("fd4e:5550:4100::1", "fd4e:5550:4100::2"),
]


@pytest.mark.parametrize(("own", "peers"), ADDRESSES)
def test_a_connection_carries_messages_until_it_is_ended(
    make_sides: Callable[..., tuple[Side, Side]], own: str, peers: str
) -> None:
    client, server = make_sides()
    client.address, server.address = own, peers
    child = connect(client, server)
    client.event(ce.RDMA_CM_EVENT_ESTABLISHED)
    server.event(ce.RDMA_CM_EVENT_ESTABLISHED)
    theirs, ours = child.reg_write(64), client.id.reg_msgs(64)
    child.post_recv(theirs)
    ours.write("hello", 5)
    client.id.post_send(ours, length=5)
    client.id.get_send_comp(WAIT_S).raise_for_status()
    assert child.get_recv_comp(WAIT_S).raise_for_status().byte_len == 5
    assert theirs.read(5, 0) == b"hello"

    client.id.post_write(ours, 5, theirs.buf + 10, theirs.rkey, e.IBV_SEND_SIGNALED)
    client.id.get_send_comp(WAIT_S).raise_for_status()
    assert theirs.read(5, 10) == b"hello"
    attr, _ = child.query_qp(e.IBV_QP_STATE | e.IBV_QP_AV)
    assert attr.qp_state == e.IBV_QPS_RTS
    to, index = attr.ah_attr.dgid, attr.ah_attr.sgid_index
    assert to is not None
    assert index is not None
    assert to == client.ctx.query_gid(1, index).gid
    assert IPv6Address(to) == IPv6Address(own if ":" in own else f"::ffff:{own}")
    assert (child.dev_name, child.port_num) == ("nupa_rdma0", 1)

    client.id.disconnect()
    server.event(ce.RDMA_CM_EVENT_DISCONNECTED)
    client.event(ce.RDMA_CM_EVENT_DISCONNECTED)


def test_a_refused_connection_says_why(make_sides: Callable[..., tuple[Side, Side]]) -> None:
    client, server = make_sides()
    server.listen()
    client.resolve(server)
    client.id.create_qp(client.qp_init())
    client.id.connect()
    child = CMID(server.event(ce.RDMA_CM_EVENT_CONNECT_REQUEST), listen_id=server.id)
    child.reject(b"not today")
    event = CMEvent(client.channel, WAIT_S)
    assert event.event_type is ce.rdma_cm_event_type.RDMA_CM_EVENT_REJECTED
    assert event.event_str() == "RDMA_CM_EVENT_REJECTED"
    assert (event.private_data or b"").startswith(b"not today")


def test_a_qp_of_the_programs_own_is_brought_up_by_the_id(
    make_sides: Callable[..., tuple[Side, Side]],
) -> None:
    client, server = make_sides()
    server.listen()
    client.resolve(server)

    def bring_up(cm: CMID, qp: QP) -> None:
        for state in (e.IBV_QPS_INIT, e.IBV_QPS_RTR, e.IBV_QPS_RTS):
            qp.modify(*cm.init_qp_attr(state))

    def make_qp(cm: CMID) -> QP:
        cq = CQ(cm.context, 10)
        return QP(cm.pd, QPInitAttr(e.IBV_QPT_RC, None, cq, cq, cap=QPCap(4, 4)))

    qp = make_qp(client.id)
    client.id.connect(ConnParam(qp_num=qp.qp_num))
    child = CMID(server.event(ce.RDMA_CM_EVENT_CONNECT_REQUEST), listen_id=server.id)
    peer = make_qp(child)
    bring_up(child, peer)
    child.accept(ConnParam(qp_num=peer.qp_num))
    client.event(ce.RDMA_CM_EVENT_CONNECT_RESPONSE)
    bring_up(client.id, qp)
    client.id.establish()
    server.event(ce.RDMA_CM_EVENT_ESTABLISHED)
    assert (qp.qp_state, peer.qp_state) == (e.IBV_QPS_RTS, e.IBV_QPS_RTS)
    assert client.id.qpn is None
    with pytest.raises(PyverbsUserError, match=r"create_qp\(\) makes one"):
        client.id.post_recv(MR(client.id.pd, 10, e.IBV_ACCESS_LOCAL_WRITE))


def test_a_datagram_service_gives_the_address_of_its_qp(
    make_sides: Callable[..., tuple[Side, Side]],
) -> None:
    client, server = make_sides(ce.RDMA_PS_UDP)
    child = connect(client, server)
    way = UDParam(client.event(ce.RDMA_CM_EVENT_ESTABLISHED))
    assert way.qp_num == child.qpn
    theirs, ours = child.reg_msgs(100), client.id.reg_msgs(100)
    child.post_recv(theirs)
    ours.write("datagram", 8)
    client.id.post_ud_send(ours, AH(client.id.pd, attr=way.ah_attr), way.qp_num, length=8)
    child.get_recv_comp(WAIT_S).raise_for_status()
    assert theirs.read(8, GRH_BYTES) == b"datagram"


@pytest.mark.parametrize("extended", [False, True])
def test_a_group_is_joined_and_left(
    make_sides: Callable[..., tuple[Side, Side]], extended: bool
) -> None:
    sides = make_sides(ce.RDMA_PS_UDP)
    ways = []
    for side in sides:
        side.id.bind_addr(AddrInfo(side.address, flags=ce.RAI_PASSIVE))
        side.id.create_qp(side.qp_init())
        joined = AddrInfo("239.1.2.3", flags=ce.RAI_PASSIVE)
        mask = ce.RDMA_CM_JOIN_MC_ATTR_ADDRESS | ce.RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS
        if extended:
            side.id.join_multicast(mc_attr=JoinMCAttrEx(joined, mask))
        else:
            side.id.join_multicast(joined)
        ways.append(UDParam(side.event(ce.RDMA_CM_EVENT_MULTICAST_JOIN)))
    sender, receiver = (side.id for side in sides)
    theirs, ours = receiver.reg_msgs(100), sender.reg_msgs(100)
    receiver.post_recv(theirs)
    ours.write("to all", 6)
    sender.post_ud_send(ours, AH(sender.pd, attr=ways[0].ah_attr), ways[0].qp_num, length=6)
    receiver.get_recv_comp(WAIT_S).raise_for_status()
    assert theirs.read(6, GRH_BYTES) == b"to all"
    receiver.leave_multicast(AddrInfo("239.1.2.3", flags=ce.RAI_PASSIVE))


def test_what_does_not_come_in_time_is_a_timeout(
    make_sides: Callable[..., tuple[Side, Side]],
) -> None:
    client, _ = make_sides()
    with pytest.raises(TimeoutError, match="No connection event within"):
        CMEvent(client.channel, 0.01)
    client.id.bind_addr(AddrInfo(client.address, flags=ce.RAI_PASSIVE))
    client.id.create_qp(client.qp_init())
    with pytest.raises(TimeoutError, match="No completion within"):
        client.id.get_recv_comp(0.01)


def test_memory_is_registered_with_the_id_or_its_domain(
    make_sides: Callable[..., tuple[Side, Side]],
) -> None:
    client, _ = make_sides()
    client.id.bind_addr(AddrInfo(client.address, flags=ce.RAI_PASSIVE))
    client.id.create_qp(client.qp_init())
    with PD(client.id) as pd:
        assert pd.pd == client.id.pd.pd
        own = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
    with pytest.raises(PyverbsUserError, match="closed"):
        _ = own.lkey
    with MR(client.id, 64, e.IBV_ACCESS_REMOTE_WRITE) as mr:
        client.id.post_recv(mr)
    with pytest.raises(PyverbsUserError, match="it takes a Context or a CMID"):
        PD(client.channel)  # type: ignore[arg-type]


def test_an_id_may_be_closed_while_its_events_are_held(
    make_sides: Callable[..., tuple[Side, Side]],
) -> None:
    client, server = make_sides()
    server.listen()
    client.id.resolve_addr(AddrInfo(client.address, server.address, None, PORT))
    event = client.event(ce.RDMA_CM_EVENT_ADDR_RESOLVED)
    client.id.close()
    with pytest.raises(PyverbsUserError, match="was acknowledged"):
        _ = event.private_data


def test_what_an_id_does_not_have_yet_is_said(
    make_sides: Callable[..., tuple[Side, Side]],
) -> None:
    client, _ = make_sides()
    with pytest.raises(PyverbsRDMAError, match="Failed to connect") as caught:
        client.id.connect()
    assert caught.value.error_code == errno.EINVAL
    with pytest.raises(PyverbsRDMAError, match="Failed to create CM ID") as caught:
        CMID(client.channel)  # the device of `nupa run`, which is not there
    assert caught.value.error_code == errno.ENODEV
    fresh = CMID(client.channel, context=client.ctx)
    with pytest.raises(PyverbsUserError, match="bind it or resolve an address"):
        _ = fresh.pd
    with pytest.raises(PyverbsUserError, match="takes its listen_id"):
        CMID(CMEvent.__new__(CMEvent))
    with pytest.raises(PyverbsRDMAError, match="Failed to get Address Info of 'no such host'"):
        AddrInfo(None, "no such host", flags=ce.RAI_NUMERICHOST)


def test_an_option_and_its_size(make_sides: Callable[..., tuple[Side, Side]]) -> None:
    client, server = make_sides()
    client.id.set_option(ce.RDMA_OPTION_ID, ce.RDMA_OPTION_ID_ACK_TIMEOUT, 9, 1)
    with pytest.raises(PyverbsRDMAError, match="Failed to set option"):
        client.id.set_option(ce.RDMA_OPTION_ID, 99, 1, 1)
    child = connect(client, server)
    client.event(ce.RDMA_CM_EVENT_ESTABLISHED)
    child.close()
    attr, _ = client.id.query_qp(e.IBV_QP_TIMEOUT)
    assert attr.timeout == 9
