# SPDX-License-Identifier: BSD-3-Clause
"""Collectives: what nccl-tests times, with the algorithm that a library chooses, or an override."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.profile.profile import Profile
from nupa.model.work.collectives import mpi
from nupa.model.work.collectives.choice import Choice, choose
from nupa.model.work.collectives.names import (
    OPERATIONS,
    check_algorithm,
    check_protocol,
    operation,
)
from nupa.model.work.collectives.plans import PLANS, pace
from nupa.model.work.collectives.rates import LibraryRates
from nupa.model.work.collectives.rounds import ROUNDS
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
    *gpus_per_process* is nccl-tests' -g.  *channels* overrides the library's number.  *library* is
    the profile of one: NCCL, or an MPI, which has neither protocols nor channels.
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
        rounds = mpi.has_rounds(library(self.library))
        if rounds and (self.protocol or self.channels):
            raise ModelError(f"{self.library} has neither protocols nor channels: leave them out")
        if self.algorithm:
            known = mpi.algorithms(self.operation) if rounds else ()
            check_algorithm(self.algorithm, self.operation, known)
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
        of_library = library(self.library).at(network.levels[0].profile.case)
        if mpi.has_rounds(of_library):
            return self._rounds(of_library, network)
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

    def _rounds(self, of_library: Profile, network: Network) -> Plan:
        """Returns the plan of a library that exchanges messages in rounds."""
        ranks = network.endpoints
        chosen = mpi.choose(of_library, self.operation, self.bytes, ranks, self.algorithm)
        phases = mpi.plan(of_library, network, self.operation, chosen.algorithm, self.bytes)
        outside = of_library.envelope.outside(self.operation, self.bytes, ranks)
        return Plan(
            tuple(phases),
            chosen.algorithm,
            chosen.reason,
            self.bytes,
            ranks,
            OPERATIONS[self.operation].bus_factor(ranks),
            form="collective",
            warnings=tuple(f"{self.library}: {warning}" for warning in outside),
        )

    def operations(self, network: Network) -> Iterator[RankOperation]:
        """Yields the transfers of the plan's algorithm, for the packet engine.

        ModelError as `plan`.
        """
        algorithm = self.plan(network).algorithm.split("/")[0]
        if mpi.has_rounds(library(self.library)):
            ranks = network.endpoints
            rounds = ROUNDS[self.operation][algorithm](ranks, self.bytes)
            return mpi.operations(ranks, list(rounds))
        shape = Shape(network, library(self.library))
        # Of these, the parts are those of all ranks, and each rank has a vector of that size.
        size_bytes = self.bytes * (shape.ranks if self.operation in _DIRECT else 1)
        return iter(TRANSFERS[algorithm](shape, self.operation).operations(size_bytes))
