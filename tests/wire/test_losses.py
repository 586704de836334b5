# SPDX-License-Identifier: BSD-3-Clause
"""Paths that lose, repeat, delay and change packets: each operation is executed once, and no byte
is wrong."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from nupa.fabric.wires.entry import COUNTERS
from tests.common.impair import Impairment, impaired
from tests.wire import numbered
from tests.wire.lab import Wired

pytestmark = pytest.mark.timeout(120)

COUNT = 400

IMPAIRMENTS = {
    "nothing": Impairment(),
    "loss 0.1%": Impairment(loss=0.001),
    "loss 1%": Impairment(loss=0.01),
    "loss 5%": Impairment(loss=0.05),
    "duplicates": Impairment(duplicate=0.05),
    "reordering": Impairment(reorder=0.05),
    "corruption": Impairment(corrupt=0.02),
    "marks": Impairment(mark=0.05),
    "all": Impairment(loss=0.01, duplicate=0.01, reorder=0.01, corrupt=0.01, mark=0.01),
}
#: Operations, where COUNT would meet too few hits.
COUNTS = {"loss 0.1%": 4 * COUNT}
SEED = 1


@dataclass(frozen=True)
class Run:
    count: int  #: of operations
    seen: dict[str, Any]  #: by the server
    hit: dict[str, int]  #: packets, by what was done to them
    server: Counter[str]  #: counters of its end of the wire
    client: Counter[str]

    @property
    def counted(self) -> Counter[str]:
        """Returns the counters of both ends."""
        return self.server + self.client


def counters(wire: Wired) -> list[Counter[str]]:
    ends = [wire.side(end).wire() for end in (0, 1)]
    return [Counter({name: end[name] for name in COUNTERS}) for end in ends]


def run_numbered(wire: Wired, impair: str, kind: str, name: str) -> Run:
    before = counters(wire)
    count = COUNTS.get(name, COUNT)
    command = [sys.executable, "-P", numbered.__file__, kind, "--count", str(count)]
    with impaired(impair, *wire.machines, IMPAIRMENTS[name], seed=SEED) as hit:
        result = wire.run_pair(command, deadline_s=100)
    after = counters(wire)
    return Run(
        count,
        json.loads(result.server.stdout.splitlines()[-1]),
        hit,
        *(new - old for new, old in zip(after, before, strict=True)),
    )


@pytest.mark.parametrize("name", IMPAIRMENTS)
def test_reliable_operations_are_executed_once_in_order(
    wire: Wired, impair: str, name: str
) -> None:
    run = run_numbered(wire, impair, "RC", name)
    assert run.seen == {
        "added": run.count // 4,
        "sends": list(range(1, run.count, 4)),
        "writes": list(range(2, run.count, 4)),
        "wrong": 0,
    }
    expect_counters(run)
    if IMPAIRMENTS[name].loss:
        assert run.hit["lost"] > 0
        assert run.counted["retransmitted"] > 0
    if IMPAIRMENTS[name].mark:
        assert run.server["cnp_sent"] > 0
        assert run.client["cnp_handled"] > 0


@pytest.mark.parametrize("name", IMPAIRMENTS)
def test_unreliable_messages_are_whole_and_come_once(wire: Wired, impair: str, name: str) -> None:
    run = run_numbered(wire, impair, "UC", name)
    came = run.seen["sends"]
    assert run.seen["wrong"] == 0
    assert came == sorted(set(came))
    assert 0 < len(came) <= run.count
    expect_counters(run)


@pytest.mark.parametrize("name", IMPAIRMENTS)
def test_datagrams_are_whole(wire: Wired, impair: str, name: str) -> None:
    run = run_numbered(wire, impair, "UD", name)
    assert run.seen["wrong"] == 0
    assert run.count / 2 < len(set(run.seen["sends"])) <= run.count
    repeated = len(run.seen["sends"]) - len(set(run.seen["sends"]))
    assert repeated <= run.hit["duplicated"]
    expect_counters(run)


def expect_counters(run: Run) -> None:
    """Counters of the wires say what was done to packets, and nothing else."""
    hit, counted = run.hit, run.counted
    assert counted["refused"] == 0
    assert (counted["icrc_errors"] > 0) == (hit["corrupted"] > 0)
    # Not `foreign`, as which late packets to a program that has ended count.
    for wrong in ("icrc_errors", "malformed"):
        assert counted[wrong] <= hit["corrupted"]
    assert counted["ecn_marked"] <= hit["marked"]
    assert (counted["ecn_marked"] > 0) == (hit["marked"] > 0)
    assert counted["cnp_sent"] <= counted["ecn_marked"]
    assert counted["cnp_handled"] <= counted["cnp_sent"] + hit["duplicated"]
