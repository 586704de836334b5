# SPDX-License-Identifier: BSD-3-Clause
"""Regions that change, regions on demand, and the null region."""

import ctypes
import errno
import mmap

import pytest

from nupa.verbs import MR, PD, SGE, QPAttr, RecvWR, SendWR, connect
from nupa.verbs import enums as e
from nupa.verbs.base.errors import PyverbsRDMAError
from nupa.verbs.mr import NullMR

PAGE = mmap.PAGESIZE
ALL = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
ON_DEMAND = ALL | e.IBV_ACCESS_ON_DEMAND
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Pages:
    """Two pages of which the second comes and goes; nothing else can take their place."""

    def __init__(self) -> None:
        self.addr = self._map(None, 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, 0)

    def _map(self, at: int | None, length: int, prot: int, fixed: int) -> int:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed
        return int(_libc.mmap(at, length, prot, flags, -1, 0))

    def away(self, prot: int = mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0) -> None:
        assert self._map(self.addr + PAGE, PAGE, prot, 0x10) == self.addr + PAGE

    def back(self) -> None:
        prot = mmap.PROT_READ | mmap.PROT_WRITE
        assert self._map(self.addr + PAGE, PAGE, prot, 0x10) == self.addr + PAGE

    def bytes_at(self, offset: int, length: int) -> bytes:
        return ctypes.string_at(self.addr + offset, length)

    def close(self) -> None:
        _libc.munmap(self.addr, 2 * PAGE)


@pytest.fixture
def pages():
    pages = Pages()
    yield pages
    pages.close()


@pytest.fixture(params=["local", "relay"])
def pair(request, make_pair):
    return make_pair(mover=request.param)


def rdma(pair, opcode: int, rkey: int, addr: int, length: int = 8) -> e.ibv_wc_status:
    """Returns the status of a's request to b."""
    wr = SendWR(1, opcode, sg=[pair.a.mr.sge(0, length)])
    if opcode == e.IBV_WR_ATOMIC_FETCH_AND_ADD:
        wr.set_wr_atomic(rkey, addr, 1)
    else:
        wr.set_wr_rdma(rkey, addr)
    pair.a.qp.post_send(wr)
    return pair.a.wait()[0].status


def reconnect(pair) -> None:
    for qp in (pair.a.qp, pair.b.qp):
        qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
    connect(pair.a.qp, pair.b.qp)


# --- rereg -----------------------------------------------------------------------------------


def test_access_changes_in_place(pair) -> None:
    mr = pair.b.mr
    keys = (mr.lkey, mr.rkey)
    mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=e.IBV_ACCESS_LOCAL_WRITE)
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, mr.buf) is e.IBV_WC_REM_ACCESS_ERR
    reconnect(pair)
    mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=ALL)
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, mr.buf) is e.IBV_WC_SUCCESS
    assert (mr.lkey, mr.rkey) == keys


def test_the_place_changes_and_the_old_one_is_closed(pair) -> None:
    mr, old = pair.b.mr, pair.b.mr.buf
    place = bytearray(512)
    addr = ctypes.addressof(ctypes.c_char.from_buffer(place))
    pair.a.mr.write(b"new home")
    mr.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, addr=addr, length=512)
    assert (mr.buf, mr.length) == (addr, 512)
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, addr) is e.IBV_WC_SUCCESS
    assert bytes(place[:8]) == mr.read(8) == b"new home"
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, addr + 505) is e.IBV_WC_REM_ACCESS_ERR
    reconnect(pair)
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, old) is e.IBV_WC_REM_ACCESS_ERR


def test_the_protection_domain_changes_and_is_then_in_use(pair) -> None:
    other = PD(pair.b.ctx)
    mr = MR(pair.b.pd, 64, ALL)
    mr.rereg(e.IBV_REREG_MR_CHANGE_PD, pd=other)
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, mr.buf) is e.IBV_WC_REM_ACCESS_ERR
    reconnect(pair)
    mr.rereg(e.IBV_REREG_MR_CHANGE_PD, pd=pair.b.pd)
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, mr.buf) is e.IBV_WC_SUCCESS
    mr.rereg(e.IBV_REREG_MR_CHANGE_PD, pd=other)
    other.close()  # closes the region, too
    assert mr.buf == 0


