# SPDX-License-Identifier: BSD-3-Clause
"""Collectives: what nccl-tests times, with the algorithm that a library chooses, or an override."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.work.collectives.choice import Choice, choose
from nupa.model.work.collectives.names import (
    OPERATIONS,
    check_algorithm,
    check_protocol,
    operation,
)
from nupa.model.work.collectives.plans import PLANS, pace
from nupa.model.work.collectives.rates import LibraryRates
from nupa.model.work.collectives.shape import Shape, library
from nupa.model.work.collectives.transfers import TRANSFERS
from nupa.model.work.phase import Plan, RankOperation

#: Exchanges of a library have no algorithm to choose.
_DIRECT = ("all-to-all", "send-recv")
_FLAG_BYTES = 8  # a barrier is an all-reduce of one element


@dataclass(frozen=True)
class Collective:
    """A collective of all endpoints of a network.

    *bytes* is nccl-tests' size: the whole vector (of an all-gather what a rank has at the end, of
    an all-to-all what it sends to all).  *algorithm* and *protocol* override the library's choice.
    *gpus_per_process* is nccl-tests' -g.  *channels* overrides the library's number.
    """

    operation: str
    bytes: int
    algorithm: str = ""
    protocol: str = ""
    library: str = "nccl"
    gpus_per_process: int = 1
    channels: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "operation", operation(self.operation))
        if self.algorithm:
            check_algorithm(self.algorithm, self.operation)
        if self.protocol:
            object.__setattr__(self, "protocol", check_protocol(self.protocol))
        if self.operation == "barrier":
            object.__setattr__(self, "bytes", _FLAG_BYTES)
        if self.bytes < 1 or self.gpus_per_process < 1 or self.channels < 0:
            raise ModelError(
                f"{self.operation}: {self.bytes} B with {self.gpus_per_process} GPUs a process and "
                f"{self.channels} channels: give 1 or more bytes and GPUs"
            )

    @property
    def name(self) -> str:
        sized = self.operation != "barrier"
        return f"{self.operation}:{self.bytes}" if sized else self.operation

    def _choice(self, shape: Shape) -> Choice:
        if self.operation in _DIRECT:
            return self._direct(shape)
        return choose(shape, self.operation, self.bytes, self.algorithm, self.protocol)

    def _direct(self, shape: Shape) -> Choice:
        peers = 1 if self.operation == "send-recv" else shape.ranks - 1
        small = self.bytes / peers <= shape.library["eager"]
        protocol = self.protocol or ("LL" if small else "Simple")
        reason = "asked for" if self.algorithm else "each rank sends to its peers at once"
        return Choice(self.algorithm or "direct", protocol, reason)

    def plan(self, network: Network) -> Plan:
        """Returns the plan.  ModelError: too few ranks, or an algorithm the fabric cannot do."""
        shape = Shape(network, library(self.library))
        chosen = self._choice(shape)
        rates = LibraryRates(shape, self.operation, chosen.protocol, self.bytes, self.channels)
        return Plan(
            tuple(PLANS[chosen.algorithm](rates, self.operation, self.bytes)),
            f"{chosen.algorithm}/{chosen.protocol}",
            chosen.reason,
            self.bytes,
            shape.ranks,
            OPERATIONS[self.operation].bus_factor(shape.ranks),
            pipelined=True,
            form="collective",
            fixed_ns=rates.launch_ns(self.gpus_per_process),
            warnings=tuple(
                f"{self.library}: {warning}"
                for warning in shape.library.envelope.outside(
                    self.operation, self.bytes, shape.ranks
                )
            ),
            pace=pace(rates, chosen.algorithm, self.operation),
        )

    def operations(self, network: Network) -> Iterator[RankOperation]:
        """Yields the transfers of the plan's algorithm, for the packet engine.

        ModelError as `plan`.
        """
        shape = Shape(network, library(self.library))
        algorithm = self.plan(network).algorithm.split("/")[0]
        # Of these, the parts are those of all ranks, and each rank has a vector of that size.
        size_bytes = self.bytes * (shape.ranks if self.operation in _DIRECT else 1)
        return iter(TRANSFERS[algorithm](shape, self.operation).operations(size_bytes))
