# SPDX-License-Identifier: BSD-3-Clause
"""Parent and thread domains: another face of a PD, with allocators for queues."""

import errno
from typing import Any

import pytest

from nupa.verbs import (
    CQEX,
    PD,
    QP,
    CqInitAttrEx,
    ParentDomain,
    ParentDomainContext,
    ParentDomainInitAttr,
    PyverbsRDMAError,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    ThreadDomain,
    connect,
    mem_alloc,
)
from nupa.verbs import enums as e
from nupa.verbs import pd as pd_module


class Heap:
    """Allocators that count."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.given = 0

    def alloc(self, pd: PD, context: Any, size: int, alignment: int, kind: int) -> int:
        assert context.user_data is self
        assert pd is context.pd
        assert kind > 0
        address = mem_alloc.posix_memalign(size, alignment)
        self.held[address] = size
        self.given += 1
        return address

    def free(self, _pd: PD, _context: Any, address: int, _kind: int) -> None:
        del self.held[address]
        mem_alloc.free(address)


def parent(end: Any, alloc: Any = None, free: Any = None, user_data: Any = None) -> ParentDomain:
    context = ParentDomainContext(end.pd, alloc, free, user_data) if alloc else None
    return ParentDomain(end.ctx, ParentDomainInitAttr(end.pd, context))


def make_qp(end: Any, pd: PD) -> QP:
    init = QPInitAttr(e.IBV_QPT_RC, None, end.cq, end.cq, cap=QPCap(16, 16, 2, 2))
    return QP(pd, init)


def send(a: Any, a_qp: QP, b: Any, b_qp: QP) -> None:
    connect(a_qp, b_qp)
    a.mr.write(b"over another domain")
    b_qp.post_recv(RecvWR(1, sg=[b.mr.sge()]))
    a_qp.post_send(SendWR(2, sg=[a.mr.sge(0, 19)]))
    a.wait_ok()
    b.wait_ok()
    assert b.mr.read(19) == b"over another domain"


def test_queues_lie_where_the_allocator_put_them_and_go_back_to_it(make_end) -> None:
    a, b = make_end(0), make_end(1)
    heap = Heap()
    domain = parent(a, heap.alloc, heap.free, heap)
    qp = make_qp(a, domain)
    assert len(heap.held) == 2
    send(a, qp, b, b.qp)
    domain.close()
    assert qp._c is None
    assert heap.held == {}


@pytest.mark.parametrize("alloc", [None, lambda *_: e._IBV_ALLOCATOR_USE_DEFAULT])
def test_without_an_allocator_of_its_own_it_is_its_pd(make_end, alloc: Any) -> None:
    a, b = make_end(0), make_end(1)
    domain = parent(a, alloc, lambda *_: None)
    assert domain.handle == a.pd.handle
    send(a, make_qp(a, domain), b, b.qp)


def test_memory_that_is_refused_is_an_error(end) -> None:
    def refuse(*_: Any) -> int:
        raise MemoryError("no more")

    domain = parent(end, refuse, lambda *_: None)
    with pytest.raises(PyverbsRDMAError) as caught:
        make_qp(end, domain)
    assert caught.value.error_code == errno.ENOMEM


def test_an_extended_cq_may_lie_in_a_parent_domain(end) -> None:
    heap = Heap()
    domain = parent(end, heap.alloc, heap.free, heap)
    attr = CqInitAttrEx(100, comp_mask=e.IBV_CQ_INIT_ATTR_MASK_PD, parent_domain=domain)
    with CQEX(end.ctx, attr):
        assert heap.given == len(heap.held) == 1
    assert heap.held == {}


def test_closing_the_pd_closes_its_parent_domains(end) -> None:
    domain = parent(end)
    end.pd.close()
    assert domain._c is None


def test_a_thread_domain_is_held_by_its_parent_domain(end) -> None:
    td = ThreadDomain(end.ctx)
    domain = ParentDomain(end.ctx, ParentDomainInitAttr(end.pd, td=td))
    td.close()
    assert domain._c is None


def test_pyverbs_finds_them_beside_pds() -> None:
    assert pd_module.ParentDomain is ParentDomain
    assert pd_module.ParentDomainInitAttr is ParentDomainInitAttr
    with pytest.raises(AttributeError):
        _ = pd_module.GrandparentDomain