def test_all_of_it_changes_at_once(pair) -> None:
    other, place = PD(pair.b.ctx), bytearray(64)
    addr = ctypes.addressof(ctypes.c_char.from_buffer(place))
    mr = MR(other, 4096, e.IBV_ACCESS_LOCAL_WRITE)
    flags = (
        e.IBV_REREG_MR_CHANGE_TRANSLATION | e.IBV_REREG_MR_CHANGE_PD | e.IBV_REREG_MR_CHANGE_ACCESS
    )
    mr.rereg(flags, pd=pair.b.pd, addr=addr, length=64, access=ALL)
    pair.a.mr.write(b"all of it")
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, addr, 9) is e.IBV_WC_SUCCESS
    assert bytes(place[:9]) == b"all of it"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"flags": 0}, errno.EINVAL),
        ({"flags": 8}, errno.EINVAL),
        ({"flags": e.IBV_REREG_MR_CHANGE_PD}, errno.EINVAL),
        ({"flags": e.IBV_REREG_MR_CHANGE_TRANSLATION}, errno.EINVAL),
        ({"flags": e.IBV_REREG_MR_CHANGE_TRANSLATION, "addr": PAGE, "length": 64}, errno.EFAULT),
        (
            {"flags": e.IBV_REREG_MR_CHANGE_ACCESS, "access": e.IBV_ACCESS_REMOTE_WRITE},
            errno.EINVAL,
        ),
        ({"flags": e.IBV_REREG_MR_CHANGE_ACCESS, "access": 1 << 10}, errno.EOPNOTSUPP),
        ({"flags": e.IBV_REREG_MR_CHANGE_TRANSLATION, "access": 1}, errno.EINVAL),
    ],
)
def test_what_is_refused_leaves_the_region_as_it_was(pair, options, code: int) -> None:
    mr = pair.b.mr
    with pytest.raises(PyverbsRDMAError, match="IBV_REREG_MR_ERR_INPUT") as caught:
        mr.rereg(**options)
    assert caught.value.error_code == code
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, mr.buf) is e.IBV_WC_SUCCESS


# --- on demand -------------------------------------------------------------------------------


def test_a_region_on_demand_is_used_like_any_other(pair) -> None:
    mr = MR(pair.b.pd, 3 * PAGE, ON_DEMAND)
    pair.a.mr.write(b"on demand")
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, mr.buf + 2 * PAGE - 4, 9) is e.IBV_WC_SUCCESS
    assert mr.read(9, 2 * PAGE - 4) == b"on demand"
    assert rdma(pair, e.IBV_WR_RDMA_READ, mr.rkey, mr.buf + 2 * PAGE - 4, 9) is e.IBV_WC_SUCCESS
    assert rdma(pair, e.IBV_WR_ATOMIC_FETCH_AND_ADD, mr.rkey, mr.buf) is e.IBV_WC_SUCCESS
    assert mr.read(1) == b"\1"
    pair.b.qp.post_recv(RecvWR(2, sg=[mr.sge(PAGE, PAGE)]))
    pair.a.qp.post_send(SendWR(3, sg=[pair.a.mr.sge(0, PAGE)]))
    assert pair.b.wait_ok()[0].byte_len == PAGE
    pair.a.wait_ok()


