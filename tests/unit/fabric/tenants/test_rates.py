# SPDX-License-Identifier: BSD-3-Clause
"""Rates of tenants, partitions and members: from the model to the rows that senders go by."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nupa.base.errors import FabricError
from nupa.fabric import Fabric
from nupa.fabric.tenants.rate import RateUse, read_rates
from nupa.verbs import SendWR, connect
from nupa.verbs import enums as e
from tests.unit.conftest import End, Pair


def rows(fabric: Fabric) -> list[tuple[str, int, int, int, int]]:
    return sorted(rate[:5] for rate in read_rates(fabric))


def write(pair: Pair, size: int, wr_id: int = 1) -> None:
    wr = SendWR(wr_id, e.IBV_WR_RDMA_WRITE, sg=[pair.a.mr.sge(0, size)])
    wr.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf)
    pair.a.qp.post_send(wr)


def test_a_tenants_rate_is_made_changed_and_removed(fabric: Fabric) -> None:
    assert rows(fabric) == []
    tenant = fabric.tenants.add("red", rate="10MB/s")
    assert rows(fabric) == [("tenant", tenant.id, 0, 0, 10_000_000)]
    tenant.set(rate=5000)
    assert rows(fabric) == [("tenant", tenant.id, 0, 0, 5000)]
    tenant.set(rate=0)
    assert rows(fabric) == []
    tenant.set(rate=1)
    fabric.tenants.remove("red")
    assert rows(fabric) == []


def test_a_partitions_and_its_members_rates_go_with_them(fabric: Fabric) -> None:
    red = fabric.partitions.add("red", pkey=0x12, rate=1000)
    red.join("host0", rate=2000)
    red.join("host1", "limited", rate=3000)
    partition = ("partition", 0, 0, 0x12, 1000)
    member0, member1 = ("member", 0, 0, 0x12, 2000), ("member", 0, 1, 0x12, 3000)
    assert rows(fabric) == [member0, member1, partition]
    red.set(rate=0)
    red.join("host1", rate=0)
    assert rows(fabric) == [member0]
    red.join("host1", rate=3000)
    red.leave("host0")
    assert rows(fabric) == [member1]
    red.set(rate=1000)
    fabric.partitions.remove("red")
    assert rows(fabric) == []


def test_a_host_that_is_released_has_no_rate(fabric: Fabric) -> None:
    tenant = fabric.tenants.add("red")
    tenant.assign("host0")
    fabric.partitions.add("red", tenant=tenant, pkey=0x12).join("host0", rate=2000)
    assert rows(fabric) == [("member", 0, 0, 0x12, 2000)]
    tenant.release("host0")
    assert rows(fabric) == []


def test_the_257th_rate_is_refused_and_its_tenant_is_not_made(fabric: Fabric) -> None:
    red = fabric.partitions.add("red", pkey=0x12, rate=1)
    for number in range(255):
        fabric.partitions.add(f"p{number}", pkey=0x100 + number, rate=1)
    with pytest.raises(FabricError, match="256 rates"):
        fabric.tenants.add("one-too-many", rate=1)
    assert "one-too-many" not in fabric.tenants
    with pytest.raises(FabricError, match="256 rates"):
        red.join("host0", rate=1)
    assert fabric.host("host0").pkeys == [0xFFFF]
    red.set(rate=0)
    fabric.tenants.add("in-its-place", rate=1)


@pytest.fixture
def of_red(fabric: Fabric, make_pair: Callable[..., Pair]) -> Pair:
    tenant = fabric.tenants.add("red", rate="1GB/s")
    partition = fabric.partitions.add("red", tenant=tenant, pkey=0x12)
    for host in ("host0", "host1"):
        tenant.assign(host)
        partition.join(host)
    return make_pair(size=1 << 20)


def test_a_tenants_writes_take_their_time(fabric: Fabric, of_red: Pair) -> None:
    size = 1 << 20
    fabric.tenants.get("red").set(rate=20_000_000)
    start = time.monotonic()
    write(of_red, size)
    of_red.a.wait_ok()
    # 52 ms, less the burst, the time ahead and a piece.
    assert time.monotonic() - start > 0.046
    (rate,) = read_rates(fabric)
    pieces = -(-size // 8192)
    assert rate[:5] == RateUse("tenant", 1, 0, 0, 20_000_000, 0, 0)[:5]
    assert rate.bytes == size + 64 * pieces


def test_a_rate_changes_under_a_request_that_waits(fabric: Fabric, of_red: Pair) -> None:
    tenant = fabric.tenants.get("red")
    tenant.set(rate=1)
    write(of_red, 1 << 20)
    with pytest.raises(TimeoutError):
        of_red.a.cq.wait(1, 0.05)
    tenant.set(rate="10GB/s")
    of_red.a.wait_ok()


def test_a_host_given_to_a_tenant_has_its_rate_at_once(fabric: Fabric) -> None:
    tenant = fabric.tenants.add("red", rate=1_000_000_000)
    partition = fabric.partitions.add("red", tenant=tenant, pkey=0x12)
    for host in ("host0", "host1"):
        tenant.assign(host)
        partition.join(host)
    (before,) = read_rates(fabric)
    assert before.bytes == 0
    pair = Pair(End(fabric, 0), End(fabric, 1))
    try:
        connect(pair.a.qp, pair.b.qp)
        write(pair, 4096)
        pair.a.wait_ok()
    finally:
        pair.a.ctx.close()
        pair.b.ctx.close()
    (after,) = read_rates(fabric)
    assert after.bytes == 4096 + 64


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[4] / "docs" / "rates.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(block, {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in printed] == [
        ["tenant", "1000000000", "0"],
        ["partition", "200000000", "0"],
        ["member", "150000000", "0"],
        ["member", "150000000", "0"],
    ]
