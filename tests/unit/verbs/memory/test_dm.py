# SPDX-License-Identifier: BSD-3-Clause
"""Device memory: allocated, copied to, registered, and reached by peers with load and store."""

import errno
import os

import pytest

from nupa.verbs import MR, PD, SGE, Context, RecvWR, SendWR
from nupa.verbs import enums as e
from nupa.verbs.base.errors import PyverbsRDMAError
from nupa.verbs.device import DM, AllocDmAttr
from nupa.verbs.mr import DMMR

ACCESS = (
    e.IBV_ACCESS_ZERO_BASED
    | e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)


@pytest.fixture(params=["local", "relay", "pool"])
def mover(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(make_pair, mover: str):
    return make_pair(mover=mover)


@pytest.fixture
def dm(pair):
    with DM(pair.b.ctx, AllocDmAttr(4096)) as dm:
        yield dm


def refused(code: int, *args: object, kind: type = DMMR) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        kind(*args)
    assert caught.value.error_code == code


def test_what_is_copied_to_device_memory_is_read_back(dm: DM) -> None:
    dm.copy_to_dm(8, b"12345678", 8)
    assert dm.copy_from_dm(4, 12) == bytes(4) + b"12345678"


@pytest.mark.parametrize(("offset", "length"), [(3, 4), (4, 3), (4096, 4), (0, 4100), (4092, 8)])
def test_copies_stay_inside_and_aligned(dm: DM, offset: int, length: int) -> None:
    with pytest.raises(PyverbsRDMAError, match="Failed to copy to dm") as to:
        dm.copy_to_dm(offset, bytes(length), length)
    with pytest.raises(PyverbsRDMAError, match="Failed to copy from dm") as back:
        dm.copy_from_dm(offset, length)
    assert to.value.error_code == back.value.error_code == errno.EINVAL


def test_the_limit_is_the_pool_and_one_past_it_is_refused(end) -> None:
    limit = end.ctx.query_device_ex().max_dm_size
    assert limit > 0
    with DM(end.ctx, AllocDmAttr(limit)) as dm:
        dm.copy_to_dm(limit - 4, b"last", 4)
        refused(errno.ENOMEM, end.ctx, AllocDmAttr(4), kind=DM)
    with pytest.raises(PyverbsRDMAError, match=f"Max available size {limit}") as caught:
        DM(end.ctx, AllocDmAttr(limit + 1))
    assert caught.value.error_code == errno.EINVAL


@pytest.mark.parametrize(
    "attr", [AllocDmAttr(0), AllocDmAttr(64, 0, 1), AllocDmAttr(64, 31), AllocDmAttr(64, 200)]
)
def test_what_cannot_be_allocated_is_refused(end, attr: AllocDmAttr) -> None:
    refused(errno.EINVAL, end.ctx, attr, kind=DM)


def test_freed_memory_can_be_allocated_again_and_is_zero(end) -> None:
    limit = end.ctx.query_device_ex().max_dm_size
    for _ in range(3):
        with DM(end.ctx, AllocDmAttr(limit, 12)) as dm:
            assert dm.copy_from_dm(0, 64) == bytes(64)
            dm.copy_to_dm(0, b"x" * 64, 64)


def test_registration_is_zero_based_and_inside(pair, dm: DM) -> None:
    plain = e.IBV_ACCESS_LOCAL_WRITE
    refused(errno.EINVAL, pair.b.pd, 4096, plain, dm, 0)
    refused(errno.EINVAL, pair.b.pd, 4097, ACCESS, dm, 0)
    refused(errno.EINVAL, pair.b.pd, 4096, ACCESS, dm, 1)
    refused(errno.EINVAL, pair.b.pd, 4, ACCESS & ~plain, dm, 0)
    with DMMR(pair.b.pd, 4096, ACCESS, dm, 0) as mr:
        assert mr.length == 4096


def test_memory_that_is_registered_is_not_freed(pair, dm: DM) -> None:
    from nupa._engine import lib

    with DMMR(pair.b.pd, 64, ACCESS, dm, 0):
        assert lib.nupa_free_dm(dm._c) == errno.EBUSY
    dm.close()


def test_peers_write_and_read_device_memory(pair, dm: DM) -> None:
    with DMMR(pair.b.pd, 1024, ACCESS, dm, 512) as mr:
        pair.a.mr.write(b"from the peer...")
        write = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[pair.a.mr.sge(0, 16)])
        write.set_wr_rdma(mr.rkey, 256)
        pair.a.qp.post_send(write)
        pair.a.wait_ok()
        assert dm.copy_from_dm(512 + 256, 16) == b"from the peer..."
        assert mr.read(16, 256) == b"from the peer..."
        read = SendWR(2, e.IBV_WR_RDMA_READ, sg=[pair.a.mr.sge(100, 16)])
        read.set_wr_rdma(mr.rkey, 256)
        pair.a.qp.post_send(read)
        pair.a.wait_ok()
        assert pair.a.mr.read(16, 100) == b"from the peer..."
        beyond = SendWR(3, e.IBV_WR_RDMA_WRITE, sg=[pair.a.mr.sge(0, 16)])
        beyond.set_wr_rdma(mr.rkey, 1024 - 15)
        pair.a.qp.post_send(beyond)
        assert pair.a.wait()[0].status is e.IBV_WC_REM_ACCESS_ERR
        assert dm.copy_from_dm(1536, 16) == bytes(16)