@pytest.mark.parametrize(
    "opcode",
    [e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_ATOMIC_FETCH_AND_ADD],
)
def test_memory_that_is_not_there_fails_the_peers_request_and_nobody_else(
    pair, pages: Pages, opcode: int
) -> None:
    mr = MR(pair.b.pd, 2 * PAGE, ON_DEMAND, address=pages.addr)
    assert rdma(pair, opcode, mr.rkey, mr.buf + PAGE) is e.IBV_WC_SUCCESS
    pages.away()
    assert rdma(pair, opcode, mr.rkey, mr.buf + PAGE) is e.IBV_WC_REM_OP_ERR
    reconnect(pair)
    assert rdma(pair, opcode, mr.rkey, mr.buf) is e.IBV_WC_SUCCESS
    pages.back()
    assert rdma(pair, opcode, mr.rkey, mr.buf + PAGE) is e.IBV_WC_SUCCESS


def test_memory_that_is_not_there_fails_local_use(pair, pages: Pages) -> None:
    mr = MR(pair.a.pd, 2 * PAGE, ON_DEMAND, address=pages.addr)
    pages.away()
    write = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[mr.sge(PAGE, 64)])
    write.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf)
    pair.a.qp.post_send(write)
    assert pair.a.wait()[0].status is e.IBV_WC_LOC_PROT_ERR
    reconnect(pair)
    read = SendWR(2, e.IBV_WR_RDMA_READ, sg=[mr.sge(PAGE - 8, 16)])
    read.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf)
    pair.a.qp.post_send(read)
    assert pair.a.wait()[0].status is e.IBV_WC_LOC_PROT_ERR
    reconnect(pair)
    pair.a.qp.post_recv(RecvWR(3, sg=[mr.sge(PAGE, 64)]))
    pair.b.qp.post_send(SendWR(4, sg=[pair.b.mr.sge(0, 64)]))
    assert pair.a.wait()[0].status is e.IBV_WC_LOC_PROT_ERR
    assert pair.b.wait()[0].status is e.IBV_WC_REM_OP_ERR
    reconnect(pair)
    pages.back()
    pair.a.qp.post_recv(RecvWR(3, sg=[mr.sge(PAGE, 64)]))
    pair.b.qp.post_send(SendWR(4, sg=[pair.b.mr.sge(0, 64)]))
    pair.a.wait_ok()
    pair.b.wait_ok()


def test_memory_that_may_not_be_written_is_read_alone(pair, pages: Pages) -> None:
    mr = MR(pair.b.pd, 2 * PAGE, ON_DEMAND, address=pages.addr)
    pages.away(mmap.PROT_READ)
    assert rdma(pair, e.IBV_WR_RDMA_READ, mr.rkey, mr.buf + PAGE) is e.IBV_WC_SUCCESS
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, mr.buf + PAGE) is e.IBV_WC_REM_OP_ERR
    assert pages.bytes_at(PAGE, 8) == bytes(8)


def test_an_implicit_region_is_all_memory_there_is(pair) -> None:
    mr = MR(pair.b.pd, 512, ON_DEMAND, implicit=True)
    assert (len(mr), mr.length) == (512, (1 << 64) - 1)
    pair.a.mr.write(b"anywhere")
    elsewhere = bytearray(64)
    addr = ctypes.addressof(ctypes.c_char.from_buffer(elsewhere))
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, addr) is e.IBV_WC_SUCCESS
    assert bytes(elsewhere[:8]) == b"anywhere"
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, mr.buf) is e.IBV_WC_SUCCESS
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, mr.rkey, 64) is e.IBV_WC_REM_OP_ERR


def test_the_device_says_what_it_does_on_demand(end) -> None:
    caps = end.ctx.query_device_ex().odp_caps
    assert caps.general_caps == e.IBV_ODP_SUPPORT | e.IBV_ODP_SUPPORT_IMPLICIT
    assert caps.rc_odp_caps & e.IBV_ODP_SUPPORT_ATOMIC
    assert caps.ud_odp_caps & e.IBV_ODP_SUPPORT_SEND
    assert caps.xrc_odp_caps & e.IBV_ODP_SUPPORT_SRQ_RECV


# --- advice ----------------------------------------------------------------------------------

PREFETCH = e._IBV_ADVISE_MR_ADVICE_PREFETCH
PREFETCH_WRITE = e._IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
NO_FAULT = e._IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT


