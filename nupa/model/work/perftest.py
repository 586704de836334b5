# SPDX-License-Identifier: BSD-3-Clause
"""perftest's patterns: one pair, latency or bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nupa.model.network.network import Network
from nupa.model.work.phase import Phase, Plan, RankOperation

TX_DEPTH = 128  # perftest's default for bandwidth


@dataclass(frozen=True)
class Perftest:
    """`ib_write_lat -s N`: *in_flight* 1; `ib_write_bw -s N`: *messages*, *in_flight* at once."""

    operation: str
    bytes: int
    in_flight: int = 1
    messages: int = 1
    ranks: int = 2

    @property
    def name(self) -> str:
        return f"{self.operation}{'-bw' if self.in_flight > 1 else ''}:{self.bytes}"

    def plan(self, network: Network) -> Plan:
        level = network.level_between(0, network.endpoints - 1)
        phase = Phase(
            self.name,
            self.operation,
            level,
            self.bytes,
            steps=self.messages,
            in_flight=self.in_flight,
        )
        return Plan(
            (phase,),
            "one pair",
            "perftest has one",
            self.bytes * self.messages,
            2,
            form="bandwidth" if self.in_flight > 1 else "latency",
            messages=self.messages,
        )

    def operations(self, network: Network) -> Iterator[RankOperation]:
        last = network.endpoints - 1
        for index in range(self.messages):
            after = (index - self.in_flight,) if index >= self.in_flight else ()
            yield RankOperation(0, last, self.bytes, self.operation, after)