def test_atomics_work_on_device_memory(pair, dm: DM) -> None:
    with DMMR(pair.b.pd, 64, ACCESS, dm, 0) as mr:
        dm.copy_to_dm(8, (41).to_bytes(8, "little"), 8)
        add = SendWR(1, e.IBV_WR_ATOMIC_FETCH_AND_ADD, sg=[pair.a.mr.sge(0, 8)])
        add.set_wr_atomic(mr.rkey, 8, 1)
        pair.a.qp.post_send(add)
        pair.a.wait_ok()
        swap = SendWR(2, e.IBV_WR_ATOMIC_CMP_AND_SWP, sg=[pair.a.mr.sge(8, 8)])
        swap.set_wr_atomic(mr.rkey, 8, 42, 7)
        pair.a.qp.post_send(swap)
        pair.a.wait_ok()
        assert pair.a.mr.read(16) == (41).to_bytes(8, "little") + (42).to_bytes(8, "little")
        assert int.from_bytes(dm.copy_from_dm(8, 8), "little") == 7


def test_sends_leave_and_arrive_in_device_memory(pair, dm: DM) -> None:
    with (
        DM(pair.a.ctx, AllocDmAttr(4096)) as source,
        DMMR(pair.a.pd, 4096, ACCESS, source, 0) as from_mr,
        DMMR(pair.b.pd, 4096, ACCESS, dm, 0) as to_mr,
    ):
        data = bytes(range(256)) * 4
        source.copy_to_dm(0, data, 1024)
        pair.b.qp.post_recv(RecvWR(1, sg=[SGE(64, 1024, to_mr.lkey)]))
        pair.a.qp.post_send(SendWR(2, sg=[SGE(0, 1024, from_mr.lkey)]))
        assert pair.b.wait_ok()[0].byte_len == 1024
        pair.a.wait_ok()
        assert dm.copy_from_dm(64, 1024) == data


def test_a_child_of_a_fork_allocates_memory_of_its_own(end) -> None:
    """The copy of its attachment is private: changes of it reach no process."""
    limit = end.ctx.query_device_ex().max_dm_size
    with DM(end.ctx, AllocDmAttr(4096)) as dm:
        dm.copy_to_dm(0, b"mine", 4)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                own = DM(end.ctx, AllocDmAttr(limit // 10))
                own.copy_to_dm(0, b"hers", 4)
                code = 0 if own.copy_from_dm(0, 4) == b"hers" else 2
                dm.copy_to_dm(0, b"hers", 4)
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert dm.copy_from_dm(0, 4) == b"mine"


def test_closing_the_context_frees_its_device_memory(fabric) -> None:
    ctx = Context(fabric=fabric, host=0)
    pd, limit = PD(ctx), ctx.query_device_ex().max_dm_size
    mr = DMMR(pd, 4096, ACCESS, DM(ctx, AllocDmAttr(limit)), 0)
    ctx.close()
    assert mr.dm is None
    with Context(fabric=fabric, host=0) as again:
        DM(again, AllocDmAttr(limit)).close()
    assert isinstance(mr, MR)
