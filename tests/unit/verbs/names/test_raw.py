# SPDX-License-Identifier: BSD-3-Clause
"""Flow steering, receive work queues, tag matching: attributes are built, objects are refused."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from nupa._engine import ffi
from nupa.fabric import Fabric
from nupa.verbs import (
    CQ,
    CQEX,
    PD,
    QP,
    SRQ,
    Context,
    PyverbsError,
    PyverbsRDMAError,
    PyverbsUserError,
    QPCap,
    QPEx,
    QPInitAttr,
    QPInitAttrEx,
    SrqAttr,
    SrqInitAttr,
)
from nupa.verbs import enums as e
from nupa.verbs.raw.flow import Flow, FlowAttr
from nupa.verbs.raw.spec import EthSpec, Ipv4ExtSpec, Spec, TcpUdpSpec
from nupa.verbs.raw.wq import WQ, RwqIndTable, RwqIndTableInitAttr, RxHashConf, WQInitAttr
from nupa.verbs.srq import OpsWr


@pytest.fixture
def pd(fabric: Fabric) -> Iterator[PD]:
    with Context(fabric=fabric, host=0) as ctx:
        yield PD(ctx)


def make_qp(pd: PD) -> QP:
    assert pd.ctx is not None
    cq = CQ(pd.ctx, 1)
    return QP(pd, QPInitAttr(e.IBV_QPT_RC, None, cq, cq, cap=QPCap()))


REFUSED: dict[str, Callable[[PD], object]] = {
    "flow": lambda pd: Flow(make_qp(pd), FlowAttr()),
    "wq": lambda pd: WQ(pd.ctx, WQInitAttr(wq_pd=pd, wq_cq=CQ(pd.ctx, 1))),  # type: ignore[arg-type]
    "table": lambda pd: RwqIndTable(pd.ctx, RwqIndTableInitAttr()),  # type: ignore[arg-type]
    "tags": lambda pd: SRQ(pd, SrqInitAttr(SrqAttr())).post_srq_ops(OpsWr()),
    "tag of a completion": lambda pd: CQEX(pd.ctx).read_tm_info(),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=list(REFUSED))
def test_what_the_device_lacks_is_refused_as_unsupported(
    pd: PD, make: Callable[[PD], object]
) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        make(pd)
    assert caught.value.error_code == errno.EOPNOTSUPP


def test_a_send_with_segmentation_is_refused(pd: PD) -> None:
    assert pd.ctx is not None
    cq = CQ(pd.ctx, 1)
    mask = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
    send = e.IBV_QP_EX_WITH_SEND
    init = QPInitAttrEx(
        e.IBV_QPT_RC, None, cq, cq, cap=QPCap(), comp_mask=mask, pd=pd, send_ops_flags=send
    )
    qp = QPEx(pd.ctx, init)
    assert qp.ind_table is None
    with pytest.raises(PyverbsRDMAError) as caught:
        qp.wr_send_tso(0, 0, 0)
    assert caught.value.error_code == errno.EOPNOTSUPP


def test_a_refused_request_for_tags_is_handed_back(pd: PD) -> None:
    srq, bad = SRQ(pd, SrqInitAttr(SrqAttr())), OpsWr()
    with pytest.raises(PyverbsRDMAError):
        srq.post_srq_ops(OpsWr(wr_id=7), bad)
    assert bad.wr_id == 7


def test_a_match_lies_in_memory_as_the_header_does() -> None:
    spec = EthSpec(src_mac="01:02:03:04:05:06", ether_type=0x0800)
    assert bytes(ffi.buffer(ffi.addressof(spec._c, "val")))[6:14] == bytes([1, 2, 3, 4, 5, 6, 8, 0])
    assert (spec.ether_type_mask, spec.dst_mac_mask) == (0xFFFF, "00:00:00:00:00:00")
    ip = Ipv4ExtSpec(src_ip="1.2.3.4")
    assert bytes(ffi.buffer(ffi.addressof(ip._c, "val")))[:4] == bytes([1, 2, 3, 4])


@pytest.mark.parametrize("mac", ["1:2:3:4:5", "1:2:3:4:5:100", "no address", "1:2:3:4:5:6:7"])
def test_text_that_is_no_mac_address_is_refused(mac: str) -> None:
    with pytest.raises(PyverbsUserError, match="Invalid MAC address"):
        EthSpec(dst_mac=mac)


def test_kinds_of_matches_that_do_not_exist_are_refused() -> None:
    with pytest.raises(PyverbsError, match="IBV_FLOW_SPEC_UDP"):
        TcpUdpSpec(e.IBV_FLOW_SPEC_ETH)
    with pytest.raises(PyverbsError, match="not implemented"):
        Spec.type_to_str(1)


def test_the_length_of_a_hash_key_is_one_or_more_bytes() -> None:
    conf = RxHashConf(rx_hash_key_len=2, rx_hash_key=[3, 4])
    assert conf.rx_hash_key == [3, 4]
    conf.rx_hash_key = [5]
    assert (conf.rx_hash_key, conf.rx_hash_key_len) == ([5], 1)
    with pytest.raises(PyverbsUserError, match="Must be greater than 0"):
        conf.rx_hash_key_len = 0
