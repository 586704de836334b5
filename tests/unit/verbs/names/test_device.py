# SPDX-License-Identifier: BSD-3-Clause
"""Contexts: opening, asking, closing."""

import errno
import gc
import weakref
from ipaddress import IPv6Address

import pytest

from nupa.fabric import Fabric, LocalError, Topology
from nupa.netdev.address import unique_local
from nupa.topology.topology import star
from nupa.verbs import (
    CQ,
    GID,
    MR,
    PD,
    QP,
    CompChannel,
    Context,
    PyverbsRDMAError,
    PyverbsUserError,
    QPInitAttr,
    get_device_list,
)
from nupa.verbs import device as d
from nupa.verbs import enums as e


def test_a_context_is_on_the_host_that_was_named(fabric: Fabric) -> None:
    for host in (1, "host1", fabric.hosts[1]):
        with Context(fabric=fabric, host=host) as ctx:
            assert ctx.host == 1
            assert ctx.name == "nupa_rdma0"


def test_without_a_host_a_process_stays_where_it_is(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=1) as first, Context(fabric=fabric) as second:
        assert first.host == second.host == 1
        assert first.slot == second.slot


def test_without_a_host_the_first_context_takes_the_emptiest(fabric: Fabric) -> None:
    with Context(fabric=fabric) as ctx:
        assert ctx.host == 0


def test_a_host_that_is_not_there_is_refused_with_those_that_are(fabric: Fabric) -> None:
    with pytest.raises(LocalError, match=r"no host 'host7'.*host0, host1"):
        Context(fabric=fabric, host="host7")


def test_a_mover_that_is_not_there_is_refused_with_those_that_are(fabric: Fabric) -> None:
    with pytest.raises(PyverbsUserError, match=r"no mover 'pigeon'.*relay"):
        Context(fabric=fabric, host=0, mover="pigeon")


def test_a_context_needs_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PyverbsUserError, match="nupa run"):
        Context()
    with pytest.raises(PyverbsUserError, match="go with fabric="):
        Context(name="nupa_rdma0", host=1)
    monkeypatch.delenv("NUPA_FABRIC", raising=False)
    with pytest.raises(PyverbsRDMAError, match=r"Failed to find device mlx5_0.*nupa run"):
        Context(name="mlx5_0")


def test_without_nupa_run_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUPA_FABRIC", raising=False)
    assert get_device_list() == []


def test_the_limits_are_those_of_a_real_device(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=0) as ctx:
        attr = ctx.query_device()
    assert attr.max_qp_wr >= 16_384
    assert attr.max_cqe >= 1_048_576
    assert attr.max_sge >= 16
    assert attr.max_qp >= 65_536
    assert attr.max_mr >= 1_048_576
    assert attr.atomic_caps is not e.IBV_ATOMIC_NONE
    assert attr.phys_port_cnt == 1
    assert attr.node_guid != 0
    assert attr.fw_version
    assert "Max QP WR" in str(attr) or "Max qp wr" in str(attr)


def test_the_extended_attributes_hold_the_plain_ones(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=0) as ctx:
        attr = ctx.query_device_ex()
        assert attr.orig_attr.max_qp == ctx.query_device().max_qp
        assert attr.phys_port_cnt_ex == 1
        assert (attr.odp_caps.general_caps, attr.tso_caps.max_tso) == (3, 0)
        assert attr.tm_caps.max_num_tags == attr.rss_caps.max_rwq_indirection_tables == 0


def test_the_port_is_active_ethernet_with_the_largest_mtu(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=0) as ctx:
        attr = ctx.query_port(1)
    assert attr.state is e.IBV_PORT_ACTIVE
    assert attr.max_mtu is e.IBV_MTU_4096
    assert attr.link_layer == e.IBV_LINK_LAYER_ETHERNET
    assert attr.gid_tbl_len >= 2
    assert attr.max_msg_sz >= 1 << 30
    for text in (
        d.phys_state_to_str(attr.phys_state),
        d.width_to_str(attr.active_width),
        d.speed_to_str(attr.active_speed),
    ):
        assert "Invalid" not in text
    assert "Active (4)" in str(attr)


def test_a_port_that_is_taken_down_says_so(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=0) as ctx:
        fabric.set_port(0, False)
        assert ctx.query_port(1).state is e.IBV_PORT_DOWN
        fabric.set_port(0, True)
        assert ctx.query_port(1).state is e.IBV_PORT_ACTIVE


@pytest.mark.parametrize("port", [0, 2, 255])
def test_a_port_that_is_not_there_is_refused(fabric: Fabric, port: int) -> None:
    with Context(fabric=fabric, host=0) as ctx:
        with pytest.raises(PyverbsRDMAError, match=f"Failed to query port {port}") as caught:
            ctx.query_port(port)
        assert caught.value.error_code == errno.EINVAL


def test_the_gids_are_the_addresses_of_the_netdev(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=1) as ctx:
        assert ctx.query_gid(1, 0).gid.startswith("fe80:0000:0000:0000:")
        assert ctx.query_gid(1, 1) == GID("0000:0000:0000:0000:0000:ffff:0a00:0002")
        assert ctx.query_gid(1, 2) == GID("fd4e:5550:4100:0000:0000:0000:0000:0002")
        entry = ctx.query_gid_ex(1, 1)
        assert (entry.gid_index, entry.port_num) == (1, 1)
        assert entry.gid() == ctx.query_gid(1, 1)
        assert [found.gid_index for found in ctx.query_gid_table(16)] == [0, 1, 2]
        for index in range(3):
            assert ctx.query_gid_type(1, index) == e.IBV_GID_TYPE_SYSFS_ROCE_V2


