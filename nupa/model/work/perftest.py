# SPDX-License-Identifier: BSD-3-Clause
"""perftest's patterns: one pair, latency or bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.work.phase import Phase, Plan, RankOperation

TX_DEPTH = 128  # perftest's default for bandwidth
ATOMIC_BYTES = 8  # IBTA 9.4.5


@dataclass(frozen=True)
class Perftest:
    """`ib_write_lat -s N`: one of *messages*; `ib_write_bw -s N`: *in_flight* of them at once."""

    operation: str
    bytes: int
    in_flight: int = 1
    messages: int = 1
    ranks: int = 2

    @property
    def streams(self) -> bool:
        """Returns whether many messages are timed together, as perftest's bandwidth tests do."""
        return self.messages > 1 or self.in_flight > 1

    @property
    def name(self) -> str:
        return f"{self.operation}{'-bw' if self.streams else ''}:{self.bytes}"

    def plan(self, network: Network) -> Plan:
        """Returns the plan.  ModelError: the network has one endpoint alone."""
        if network.endpoints < 2:
            raise ModelError(f"{network.name} has 1 endpoint: {self.name} is between two")
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
            form="bandwidth" if self.streams else "latency",
            messages=self.messages,
        )

    def operations(self, network: Network) -> Iterator[RankOperation]:
        last = network.endpoints - 1
        for index in range(self.messages):
            after = (index - self.in_flight,) if index >= self.in_flight else ()
            yield RankOperation(0, last, self.bytes, self.operation, after)
