# SPDX-License-Identifier: BSD-3-Clause
"""Multicast: one datagram to all QPs of a group."""

import errno

import pytest
from scapy.layers.inet import IP

from nupa.core.watch import Watch
from nupa.fabric import Fabric
from nupa.packet.scapy.transport import BTH
from nupa.topology.topology import HostConfig, SwitchConfig, Topology
from nupa.verbs import (
    AH,
    GID,
    QP,
    AHAttr,
    GlobalRoute,
    PyverbsRDMAError,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from nupa.verbs import enums as e
from tests.unit.capture.watched import transport

GROUP = GID("ff0e:0000:0000:0000:0000:0000:0000:0007")
IPV4_GROUP = GID("0000:0000:0000:0000:0000:ffff:ef01:0203")  # 239.1.2.3
GROUP_QPN = 0xFFFFFF
GRH_BYTES = 40


def to_group(end, group: GID) -> AH:
    route = GlobalRoute(dgid=group, sgid_index=1, hop_limit=1)
    return AH(end.pd, attr=AHAttr(is_global=1, port_num=1, gr=route))


def send(end, group: GID, data: bytes) -> None:
    end.mr.write(data)
    wr = SendWR(1, sg=[end.mr.sge(0, len(data))])
    wr.set_wr_ud(to_group(end, group), GROUP_QPN, end.QKEY)
    end.qp.post_send(wr)


@pytest.mark.parametrize("group", [GROUP, IPV4_GROUP], ids=["ipv6", "ipv4"])
def test_each_member_gets_a_datagram_with_the_group_as_its_destination(make_end, group) -> None:
    sender = make_end(0, e.IBV_QPT_UD)
    members = [make_end(host, e.IBV_QPT_UD) for host in (0, 1)]
    for member in members:
        member.qp.attach_mcast(group)
        member.qp.post_recv(RecvWR(5, sg=[member.mr.sge(0, 1024)]))
    send(sender, group, b"to all of you")
    sender.wait_ok()
    for member in members:
        wc = member.wait_ok()[0]
        assert (wc.wr_id, wc.byte_len, wc.src_qp) == (5, GRH_BYTES + 13, sender.qp.qp_num)
        assert wc.wc_flags & e.IBV_WC_GRH
        assert member.mr.read(13, GRH_BYTES) == b"to all of you"
        assert member.mr.read(16, 24) == group.raw
        assert AH(member.pd, wc=wc, grh=member.mr.buf, port_num=1)


def test_a_member_that_left_gets_nothing(make_end) -> None:
    sender, gone, member = (make_end(0, e.IBV_QPT_UD) for _ in range(3))
    for end in (gone, member):
        end.qp.attach_mcast(GROUP)
        end.qp.post_recv(RecvWR(5, sg=[end.mr.sge(0, 1024)]))
    gone.qp.detach_mcast(GROUP)
    send(sender, GROUP, b"hello")
    member.wait_ok()
    assert gone.cq.poll() == (0, [])


def test_closing_a_qp_leaves_its_groups(make_end) -> None:
    end = make_end(0, e.IBV_QPT_UD)
    init = QPInitAttr(e.IBV_QPT_UD, None, end.cq, end.cq, cap=QPCap())
    with QP(end.pd, init) as qp:
        qp.attach_mcast(GROUP, 3)
        with pytest.raises(PyverbsRDMAError) as caught:
            qp.detach_mcast(GROUP, 4)
        assert caught.value.error_code == errno.EINVAL


@pytest.mark.parametrize("gid", ["fe80:0000:0000:0000:0000:0000:0000:0001"])
def test_what_is_no_group_is_refused(make_end, gid: str) -> None:
    end = make_end(0, e.IBV_QPT_UD)
    with pytest.raises(PyverbsRDMAError, match="multicast") as caught:
        end.qp.attach_mcast(GID(gid))
    assert caught.value.error_code == errno.EINVAL


def test_only_datagrams_go_to_groups(end) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        end.qp.attach_mcast(GROUP)
    assert caught.value.error_code == errno.EINVAL


def test_the_device_says_how_many_groups_it_has(end) -> None:
    attr = end.ctx.query_device()
    assert attr.max_mcast_grp == 1024
    assert attr.max_mcast_qp_attach == 256


@pytest.fixture
def infiniband_end():
    from tests.unit.conftest import End

    topology = Topology(
        "t", (SwitchConfig("s", 2),), (HostConfig("a", "s"), HostConfig("b", "s")), (), "infiniband"
    )
    with Fabric(topology=topology) as fabric:
        end = End(fabric, 0, e.IBV_QPT_UD)
        yield end
        end.ctx.close()


@pytest.mark.parametrize("lid", [0, 0xBFFF, 0xFFFF])
def test_on_infiniband_a_group_has_a_lid_of_its_own(infiniband_end, lid: int) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        infiniband_end.qp.attach_mcast(GROUP, lid)
    assert caught.value.error_code == errno.EINVAL


def test_on_infiniband_datagrams_reach_a_group(infiniband_end) -> None:
    end = infiniband_end
    end.qp.attach_mcast(GROUP, 0xC001)
    end.qp.post_recv(RecvWR(5, sg=[end.mr.sge(0, 1024)]))
    end.mr.write(b"hello", offset=2048)
    route = GlobalRoute(dgid=GROUP, sgid_index=0, hop_limit=1)
    wr = SendWR(1, sg=[end.mr.sge(2048, 5)])
    ah = AH(end.pd, AHAttr(dlid=0xC001, is_global=1, port_num=1, gr=route))
    wr.set_wr_ud(ah, GROUP_QPN, end.QKEY)
    end.qp.post_send(wr)
    end.wait_ok(2)
    assert end.mr.read(5, GRH_BYTES) == b"hello"
    end.qp.detach_mcast(GROUP, 0xC001)


def test_a_watch_sees_a_datagram_leave_once_and_arrive_at_each_member(make_end, fabric) -> None:
    sender = make_end(0, e.IBV_QPT_UD)
    members = [make_end(host, e.IBV_QPT_UD) for host in (0, 1, 1)]
    for member in members:
        member.qp.attach_mcast(IPV4_GROUP)
        member.qp.post_recv(RecvWR(5, sg=[member.mr.sge(0, 1024)]))
    with (
        Watch(fabric, ("transport",)) as once,
        Watch(fabric, ("transport",), ports=[fabric.hosts[1].port]) as there,
    ):
        for _ in range(2):
            send(sender, IPV4_GROUP, b"to all of you")
            sender.wait_ok()
        left, arrived = transport(once), transport(there)
    assert len(left) == 2
    assert len(arrived) == 4
    for packet in left + arrived:
        assert (packet.dst, packet[IP].dst) == ("01:00:5e:01:02:03", "239.1.2.3")
        assert packet[BTH].dqpn == GROUP_QPN
        assert packet[BTH].icrc == packet[BTH].computed_icrc()
