# SPDX-License-Identifier: BSD-3-Clause
"""Plans: the phases that a work takes on a network, and the single operations behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from nupa.model.network.network import Network

#: perftest's columns of its two kinds, nccl-tests' columns, fio's numbers, or a time alone.
Form = Literal["latency", "bandwidth", "collective", "blocks", "time"]
Pattern = Literal["one", "ring", "pairs", "tree", "all-to-all", "in-network"]


def switch(level: int) -> int:
    """Returns the peer of an in-network operation: the switches of levels[level].

    They act for the ranks of a group of that level that have the same place in their group of the
    level below: for all ranks of a group of the lowest.
    """
    return -1 - level


#: Operations that end with an answer: their data, or the last of it, comes from the peer.
ANSWERED = frozenset(("read", "atomic", "load", "flush"))


@dataclass(frozen=True)
class Phase:
    """Equal steps that follow each other; in one, each rank sends *bytes* to *peers* each.

    *level* is the index of the network's level whose links are passed.  *operation* is a verb
    ("write", "read", "send", "atomic") or "load", "store", "multimem".  *fixed_ns* is the time of a
    step that no link explains: a library's, or a computation.

    *wire* is the bytes on the wire for a byte of payload (a protocol's flags).  *limit* is the rate
    that the endpoint's software reaches, if below the link's; *limit_name* says what it is.
    *start*: each step starts in an endpoint, whose stages are paid; else the link's alone are.
    """

    name: str
    operation: str
    level: int
    bytes: int
    steps: int = 1
    peers: int = 1
    pattern: Pattern = "one"
    fixed_ns: float = 0.0
    in_flight: int = 1  #: messages outstanding, where steps do not wait for each other
    queue_pairs: int = 1  #: of equal streams that share the steps; each has *in_flight*
    directions: int = 1  #: 2: the peer of pattern "one" does the same the other way
    wire: float = 1.0
    limit: float = 0.0
    limit_name: str = "library's channels"
    start: bool = True

    @property
    def outstanding(self) -> int:
        """Returns the messages outstanding of all queue pairs, one way."""
        return self.in_flight * self.queue_pairs


_VARIATION = 3  # of a soft maximum, from nccl-polaris-a100-n2.csv and nccl-h100-10nodes-g4.csv


class Pace(NamedTuple):
    """Steps that each cost a library *ns*, of which the step's transfer hides a part.

    *hidden*: the share of a step's transfer that passes meanwhile; 0: the copying threads wait.
    *covers*: the latencies of the phases' steps pass meanwhile too.  *varies*: steps of ranks that
    wait for each other vary, so that two times that are alike take longer than the longer one.
    """

    steps: int = 0
    ns: float = 0.0
    hidden: float = 0.0
    covers: bool = False
    varies: bool = False

    def visible_ns(self, transfer_ns: float) -> float:
        """Returns what is left of all steps, beside the transfer of all steps."""
        if not self.steps:
            return 0.0
        meanwhile = self.hidden * transfer_ns / self.steps
        if self.varies:
            together = (self.ns**_VARIATION + meanwhile**_VARIATION) ** (1 / _VARIATION)
            return self.steps * float(together - meanwhile)
        return self.steps * max(0.0, self.ns - meanwhile)


NO_PACE = Pace()


class Spent(NamedTuple):
    """Time that no link explains and that has a name: a computation, a medium, a stack's copies."""

    name: str
    ns: float


class Station(NamedTuple):
    """A resource for which the requests of a cycle queue: a core, a link, a drive.

    A visit takes *ns*, and, with *level*, *ports* of that level for *bytes*.  A request makes
    *visits* to *among* equal stations, which it chooses evenly.  *streams* use them.  Stations of
    one *wire* are passed at the same time: the longest of their waits counts.
    """

    name: str
    ns: float = 0.0
    visits: float = 1.0
    among: int = 1
    streams: int = 1
    bytes: int = 0
    level: int | None = None
    ports: float = 1.0
    wire: str = ""


class Sent(NamedTuple):
    """A message of a request, which the request waits for; *share* of the requests have it.

    A request has *copies* of them in all: those beyond the phase's steps pass beside.
    """

    phase: Phase
    share: float = 1.0
    copies: int = 1


@dataclass(frozen=True)
class Cycle:
    """Requests that circulate: each of *streams* has *depth* outstanding, and never more or less.

    A request takes what *sent* and *spent* take alone, and waits at the *stations* for others.
    *loops*: requests in a row whose time is asked.  *network* is the network as the requests see
    it: with the kernel's stack, for TCP.
    """

    streams: int
    depth: int
    sent: tuple[Sent, ...]
    spent: tuple[Spent, ...]
    stations: tuple[Station, ...]
    network: Network
    loops: int = 1


@dataclass(frozen=True)
class StepPart:
    """A part of a step: *plan* on *network*, *times* in a row, or a computation of *ns* each time.

    *piped*: it passes in each stage of a pipeline.  *hidden_ns* of it pass behind a computation.
    """

    name: str
    ns: float = 0.0
    plan: Plan | None = None
    network: Network | None = None
    times: float = 1.0
    piped: bool = False
    hidden_ns: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The plan of a work on one network.

    A plan has *phases*, or a *cycle* of requests, or *parts* with plans of their own: then a rank
    waits in a pipeline for *bubble* times what the piped parts take.

    *bytes* is what the answer's algbw divides by, and *bus_factor* makes a busbw of it (nccl-tests'
    PERFORMANCE.md).  *pipelined*: the phases overlap but for their latencies.  *form* is how the
    answer is printed, and *messages* the number of equal operations that *bytes* are of.
    """

    phases: tuple[Phase, ...]
    algorithm: str
    reason: str
    bytes: int
    ranks: int
    bus_factor: float = 1.0
    pipelined: bool = False
    fixed_ns: float = 0.0  #: once a work: a library's launch and set-up
    pace: Pace = NO_PACE  #: of a pipelined plan
    form: Form = "time"
    messages: int = 1
    directions: int = 1  #: both of which *messages* and *bytes* count
    warnings: tuple[str, ...] = ()
    cycle: Cycle | None = None
    parts: tuple[StepPart, ...] = ()
    bubble: float = 0.0


class RankOperation(NamedTuple):
    """One operation of one rank, for the engines that run each.

    *after* are the indices of operations that must have completed.  A computation has
    peer == rank and takes *compute_ns*.  An in-network operation has peer == switch(level):
    "reduce" loads *bytes* that the switches have reduced over their ranks; "multicast" stores
    *bytes* to all of them.
    Computations and posts of one rank and *lane* (a thread) run one at a time.
    """

    rank: int
    peer: int
    bytes: int
    operation: str
    after: tuple[int, ...] = ()
    compute_ns: int = 0
    lane: int = 0


class Work(Protocol):
    """A question: `plan` for closed forms and flows, `operations` for packets.

    The plan of irregular work has no phases: its operations are run one by one.
    """

    @property
    def name(self) -> str: ...

    def plan(self, network: Network) -> Plan: ...

    def operations(self, network: Network) -> Iterator[RankOperation]: ...