@pytest.mark.parametrize("flags", [0, e._IBV_ADVISE_MR_FLAG_FLUSH])
@pytest.mark.parametrize("advice", [PREFETCH, PREFETCH_WRITE, NO_FAULT])
def test_pages_are_prefetched(end, advice: int, flags: int) -> None:
    mr = MR(end.pd, 4 * PAGE, ON_DEMAND)
    assert end.pd.advise_mr(advice, flags, [mr.sge(), mr.sge(PAGE, 1)]) == 0
    assert mr.read() == bytes(4 * PAGE)


def refuses(pd: PD, code: int, advice: int, sges: list[SGE], flags: int = 0) -> None:
    with pytest.raises(PyverbsRDMAError, match="Failed to advise MR") as caught:
        pd.advise_mr(advice, flags, sges)
    assert caught.value.error_code == code


def test_advice_is_refused_as_the_man_page_says(end, pages: Pages) -> None:
    mr = MR(end.pd, 2 * PAGE, ON_DEMAND, address=pages.addr)
    read_only = MR(end.pd, PAGE, e.IBV_ACCESS_ON_DEMAND)
    other = PD(end.ctx)
    refuses(end.pd, errno.EFAULT, PREFETCH, [SGE(mr.buf, 2 * PAGE + 1, mr.lkey)])
    refuses(end.pd, errno.EFAULT, PREFETCH, [SGE(mr.buf, 8, 0xFFFFF000)])
    refuses(end.pd, errno.ENOENT, PREFETCH, [SGE(mr.buf, 8, mr.lkey ^ 1)])
    refuses(end.pd, errno.EINVAL, PREFETCH, [end.mr.sge()])
    refuses(end.pd, errno.EINVAL, PREFETCH, [mr.sge()], 2)
    refuses(end.pd, errno.EINVAL, PREFETCH, [])
    refuses(end.pd, errno.ENOTSUP, 7, [mr.sge()])
    refuses(end.pd, errno.EPERM, PREFETCH_WRITE, [read_only.sge()])
    refuses(other, errno.EPERM, PREFETCH, [mr.sge()])
    pages.away()
    refuses(end.pd, errno.EFAULT, PREFETCH, [mr.sge()])


# --- the null region -------------------------------------------------------------------------


def test_a_null_region_reads_zeros_and_swallows_what_comes(pair) -> None:
    null = NullMR(pair.a.pd)
    pair.b.mr.write(b"x" * 64)
    write = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[SGE(0xDEAD0000, 32, null.lkey)])
    write.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf + 16)
    pair.a.qp.post_send(write)
    pair.a.wait_ok()
    assert pair.b.mr.read(64) == b"x" * 16 + bytes(32) + b"x" * 16
    # Of 64 bytes the middle is dropped.
    sges = [pair.a.mr.sge(0, 8), SGE(5, 48, null.lkey), pair.a.mr.sge(8, 8)]
    read = SendWR(2, e.IBV_WR_RDMA_READ, sg=sges)
    read.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf)
    pair.a.qp.post_send(read)
    pair.a.wait_ok()
    assert pair.a.mr.read(24) == b"x" * 16 + bytes(8)
    sink = NullMR(pair.b.pd)
    pair.b.qp.post_recv(RecvWR(3, sg=[SGE(0, 1 << 31, sink.lkey)]))
    pair.a.qp.post_send(SendWR(4, sg=[pair.a.mr.sge(0, 60_000)]))
    assert pair.b.wait_ok()[0].byte_len == 60_000
    pair.a.wait_ok()


def test_a_null_region_has_no_remote_use_and_does_not_change(pair) -> None:
    null = NullMR(pair.b.pd)
    assert rdma(pair, e.IBV_WR_RDMA_WRITE, null.lkey, 0) is e.IBV_WC_REM_ACCESS_ERR
    with pytest.raises(PyverbsRDMAError) as caught:
        null.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=ALL)
    assert caught.value.error_code == errno.EINVAL
