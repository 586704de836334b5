# SPDX-License-Identifier: BSD-3-Clause
"""uet-htsim's experiments: the time of the last flow is within 10 % of that simulator's.

The rows are those of its published validation, with 100 Gb/s links of 1 us, packets of 4,150 bytes
and queues of one round trip.  Its time ends where the sender has the last acknowledgement.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from nupa.model.engine.packets.run import PacketTransfer, Run, run
from nupa.model.network.graph import Graph
from tests.unit.model.packets import topologies as topo

MB2 = 2_000_000


class Row(NamedTuple):
    name: str
    tail_us: float
    graph: Graph
    work: list[PacketTransfer]
    window: int = 0
    paths: int = 128
    adapt: bool = False  #: as that simulator does where its topology is oversubscribed


def tail_us(found: Run) -> float:
    return max(found.times_ps[2::3]) / 1e6


def result(row: Row, seed: int) -> Run:
    adapt = None if row.adapt else 0.0
    protocols = topo.htsim_protocol(row.window, row.paths, adapt)
    return run(row.graph, row.work, protocols=protocols, seed=seed)


ROWS = [
    Row("one connection", 177.368, topo.fat_tree(8), [PacketTransfer(0, 100, MB2)]),
    Row(
        "both directions",
        178.18,
        topo.fat_tree(8),
        [PacketTransfer(0, 100, MB2), PacketTransfer(100, 0, MB2)],
    ),
    Row("16-node incast", 2464.44, topo.fat_tree(4), topo.incast(15, 16, MB2)),
    Row("128-node incast", 20891.4, topo.fat_tree(8), topo.incast(127, 128, MB2)),
    Row(
        "1024-node incast", 8902.25, topo.fat_tree(16), topo.incast(1023, 1024, 100_000), window=50
    ),
    Row(
        "3:1 incast beside a flow",
        217.08,
        topo.fat_tree(8),
        [
            PacketTransfer(127, 0, MB2),
            PacketTransfer(95, 0, 250_000, start_ns=40_000),
            PacketTransfer(61, 0, 250_000, start_ns=40_000),
        ],
        window=50,
    ),
    Row("outcast and incast", 1637.76, topo.fat_tree(8), topo.outcast_incast(MB2)),
    Row("permutation of 16", 195.673, topo.fat_tree(4), topo.permutation(16, MB2, 1)),
    Row(
        "permutation of 16, slow link",
        229.764,
        topo.fat_tree(4, failed=True),
        topo.permutation(16, MB2, 1),
    ),
    Row("permutation of 1024", 203.384, topo.fat_tree(16), topo.permutation(1024, MB2, 1)),
    Row(
        "permutation of 1024, slow link",
        200.864,
        topo.fat_tree(16, failed=True),
        topo.permutation(1024, MB2, 1),
    ),
    Row(
        "permutation of 1024, one path",
        1063.0,
        topo.fat_tree(16),
        topo.permutation(1024, MB2, 1),
        paths=1,
    ),
    Row(
        "4:1 oversubscribed",
        749.717,
        topo.leaf_spine(1024, 32, 8),
        topo.permutation(1024, MB2, 1),
        adapt=True,
    ),
    Row(
        "8:1 oversubscribed",
        1459.06,
        topo.leaf_spine(1024, 32, 4),
        topo.permutation(1024, MB2, 1),
        adapt=True,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_last_flow_ends_within_10_percent_of_htsim(row: Row) -> None:
    found = tail_us(result(row, seed=1))
    print(f"{row.name}: {found:.1f} us, htsim {row.tail_us} us: {found / row.tail_us - 1:+.1%}")
    assert found == pytest.approx(row.tail_us, rel=0.10)


def test_flows_with_one_path_each_take_as_long_as_the_fullest_link() -> None:
    """Which flows collide is chance, and htsim's 515.24 us are those of three flows on one link."""
    graph, protocol = topo.fat_tree(4), topo.htsim_protocol(paths=1, adapt=0.0)
    times = [
        tail_us(run(graph, topo.permutation(16, MB2, seed), protocols=protocol, seed=seed))
        for seed in range(40)
    ]
    assert sum(time == pytest.approx(515.24, rel=0.01) for time in times) >= 10
    assert all(330 < time < 700 for time in times)
