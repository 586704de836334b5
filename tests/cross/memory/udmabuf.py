# SPDX-License-Identifier: BSD-3-Clause
"""Regions of dma-bufs between processes, whose memory the kernel copies for no peer.

These tests need /dev/udmabuf: tests/system/test_dmabuf.py runs them in a guest, which has it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cross.conftest import Pair
from tests.cross.peers.node import pattern

SIZE = 3 << 20


@pytest.fixture(params=["cma", "relay", "shared", None], ids=lambda mover: mover or "chosen")
def pair(request: pytest.FixtureRequest, make_pair: Callable[..., Pair]) -> Pair:
    return make_pair(mover=request.param, size=SIZE)


@pytest.mark.parametrize(("source", "target"), [(True, True), (True, False), (False, True)])
def test_each_operation_carries_its_bytes(pair: Pair, source: bool, target: bool) -> None:
    a, b, data = pair.a, pair.b, pattern(1, SIZE)
    ours = a.register(SIZE, dmabuf=source)
    theirs = b.register(SIZE, dmabuf=target)
    a.store(data, ours.index)

    a.post("write", ours.index, to=theirs)
    assert a.wait()[0].status == "SUCCESS"
    assert b.load(theirs.index) == data

    a.store(bytes(SIZE), ours.index)
    a.post("read", ours.index, to=theirs)
    assert a.wait()[0].status == "SUCCESS"
    assert a.load(ours.index) == data

    b.store(bytes(SIZE), theirs.index)
    b.recv(theirs.index)
    a.post("send", ours.index, pieces=4)
    assert a.wait()[0].status == b.wait()[0].status == "SUCCESS"
    assert b.load(theirs.index) == data

    a.post("faa", ours.index, 0, 8, to=theirs, operands=(1, 0))
    assert a.wait()[0].status == "SUCCESS"
    before = int.from_bytes(data[:8], "little")
    assert int.from_bytes(b.load(theirs.index, 0, 8), "little") == (before + 1) % (1 << 64)


def test_a_region_that_is_gone_is_refused(pair: Pair) -> None:
    theirs = pair.b.register(SIZE, dmabuf=True)
    pair.a.post("write", 0, 0, 8, to=theirs)
    assert pair.a.wait()[0].status == "SUCCESS"
    pair.b.deregister(theirs.index)
    pair.a.post("write", 0, 0, 8, to=theirs)
    assert pair.a.wait()[0].status == "REM_ACCESS_ERR"