def test_each_hosts_ipv6_gid_has_the_digits_of_its_ipv4_address() -> None:
    with Fabric(hosts=254) as fabric:
        for host in (0, 8, 9, 98, 99, 100, 253):
            with Context(fabric=fabric, host=host) as ctx:
                found = IPv6Address(ctx.query_gid(1, 2).gid)
            assert str(found) == unique_local(fabric.hosts[host].ipv4)
            assert str(found) == f"fd4e:5550:4100::{host + 1}"


def test_places_of_the_gid_table_may_be_empty(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=1) as ctx:
        last = ctx.query_port(1).gid_tbl_len - 1
        assert ctx.query_gid(1, last) == GID("0000:0000:0000:0000:0000:0000:0000:0000")
        for index, code in ((last, errno.ENODATA), (last + 1, errno.EINVAL)):
            with pytest.raises(PyverbsRDMAError) as caught:
                ctx.query_gid_ex(1, index)
            assert caught.value.error_code == code


def test_a_gid_table_that_does_not_fit_is_refused(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=1) as ctx:
        with pytest.raises(PyverbsRDMAError, match="room for 1 ") as caught:
            ctx.query_gid_table(1)
        assert caught.value.error_code == -errno.EINVAL  # pyverbs has it negative


def test_a_gid_that_is_not_there_is_refused(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=1) as ctx, pytest.raises(PyverbsRDMAError, match="gid 99"):
        ctx.query_gid(1, 99)


def test_the_default_partition_key_is_there(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=1) as ctx:
        assert ctx.query_pkey(1, 0) == 0xFFFF
        assert ctx.query_pkey(1, 127) == 0
        with pytest.raises(PyverbsRDMAError, match="pkey 128 of port 1"):
            ctx.query_pkey(1, 128)


def test_an_infiniband_fabric_has_lids() -> None:
    plain = star(2)
    topology = Topology("ib", plain.switches, plain.hosts, link_layer="infiniband")
    with Fabric(topology=topology) as infiniband, Context(fabric=infiniband, host=1) as ctx:
        attr = ctx.query_port(1)
        assert attr.link_layer == e.IBV_LINK_LAYER_INFINIBAND
        assert attr.lid == 2


def test_closing_a_context_closes_all_that_was_made_from_it(fabric: Fabric) -> None:
    ctx = Context(fabric=fabric, host=0)
    pd, channel = PD(ctx), CompChannel(ctx)
    mr, cq = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE), CQ(ctx, 10, None, channel)
    ctx.close()
    for use in (lambda: pd.handle, lambda: mr.lkey, cq.poll, channel.fileno, ctx.query_device):
        with pytest.raises(PyverbsUserError, match="is closed"):
            use()
    for thing in (ctx, pd, channel, mr, cq):
        thing.close()


def test_a_fabric_may_be_closed_before_its_contexts() -> None:
    fabric = Fabric(hosts=2)
    ctx = Context(fabric=fabric, host=0)
    fabric.close()
    assert ctx.query_port(1).state is e.IBV_PORT_ACTIVE
    ctx.close()


def test_what_nobody_holds_is_closed(fabric: Fabric) -> None:
    ctx = Context(fabric=fabric, host=0)
    gone = weakref.ref(PD(ctx))
    gc.collect()
    assert gone() is None
    ctx.close()


def test_a_child_keeps_its_parents(fabric: Fabric) -> None:
    mr = MR(PD(Context(fabric=fabric, host=0)), 64, e.IBV_ACCESS_LOCAL_WRITE)
    gc.collect()
    mr.write(b"still here")
    assert mr.read(10) == b"still here"
    mr.close()


def test_a_closed_fabric_is_refused() -> None:
    fabric = Fabric(hosts=2)
    fabric.close()
    with pytest.raises(LocalError, match="closed"):
        Context(fabric=fabric, host=0)


def test_objects_in_a_cycle_are_closed_when_it_is_collected(fabric: Fabric) -> None:
    class Player:
        def __init__(self) -> None:
            self.me = self
            self.ctx = Context(fabric=fabric, host=0)
            self.pd = PD(self.ctx)
            self.cq = CQ(self.ctx, 10)
            self.qp = QP(self.pd, QPInitAttr(e.IBV_QPT_RC, None, self.cq, self.cq))
            self.mr = MR(self.pd, 100, 0)

    # The collector's order is its own choice: of many objects, some come in the bad order.
    for _ in range(20):
        Player()
    gc.collect()
    assert fabric.processes() == []


def test_a_partition_key_is_found_by_its_value(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=0) as ctx:
        assert ctx.get_pkey_index(1, 0xFFFF) == 0
        with pytest.raises(PyverbsRDMAError, match="pkey index of pkey 0x1234 of port 1"):
            ctx.get_pkey_index(1, 0x1234)


def test_the_clock_of_completion_timestamps_can_be_read(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=0) as ctx:
        first, second = ctx.query_rt_values_ex(), ctx.query_rt_values_ex()
        assert (0, 0) < first <= second
