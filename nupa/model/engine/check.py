# SPDX-License-Identifier: BSD-3-Clause
"""The check of an answer: a part of the work, small enough for packets, in both engines.

The part has fewer bytes, then fewer ranks, and leaves out a library's own time, which packets do
not have: the gap is that of the network alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass, replace
from itertools import islice
from math import ceil
from typing import Any

from nupa.model.answer.answer import SampleCheck, StageTime
from nupa.model.engine.choice import Engine, Question, packet_hops
from nupa.model.engine.flows.operations import fluid
from nupa.model.engine.flows.plans import flows
from nupa.model.engine.message import interval_ns
from nupa.model.engine.packets.protocol import PacketProtocol, protocol_of
from nupa.model.engine.packets.run import run
from nupa.model.engine.packets.transfers import transfers
from nupa.model.engine.routes import LevelRoutes
from nupa.model.engine.stages import stages
from nupa.model.errors import ModelError
from nupa.model.network.build import graph
from nupa.model.network.graph import Graph
from nupa.model.network.network import Network
from nupa.model.work.phase import NO_PACE, Phase, Plan, RankOperation, Work

#: Packets of a part: about a second of the packet engine, and of Python that lists operations.
PACKETS_MAX = 200_000
OPERATIONS_MAX = 20_000
RANKS_LEAST, RANKS_GOOD = 2, 16
HALVINGS = 4
BYTES_LEAST = 64 << 10
#: A gap beyond this has its reason looked for; paths that change the time by more are one.
GAP, NOTED = 0.05, 0.02
ENDLESS = 1 << 30  #: bytes of a buffer
#: Limits of an endpoint that packets do not have.
_ENDPOINT = ("message rate", "flow rate", "bus", "single rate", "window")


def check(asked: Question, engine: Engine) -> SampleCheck:
    """Returns the times of a part in the engine that was asked for, and in the packet engine.

    ModelError: no part of the work can run in the packet engine, and why.
    """
    if not asked.plan.phases and not _exchanges(asked.plan):
        return _of_operations(asked)
    for work, network, plan in _parts(asked):
        operations = list(islice(work.operations(network), OPERATIONS_MAX + 1))
        if len(operations) > OPERATIONS_MAX:
            continue
        if packet_hops(network, operations) > 8 * PACKETS_MAX:
            continue
        sample = f"{work.name}, {plan.ranks} ranks"
        if _chunked(work, plan):
            _bare(network, plan)
            ours = fluid(network, operations, LevelRoutes(network)).time_ns
            sample += ", against flows of the same chunks"
        else:
            ours = _ours(network, plan, engine)
        return _by_packets(asked, network, operations, sample, ours)
    raise ModelError(f"{asked.work.name} has no part of {PACKETS_MAX} packets or fewer")


def _exchanges(plan: Plan) -> bool:
    """Returns whether a plan is exchanges in a row: its parts have phases, and no computation."""
    return bool(plan.parts) and all(
        part.plan is not None and part.plan.phases and part.network is not None and not part.ns
        for part in plan.parts
    )


def _total(found: tuple[StageTime, ...]) -> float:
    return sum(stage.ns for stage in found)


def _ours(network: Network, plan: Plan, engine: Engine) -> float:
    """Returns the time of the network in *engine*; or in the one that `auto` takes for this part.

    A library's limits may hide that links are shared: without them the part may need flows where
    the whole has a closed form.
    """
    if plan.parts:
        return sum(
            part.times * _ours(part.network, part.plan, "auto")
            for part in plan.parts
            if part.plan is not None and part.network is not None
        )
    bare = _bare(network, plan)
    alone = _total(stages(network, bare))
    if engine == "stages":
        return alone
    shared = _total(flows(network, bare).stages)
    return shared if engine == "flows" else max(alone, shared)


def _by_packets(
    asked: Question,
    network: Network,
    operations: list[RankOperation],
    sample: str,
    ours_ns: float,
) -> SampleCheck:
    """Runs the sample; and, if the gap is large, without what packets have and flows do not."""
    drawn = graph(network)

    def packets(on: Graph, protocols: Mapping[str, PacketProtocol] | None = None) -> float:
        work = transfers(network, operations)
        return run(on, work, protocols=protocols, seed=asked.seed, progress=asked.tick).time_ns

    found = SampleCheck(sample, ours_ns, packets(drawn))
    if abs(found.gap) <= GAP:
        return found
    known = {kind.name: protocol_of(kind.profile) for kind in drawn.kinds}
    in_turn = {
        name: replace(each, spread="packet") if each.spread == "flow" else each
        for name, each in known.items()
    }
    endless = {name: replace(each, xoff_bytes=ENDLESS // 2) for name, each in in_turn.items()}
    kinds = [kind._replace(buffer_bytes=ENDLESS) for kind in drawn.kinds]
    less = []
    if in_turn != known:
        less.append(("packets took paths in turn, not by a hash", packets(drawn, in_turn)))
    if any(each.flow_control in ("credits", "pause") for each in known.values()):
        less.append(("buffers were endless", packets(replace(drawn, kinds=kinds), endless)))
    before = found.packets_ns
    notes: list[str] = []
    for what, ns in less:
        if abs(ns / before - 1) > NOTED:
            notes.append(f"{ns / ours_ns - 1:+.1%} {'and' if notes else 'if'} {what}")
            before = ns
    return found._replace(note=", ".join(notes))


def _chunked(work: Work, plan: Plan) -> bool:
    """Returns whether data pass a tree or chain in chunks: operations have fewer than a library."""
    rooted = getattr(work, "operation", "") in ("broadcast", "reduce")
    return rooted or plan.algorithm.partition("/")[0] in ("tree", "double-tree")


def _of_operations(asked: Question) -> SampleCheck:
    """Checks the first operations of a work without phases."""
    network = asked.network
    listed = list(islice(asked.work.operations(network), OPERATIONS_MAX))
    while packet_hops(network, listed) > 8 * PACKETS_MAX and len(listed) > 1:
        listed = listed[: len(listed) // 2]
    part: list[RankOperation] = [
        one._replace(after=tuple(each for each in one.after if each < len(listed)))
        for one in listed
    ]
    by_flows = fluid(network, part, LevelRoutes(network)).time_ns
    return _by_packets(asked, network, part, f"the first {len(part)} operations", by_flows)


def _bare(network: Network, plan: Plan) -> Plan:
    """Returns the plan without a library's own time and limits.

    ModelError: an endpoint limits it, which packets do not.
    """
    for phase in plan.phases:
        if phase.outstanding > 1:
            path = network.level_path(phase.level)
            limit = interval_ns(
                path,
                phase.operation,
                phase.bytes,
                phase.in_flight,
                phase.queue_pairs,
                phase.directions,
            )
            if limit.name in _ENDPOINT:
                raise ModelError(
                    f"{phase.name} is limited by the endpoint's {limit.name}, not by links"
                )
    return replace(
        plan,
        phases=tuple(
            replace(phase, fixed_ns=0.0, limit=0.0, wire=1.0, start=True) for phase in plan.phases
        ),
        fixed_ns=0.0,
        pace=NO_PACE,
    )


def _packets(network: Network, plan: Plan) -> float:
    if plan.parts:
        return sum(
            _packets(part.network, part.plan)
            for part in plan.parts
            if part.plan is not None and part.network is not None
        )
    return sum(_of_phase(network, phase, plan.ranks) for phase in plan.phases)


def _of_phase(network: Network, phase: Phase, ranks: int) -> float:
    packet = network.levels[phase.level].profile.get("mtu", float(max(1, phase.bytes)))
    senders = phase.directions if phase.pattern == "one" else ranks
    return senders * phase.steps * phase.peers * ceil(max(1, phase.bytes) / packet)


def _smaller(work: Work) -> Iterator[Work]:
    """Yields the work with ever fewer messages, then bytes, as far as its kind has them."""
    one: Any = work
    if not is_dataclass(work):
        return
    while getattr(one, "messages", 1) > 1 and one.messages > one.in_flight:
        one = replace(one, messages=max(one.messages // 2, one.in_flight))
        yield one
    while getattr(one, "tokens", 1) > 1:
        one = replace(one, tokens=one.tokens // 2)
        yield one
    while getattr(one, "bytes", 0) > BYTES_LEAST:
        one = replace(one, bytes=one.bytes // 2)
        yield one


def _fewer(network: Network) -> Iterator[Network]:
    """Yields the network with ever fewer groups of its upper levels, then of the lower ones."""
    yield network
    while network.endpoints > RANKS_LEAST:
        at = max(
            (index for index, level in enumerate(network.levels) if level.groups > 1),
            key=lambda index: (network.levels[index].groups > RANKS_LEAST, index),
        )
        levels = list(network.levels)
        levels[at] = replace(levels[at], groups=max(1, levels[at].groups // 2))
        network = replace(network, levels=tuple(levels), drawn=None)
        yield network


def _parts(asked: Question) -> Iterator[tuple[Work, Network, Plan]]:
    """Yields parts that have few enough packets: the largest networks first.

    The algorithm stays the one of the whole: a library would choose another for fewer bytes.
    """
    base: Any = asked.work
    algorithm, _, protocol = asked.plan.algorithm.partition("/")
    if is_dataclass(asked.work) and algorithm and hasattr(base, "protocol"):
        base = replace(base, algorithm=algorithm, protocol=protocol)
    smaller = [base, *_smaller(base)]
    # Of few bytes the latencies are checked: first parts with a good share of the bytes.
    for works, ranks in ((smaller[: 1 + HALVINGS], RANKS_GOOD), (smaller, RANKS_LEAST)):
        for network in _fewer(asked.network):
            if network.endpoints < min(ranks, asked.network.endpoints):
                break
            for work in works:
                try:
                    plan = work.plan(network)
                except ModelError:
                    break
                if _packets(network, plan) <= PACKETS_MAX:
                    yield work, network, plan
                    break
