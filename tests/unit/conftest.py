# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of unit tests: two hosts in this process, with a queue pair each; machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from nupa.fabric import Fabric
from nupa.verbs import CQ, MR, PD, QP, WC, CompChannel, Context, QPAttr, QPCap, QPInitAttr, connect
from nupa.verbs import enums as e

if TYPE_CHECKING:
    from tests.unit.vm.world import World

ALL_ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)


class End:
    """One side: context, PD, CQ (with a channel), region of SIZE bytes, QP."""

    WAIT_S = 10.0  # a deadline: what is awaited comes at once, or not at all
    SIZE = 1 << 16
    QKEY = 0x11111111

    def __init__(
        self,
        fabric: Fabric,
        host: int,
        qp_type: int = e.IBV_QPT_RC,
        *,
        mover: str | None = None,
        access: int = ALL_ACCESS,
        size: int = 1 << 16,
        cap: QPCap | None = None,
        cqe: int = 1024,
        sq_sig_all: int = 1,
        make_srq: Callable[[PD], Any] | None = None,
    ) -> None:
        self.ctx = Context(fabric=fabric, host=host, mover=mover)
        self.pd = PD(self.ctx)
        self.channel = CompChannel(self.ctx)
        self.cq = CQ(self.ctx, cqe, None, self.channel)
        self.mr = MR(self.pd, size, access)
        self.srq = make_srq(self.pd) if make_srq else None
        init = QPInitAttr(
            qp_type=qp_type,
            scq=self.cq,
            rcq=self.cq,
            srq=self.srq,
            cap=cap or QPCap(64, 64, 8, 8, 256),
            sq_sig_all=sq_sig_all,
        )
        attr = QPAttr()
        attr.qkey = self.QKEY
        self.qp = QP(self.pd, init, attr if qp_type == e.IBV_QPT_UD else None)

    def wait(self, count: int = 1) -> list[WC]:
        """Returns the next *count* completions."""
        return self.cq.wait(count, self.WAIT_S)

    def wait_ok(self, count: int = 1) -> list[WC]:
        """Returns the same, all of which have to be successes."""
        return [wc.raise_for_status() for wc in self.wait(count)]


@dataclass
class Pair:
    a: End
    b: End


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(hosts=2) as fabric:
        yield fabric


@pytest.fixture
def make_end(fabric: Fabric) -> Iterator[Callable[..., End]]:
    """Makes one side on a host, its QP in RESET (UD: in RTS)."""
    ends: list[End] = []

    def make(host: int = 0, qp_type: int = e.IBV_QPT_RC, **options: Any) -> End:
        ends.append(End(fabric, host, qp_type, **options))
        return ends[-1]

    yield make
    for end in ends:
        end.ctx.close()


@pytest.fixture
def make_pair(make_end: Callable[..., End]) -> Callable[..., Pair]:
    """Makes two ends on two hosts; RC and UC are connected, with *path* as options of connect()."""

    def make(
        qp_type: int = e.IBV_QPT_RC, path: dict[str, int] | None = None, **options: Any
    ) -> Pair:
        pair = Pair(make_end(0, qp_type, **options), make_end(1, qp_type, **options))
        if qp_type != e.IBV_QPT_UD:
            connect(pair.a.qp, pair.b.qp, **(path or {}))
        return pair

    return make


@pytest.fixture(params=["local", "relay"])
def mover(request: pytest.FixtureRequest) -> str:
    """How bulk moves between the two hosts of this process."""
    return str(request.param)


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    """RC, by the best mover."""
    return make_pair()


@pytest.fixture
def end(make_end: Callable[..., End]) -> End:
    """One side alone, its QP in RESET."""
    return make_end()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Machines of this test alone."""
    from tests.unit.vm.world import make_world

    with make_world(monkeypatch) as world:
        yield world
