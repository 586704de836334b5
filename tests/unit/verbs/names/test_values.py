# SPDX-License-Identifier: BSD-3-Clause
"""Objects of nupa.verbs that need no device: addresses, attributes, work requests, errors."""

import doctest
import errno
from types import ModuleType

import pytest

from nupa._engine import ffi
from nupa.fabric import FabricError, LocalError, NupaError, RemoteError
from nupa.verbs import (
    GID,
    GRH,
    SGE,
    WC,
    AHAttr,
    CompletionError,
    CqInitAttrEx,
    GlobalRoute,
    PyverbsError,
    PyverbsRDMAError,
    PyverbsUserError,
    QPAttr,
    QPCap,
    QPInitAttr,
    QPInitAttrEx,
    RecvWR,
    SendWR,
    SrqAttr,
    SrqInitAttr,
    pyverbs_error,
    utils,
)
from nupa.verbs import enums as e
from nupa.verbs.base import inc_rkey
from nupa.verbs.utils import gid as gid_module

TEXT = "fe80:0000:0000:0000:0000:0aff:fe00:0001"


@pytest.mark.parametrize("module", [gid_module, utils])
def test_the_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_gid_keeps_its_sixteen_bytes() -> None:
    gid = GID(TEXT)
    assert gid.gid == str(gid) == TEXT
    assert bytes(gid) == bytes.fromhex(TEXT.replace(":", ""))
    assert gid == GID(TEXT) != GID()


@pytest.mark.parametrize("text", ["", "fe80::1", TEXT[:-1], TEXT.replace("f", "g")])
def test_what_is_no_gid_is_refused_by_name(text: str) -> None:
    with pytest.raises(PyverbsUserError, match=f"Invalid GID value \\({text}\\)"):
        GID(text)


def test_a_global_address_copies_its_route() -> None:
    route = GlobalRoute(dgid=GID(TEXT), flow_label=7, sgid_index=1, hop_limit=64, traffic_class=3)
    attr = AHAttr(dlid=5, sl=2, is_global=1, port_num=1, gr=route)
    route.flow_label = 8
    assert (attr.dgid, attr.flow_label, attr.sgid_index) == (TEXT, 7, 1)
    assert (attr.hop_limit, attr.traffic_class, attr.dlid, attr.sl) == (64, 3, 5, 2)
    assert TEXT in str(attr)


def test_a_local_address_has_no_route() -> None:
    attr = AHAttr(dlid=5)
    attr.dgid = TEXT
    assert attr.dgid is None
    assert attr.flow_label is None


def test_a_global_address_without_a_route_is_refused() -> None:
    with pytest.raises(PyverbsUserError, match="gr parameter is None"):
        AHAttr(is_global=1)


def test_a_grh_keeps_its_fields() -> None:
    grh = GRH(sgid=GID(TEXT), dgid=GID(), paylen=3, next_hdr=0x1B, hop_limit=9)
    assert (grh.sgid, grh.paylen, grh.next_hdr, grh.hop_limit) == (TEXT, 3, 0x1B, 9)
    grh.dgid = TEXT
    assert grh.dgid == TEXT


def test_qp_capabilities_have_pyverbs_defaults() -> None:
    cap = QPCap()
    assert (cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge) == (1, 10, 1)
    assert (cap.max_recv_sge, cap.max_inline_data) == (1, 0)


def test_init_attributes_copy_their_capabilities() -> None:
    cap = QPCap(1, 2, 3, 4, 5)
    for attr in (QPInitAttr(cap=cap), QPInitAttrEx(cap=cap)):
        attr.max_send_wr = 9
        assert (attr.cap.max_send_wr, attr.cap.max_inline_data) == (9, 5)
        assert attr.qp_type is e.IBV_QPT_UD
    assert cap.max_send_wr == 1
    assert (QPInitAttr().sq_sig_all, QPInitAttrEx().sq_sig_all) == (1, 0)


def test_init_attributes_take_completion_queues_only() -> None:
    with pytest.raises(PyverbsUserError, match="Expected CQ/CQEX, got <class 'int'>"):
        QPInitAttr(scq=3)  # type: ignore[arg-type]


def test_qp_attributes_begin_at_the_first_transition() -> None:
    attr = QPAttr()
    assert attr.qp_state is e.IBV_QPS_INIT
    assert attr.cur_qp_state is e.IBV_QPS_RESET
    assert (attr.port_num, attr.path_mtu) == (1, e.IBV_MTU_1024)
    attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=GID(TEXT)))
    attr.dest_qp_num = 0x10001
    assert attr.ah_attr.dgid == TEXT
    assert "Dest QP number        : 65537" in str(attr)


def test_a_value_that_c_cannot_hold_is_refused() -> None:
    attr = QPAttr()
    with pytest.raises(OverflowError):
        attr.retry_cnt = 256


