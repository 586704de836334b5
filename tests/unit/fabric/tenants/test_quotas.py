# SPDX-License-Identifier: BSD-3-Clause
"""Quotas of tenants: objects up to the limit and one past it, over all attachments."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from nupa._engine import ffi
from nupa.fabric import Fabric, LocalError, NupaError, Quotas, Tenant
from nupa.topology.topology import star
from nupa.verbs import CQ, MR, PD, QP, Context, QPCap, QPInitAttr
from nupa.verbs import enums as e
from nupa.verbs.base.errors import PyverbsRDMAError
from nupa.verbs.device import DM, AllocDmAttr
from nupa.verbs.mw import MW
from tests.unit.child import failure_in_child

EXTENT = 65536
ACCESS = e.IBV_ACCESS_LOCAL_WRITE


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(hosts=3) as fabric:
        yield fabric


@pytest.fixture
def red(fabric: Fabric) -> Tenant:
    """The tenant of host0 and host1."""
    tenant = fabric.tenants.add("red")
    tenant.assign("host0")
    tenant.assign("host1")
    return tenant


def refusals(fabric: Fabric) -> list[str]:
    return [event.text for event in fabric.events.read() if event.kind == "quota.refused"]


def test_qps(fabric: Fabric, red: Tenant) -> None:
    red.set(quotas=Quotas(qps=3))
    with Context(fabric=fabric, host="host0") as a, Context(fabric=fabric, host="host1") as b:
        made = [_qp(a), _qp(b), _qp(a)]
        assert red.used.qps == 3
        for context in (a, b):
            with pytest.raises(PyverbsRDMAError) as refused:
                _qp(context)
            assert refused.value.errno == errno.ENOMEM
        made.pop().close()
        assert red.used.qps == 2
        made.append(_qp(b))
        with pytest.raises(PyverbsRDMAError):
            _qp(a)
        # Another tenant's hosts, and those of none, are not concerned.
        with Context(fabric=fabric, host="host2") as free:
            others = [_qp(free) for _ in range(5)]
        assert len(others) == 5
    assert red.used == Quotas()
    assert refusals(fabric) == ["host host0: tenant red has a quota of 3 QPs"]


def test_mrs_and_their_bytes(fabric: Fabric, red: Tenant) -> None:
    red.set(quotas=Quotas(mrs=2, registered_bytes=10_000))
    with Context(fabric=fabric, host="host0") as context, PD(context) as pd:
        first = MR(pd, 6000, ACCESS)
        with pytest.raises(PyverbsRDMAError) as refused:
            MR(pd, 4001, ACCESS)
        assert refused.value.errno == errno.ENOMEM
        assert red.used[1:3] == (1, 6000)
        second = MR(pd, 4000, ACCESS)
        assert red.used[1:3] == (2, 10_000)
        with pytest.raises(PyverbsRDMAError):
            MR(pd, 1, ACCESS)
        first.close()
        assert red.used[1:3] == (1, 4000)
        MR(pd, 6000, ACCESS)
        second.close()
    assert red.used == Quotas()


def test_a_region_that_changes_counts_as_it_is_then(fabric: Fabric, red: Tenant) -> None:
    red.set(quotas=Quotas(registered_bytes=10_000))
    with Context(fabric=fabric, host="host0") as context, PD(context) as pd:
        region, memory = MR(pd, 4000, ACCESS), bytearray(20_000)
        address = ffi.cast("uintptr_t", ffi.from_buffer(memory))
        translation = e.IBV_REREG_MR_CHANGE_TRANSLATION
        for length, used in ((10_000, 10_000), (10_001, 10_000), (7, 7), (10_000, 10_000)):
            with pytest.raises(PyverbsRDMAError) if length > 10_000 else nullcontext():
                region.rereg(translation, pd, int(address), length, 0)
            assert red.used.registered_bytes == used
        region.close()
        assert red.used == Quotas(attachments=1)


def test_windows_and_device_memory_are_regions(fabric: Fabric, red: Tenant) -> None:
    red.set(quotas=Quotas(mrs=2, pool_bytes=EXTENT))
    with Context(fabric=fabric, host="host0") as context, PD(context) as pd:
        window = MW(pd, e.IBV_MW_TYPE_1)
        with DM(context, AllocDmAttr(4096)):
            assert red.used == Quotas(mrs=2, pool_bytes=EXTENT, attachments=1)
            with pytest.raises(PyverbsRDMAError) as refused:
                DM(context, AllocDmAttr(4096))
            assert refused.value.errno == errno.ENOMEM
            with pytest.raises(PyverbsRDMAError):
                MW(pd, e.IBV_MW_TYPE_1)
        window.close()
        assert red.used == Quotas(attachments=1)


def test_the_pool(fabric: Fabric, red: Tenant) -> None:
    red.set(quotas=Quotas(pool_bytes=3 * EXTENT))
    with fabric.pool.alloc(2 * EXTENT, "a", host="host0"):
        assert red.used.pool_bytes == 2 * EXTENT
        with pytest.raises(LocalError, match="tenant") as refused:
            fabric.pool.alloc(EXTENT + 1, "b", host="host1")
        assert refused.value.errno == errno.EDQUOT
        with fabric.pool.alloc(EXTENT, "b", host="host1"):
            assert red.used.pool_bytes == 3 * EXTENT
            fabric.pool.alloc(9 * EXTENT, "c", host="host2").free()
    assert red.used.pool_bytes == 0
    assert refusals(fabric) == [
        f"host host1: tenant red has a quota of {3 * EXTENT} bytes of the pool"
    ]


def test_attachments(fabric: Fabric, red: Tenant) -> None:
    red.set(quotas=Quotas(attachments=1))
    with Context(fabric=fabric, host="host0") as first:
        assert red.used.attachments == 1
        with Context(fabric=fabric, host="host0"):  # the same attachment
            assert red.used.attachments == 1
        with pytest.raises(NupaError) as refused:
            Context(fabric=fabric, host="host1")
        assert refused.value.errno == errno.EDQUOT
        assert first
    with Context(fabric=fabric, host="host1"):
        assert red.used.attachments == 1


def test_a_quota_below_the_use_takes_nothing_away(fabric: Fabric, red: Tenant) -> None:
    with Context(fabric=fabric, host="host0") as context:
        made = [_qp(context) for _ in range(4)]
        red.set(quotas=Quotas(qps=2))
        assert red.used.qps == 4
        for left in (3, 2):
            made.pop().close()
            assert red.used.qps == left
            with pytest.raises(PyverbsRDMAError):
                _qp(context)
        made.pop().close()
        made.append(_qp(context))
        red.set(quotas=Quotas())
        made += [_qp(context) for _ in range(9)]


def test_use_goes_with_its_host(fabric: Fabric, red: Tenant) -> None:
    with Context(fabric=fabric, host="host0") as context:
        made = _qp(context)
        red.release("host0")
        assert red.used == Quotas()
        fabric.tenants.add("blue", quotas=Quotas(qps=1)).assign("host0")
        assert fabric.tenants.get("blue").used.qps == 1
        with pytest.raises(PyverbsRDMAError):
            _qp(context)
        assert made


@pytest.mark.usefixtures("folder")
def test_the_dead_do_not_count() -> None:
    with Fabric.create("quotas", star(2)) as fabric:
        red = fabric.tenants.add("red", quotas=Quotas(attachments=1, qps=1))
        red.assign("host0")
        kept = []

        def attach() -> None:  # and die with it
            own = Fabric.open("quotas")
            kept.append(_qp(Context(fabric=own, host="host0")))
            assert own.tenants.get("red").used[::4] == (1, 1)

        assert failure_in_child(attach) == ""
        assert red.used == Quotas()
        with Context(fabric=fabric, host="host0") as context:
            kept.append(_qp(context))
            assert red.used[::4] == (1, 1)
    Fabric.remove("quotas")


def _qp(context: Context) -> QP:
    cq = CQ(context, 1)
    init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(1, 1, 1, 1))
    return QP(PD(context), init)
