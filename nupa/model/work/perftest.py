# SPDX-License-Identifier: BSD-3-Clause
"""perftest's patterns: one pair, latency or bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.profile.profile import Profile
from nupa.model.work.phase import Phase, Plan, RankOperation

TX_DEPTH = 128  # perftest's default for bandwidth
QPS_MAX = 16384  # perftest's most for -q, its MAX_QP_NUM
ATOMIC_BYTES = 8  # IBTA 9.4.5
_PER_QP = ("message_rate", "read_rate", "single_rate", "flow_rate")


@dataclass(frozen=True)
class Perftest:
    """`ib_write_lat -s N`: one of *messages*; `ib_write_bw -s N`: *in_flight* of them at once.

    Both numbers are of one queue pair.  *qps* (`-q`) of them work at once.  *bidirectional* (`-b`):
    both ends send, and the answer's rates are the sums.  ModelError: 0 queue pairs, or too many.
    """

    operation: str
    bytes: int
    in_flight: int = 1
    messages: int = 1
    ranks: int = 2
    qps: int = 1
    bidirectional: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.qps <= QPS_MAX:
            raise ModelError(f"qps={self.qps}: give a number from 1 to {QPS_MAX}")

    @property
    def streams(self) -> bool:
        """Returns whether many messages are timed together, as perftest's bandwidth tests do."""
        return self.messages > 1 or self.in_flight > 1 or self.qps > 1 or self.bidirectional

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def name(self) -> str:
        qps = f",qps={self.qps}" if self.qps > 1 else ""
        both = ",bidirectional=true" if self.bidirectional else ""
        return f"{self.operation}{'-bw' if self.streams else ''}:{self.bytes}{qps}{both}"

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
            steps=self.messages * self.qps,
            in_flight=self.in_flight,
            queue_pairs=self.qps,
            directions=self.directions,
        )
        messages = self.messages * self.qps * self.directions
        return Plan(
            (phase,),
            "one pair",
            "perftest has one",
            self.bytes * messages,
            2,
            form="bandwidth" if self.streams else "latency",
            messages=messages,
            directions=self.directions,
            warnings=tuple(self._warnings(network.levels[level].profile)),
        )

    def _warnings(self, profile: Profile) -> Iterator[str]:
        """Yields limits that a profile has not: its measurements are of one queue pair, one way."""
        found = [name for name in _PER_QP if name in profile.figures]
        if self.qps > 1 and found:
            figures = " and ".join(name.replace("_", " ") for name in found)
            yield (
                f"{profile.name}: its {figures} {'is' if len(found) == 1 else 'are'} of one queue "
                f"pair: {self.qps} have as much each, and no limit of the whole adapter is known"
            )
        if self.bidirectional and "moves" in profile.tables:
            yield f"{profile.name}: was measured in one direction: both may share a processor"

    def operations(self, network: Network) -> Iterator[RankOperation]:
        last = network.endpoints - 1
        ways = ((0, last), (last, 0))[: self.directions]
        streams = self.qps * self.directions
        for index in range(self.messages * streams):
            before = index - self.in_flight * streams
            after = (before,) if before >= 0 else ()
            queue_pair, way = divmod(index % streams, self.directions)
            yield RankOperation(*ways[way], self.bytes, self.operation, after, lane=queue_pair)