def test_a_send_wr_copies_its_elements_and_keeps_its_fields() -> None:
    sge = SGE(0x1000, 64, 7)
    wr = SendWR(wr_id=3, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, imm_data=9, sg=[sge])
    sge.length = 1
    wr.set_wr_rdma(0x55, 0x2000)
    assert (wr.wr_id, wr.opcode, wr.num_sge, wr.imm_data) == (3, e.IBV_WR_RDMA_WRITE, 1, 9)
    assert wr.send_flags == e.IBV_SEND_SIGNALED
    assert wr._c.sg_list[0].length == 64
    assert (wr._c.wr.rdma.rkey, wr._c.wr.rdma.remote_addr) == (0x55, 0x2000)


def test_the_number_of_elements_may_be_left_out() -> None:
    sges = [SGE(1, 2, 3), SGE(4, 5, 6)]
    assert SendWR(sg=sges).num_sge == RecvWR(sg=sges).num_sge == 2
    assert SendWR(sg=sges, num_sge=1).num_sge == 1
    assert RecvWR().num_sge == 0


@pytest.mark.parametrize("kind", [SendWR, RecvWR])
def test_more_elements_than_were_given_are_refused(kind: type) -> None:
    with pytest.raises(PyverbsUserError, match="at least one SGE"):
        kind(num_sge=1)


def test_a_chain_keeps_what_follows() -> None:
    second = RecvWR(2)
    first = RecvWR(1, next_wr=second)
    assert first.next_wr is second
    assert first._c.next == second._c


def test_an_element_reads_only_its_own_memory() -> None:
    data = bytearray(b"0123456789")
    address = memoryview(data)
    sge = SGE(int(ffi.cast("uintptr_t", ffi.from_buffer(address))), 10, 0)
    assert sge.read(3, 2) == b"234"
    with pytest.raises(PyverbsUserError, match="3 bytes at offset 8 of an SGE of 10"):
        sge.read(3, 8)


def test_srq_attributes_have_pyverbs_defaults() -> None:
    attr = SrqAttr()
    assert (attr.max_wr, attr.max_sge, attr.srq_limit) == (100, 1, 0)
    assert SrqInitAttr(SrqAttr(max_wr=7)).max_wr == 7
    assert CqInitAttrEx().cqe == 100


def test_a_completion_prints_words() -> None:
    wc = WC(wr_id=5, status=e.IBV_WC_RNR_RETRY_EXC_ERR, opcode=e.IBV_WC_RDMA_READ)
    assert "RNR retry exceeded" in str(wc)
    assert wc.status is e.IBV_WC_RNR_RETRY_EXC_ERR
    assert wc.opcode is e.IBV_WC_RDMA_READ


@pytest.mark.parametrize("status", list(e.ibv_wc_status))
def test_every_status_but_success_becomes_an_exception_that_names_it(status: int) -> None:
    wc = WC(wr_id=0x2A, status=status, qp_num=0x10001)
    if status == e.IBV_WC_SUCCESS:
        assert wc.raise_for_status() is wc
        return
    with pytest.raises(CompletionError, match=e.ibv_wc_status(status).name) as caught:
        wc.raise_for_status()
    assert (caught.value.status, caught.value.wr_id) == (status, 0x2A)


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (e.IBV_WC_LOC_PROT_ERR, LocalError),
        (e.IBV_WC_REM_ACCESS_ERR, RemoteError),
        (e.IBV_WC_RNR_RETRY_EXC_ERR, RemoteError),
        (e.IBV_WC_RETRY_EXC_ERR, FabricError),
        (999, LocalError),
    ],
)
def test_a_completion_error_says_whose_fault_it_is(status: int, fault: type[Exception]) -> None:
    with pytest.raises(fault):
        WC(status=status).raise_for_status()


def test_errors_are_pyverbs_and_nupas_at_once() -> None:
    error = PyverbsRDMAError("Failed to try", errno.EINVAL)
    assert str(error) == "Failed to try. Errno: 22, Invalid argument"
    assert (error.error_code, error.errno) == (errno.EINVAL, errno.EINVAL)
    assert isinstance(error, PyverbsError | NupaError)
    assert pyverbs_error.PyverbsRDMAError is PyverbsRDMAError
    assert PyverbsRDMAError("plain").error_code == -1
    assert issubclass(PyverbsUserError, LocalError)


def test_an_error_says_what_to_do() -> None:
    assert "docs/verbs.md" in str(PyverbsRDMAError("Failed to try", errno.EOPNOTSUPP))
    assert str(PyverbsRDMAError("x", errno.EINVAL, "do y")).endswith("Invalid argument: do y")


def test_the_variable_part_of_a_key_wraps() -> None:
    assert inc_rkey(0x1234FF) == 0x123400
