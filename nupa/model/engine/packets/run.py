# SPDX-License-Identifier: BSD-3-Clause
"""The packet engine: operations on a graph, each packet on each link, in C (csrc/model)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nupa.model.answer.answer import LinkLoad
from nupa.model.engine.packets.protocol import PacketProtocol, protocol_of
from nupa.model.errors import ModelError
from nupa.model.network.graph import Graph

PACKETS_MAX = 1 << 22  #: packets in flight, if nothing else is asked: 128 MiB when all are used
SLICE_EVENTS = 1 << 20  #: between two looks at progress: about a tenth of a second
_OPERATION = struct.Struct("=IIQQQQQQIIIIII")
_PS = 1e3  # picoseconds in a nanosecond


class PacketTransfer(NamedTuple):
    """An operation for the engine, with times in ns.

    The bytes travel from *rank* to *peer*, or, for a *read*, back after a request.  It starts when
    all of *after* have completed, and not before *start_ns*.  *before_ns* pass from then until its
    first packet may leave, *after_ns* from its last packet until it has completed.  A computation
    has peer == rank and takes *before_ns*.  Operations with one *entropy* other than 0 share a path
    where a hash chooses it.  Packets have *payload_bytes* and *header_bytes*; 0: the protocol's.
    Operations of one *lane* other than 0, a thread, start in turn, *busy_ns* after each other.
    *limit_bytes_per_s* is the rate of an operation's packets; 0: that of the links.  Packets of one
    *connection* other than 0, of one sender and receiver, leave one operation after the other, in
    the order in which these start; its rate or window goes on from one to the next.
    """

    rank: int
    peer: int
    bytes: int
    after: tuple[int, ...] = ()
    start_ns: float = 0.0
    before_ns: float = 0.0
    after_ns: float = 0.0
    read: bool = False
    entropy: int = 0
    payload_bytes: int = 0
    header_bytes: int = 0
    busy_ns: float = 0.0
    limit_bytes_per_s: float = 0.0
    lane: int = 0
    connection: int = 0


class TransferTimes(NamedTuple):
    """An operation: it started, its bytes were there, and its sender knew."""

    start_ns: float
    done_ns: float
    acked_ns: float


class LinkUse(NamedTuple):
    """One link: bytes on the wire, and what happened to packets before it."""

    bytes: int
    packets: int
    busy_ns: float
    queue_bytes_max: int
    dropped: int
    trimmed: int
    marked: int
    paused: int


class RunProgress(NamedTuple):
    """How far a run is; *now_ns* is the time in the network."""

    events: int
    now_ns: float
    completed: int
    operations: int


class Totals(NamedTuple):
    """Counters of a run; packets without acknowledgements and other control packets."""

    events: int
    data_packets: int
    resent_packets: int
    control_packets: int
    payload_sent_bytes: int
    payload_received_bytes: int
    packets_most: int


@dataclass(frozen=True)
class Run:
    """The result of the engine.  *time_ns*: all bytes of all operations were there."""

    graph: Graph
    time_ns: float
    totals: Totals
    times_ps: array[int]  #: start, done and acked of each operation in turn
    links_raw: array[int]  #: LinkUse of each link in turn, with ps
    seed: int

    def times(self, operation: int) -> TransferTimes:
        first = 3 * operation
        return TransferTimes(*(ps / _PS for ps in self.times_ps[first : first + 3]))

    def link(self, link: int) -> LinkUse:
        first = 8 * link
        size, packets, busy_ps, *counters = self.links_raw[first : first + 8]
        return LinkUse(size, packets, busy_ps / _PS, *counters)

    def loads(self) -> tuple[LinkLoad, ...]:
        """Returns the load of each kind of link: the mean of bytes and of the busy part."""
        kinds = self.graph.kinds
        count, size, busy = [0] * len(kinds), [0] * len(kinds), [0] * len(kinds)
        for link, kind in enumerate(self.graph.kind):
            count[kind] += 1
            size[kind] += self.links_raw[8 * link]
            busy[kind] += self.links_raw[8 * link + 2]
        total_ps = self.time_ns * _PS or 1.0
        return tuple(
            LinkLoad(kind.name, links, size[at] / links, busy[at] / links / total_ps)
            for at, (kind, links) in enumerate(zip(kinds, count, strict=True))
            if links
        )


def run(
    graph: Graph,
    transfers: Iterable[PacketTransfer],
    *,
    protocols: Mapping[str, PacketProtocol] | PacketProtocol | None = None,
    seed: int = 1,
    packets_max: int = PACKETS_MAX,
    progress: Callable[[RunProgress], None] | None = None,
) -> Run:
    """Runs all operations to their completion.

    *protocols* replaces those of the profiles: one for all links, or by the name of a kind.
    *progress* is called about ten times a second; an exception of it ends the run.  ModelError: the
    engine is not built, a limit is passed, or operations cannot complete.
    """
    ffi, lib = _compiled()
    keep: list[Any] = []
    c_graph = _graph(ffi, graph, protocols, keep)
    operations = list(transfers)
    c_work = _work(ffi, operations, seed, packets_max, keep)
    error = ffi.new("char[]", lib.NUPA_MODEL_ERROR_BYTES)
    made = lib.nupa_model_packets_new(c_graph, c_work, error)
    if made == ffi.NULL:
        raise ModelError(f"{graph.name}: {ffi.string(error).decode()}")
    sim = ffi.gc(made, lib.nupa_model_packets_free)
    while (more := lib.nupa_model_packets_run(sim, SLICE_EVENTS, error)) > 0:
        if progress is not None:
            so_far = lib.nupa_model_packets_totals(sim)
            completed = len(operations) - so_far.operations_left
            progress(RunProgress(so_far.events, so_far.now_ps / _PS, completed, len(operations)))
    if more < 0:
        raise ModelError(f"{graph.name}: {ffi.string(error).decode()}")
    return _result(ffi, lib, sim, graph, len(operations), seed)


def _compiled() -> tuple[Any, Any]:
    try:
        from nupa._model import ffi, lib
    except ImportError as error:
        raise ModelError(
            "the packet engine is not built here: `make build`, or another --engine"
        ) from error
    return ffi, lib


def _round_trip_ns(graph: Graph) -> float:
    """Returns the time of a packet to the endpoint that is farthest from endpoint 0, and back."""
    outward: dict[int, list[int]] = {}
    link_ns = [
        kind.latency_ns + protocol_of(kind.profile).packet_bytes / kind.rate_bytes_per_s * 1e9
        for kind in graph.kinds
    ]
    for link, source in enumerate(graph.source):
        outward.setdefault(source, []).append(link)
    farthest = 0.0
    known = {0: 0.0}
    nodes = [0]
    for node in nodes:
        if node and node < graph.endpoints:
            farthest = max(farthest, known[node])
            continue
        for link in outward.get(node, ()):
            if graph.target[link] not in known:
                known[graph.target[link]] = known[node] + link_ns[graph.kind[link]]
                nodes.append(graph.target[link])
    return 2 * farthest


def _column(ffi: Any, kind: str, code: str, values: Sequence[int], keep: list[Any]) -> Any:
    column = values if isinstance(values, array) else array(code, values)
    if not column:
        return ffi.NULL
    keep.append(column)
    return ffi.from_buffer(f"{kind}[]", column)


def _graph(
    ffi: Any,
    graph: Graph,
    protocols: Mapping[str, PacketProtocol] | PacketProtocol | None,
    keep: list[Any],
) -> Any:
    chosen: list[PacketProtocol] = []
    round_trip_ns = _round_trip_ns(graph)
    kinds = ffi.new("struct nupa_model_link_kind[]", max(1, len(graph.kinds)))
    for at, kind in enumerate(graph.kinds):
        named = protocols.get(kind.name) if isinstance(protocols, Mapping) else protocols
        protocol, buffer = (named or protocol_of(kind.profile)).fitted(kind, round_trip_ns)
        if protocol not in chosen:
            chosen.append(protocol)
        kinds[at] = {
            "bytes_per_s": kind.rate_bytes_per_s,
            "latency_ps": round(kind.latency_ns * _PS),
            "buffer_bytes": buffer,
            "protocol": chosen.index(protocol),
        }
    c_protocols = ffi.new("struct nupa_model_protocol[]", [p.fields() for p in chosen])
    routes = list(graph.routes.items())
    starts = [0]
    for _, links in routes:
        starts.append(starts[-1] + len(links))
    made = ffi.new(
        "struct nupa_model_graph *",
        {
            "endpoints": graph.endpoints,
            "switches": graph.switches,
            "links": len(graph.source),
            "kinds": len(graph.kinds),
            "protocols": len(chosen),
            "routes": len(routes),
            "source": _column(ffi, "uint32_t", "I", graph.source, keep),
            "target": _column(ffi, "uint32_t", "I", graph.target, keep),
            "kind": _column(ffi, "uint16_t", "H", graph.kind, keep),
            "link_kind": kinds,
            "protocol": c_protocols,
            "route_node": _column(ffi, "uint32_t", "I", [n for (n, _), _ in routes], keep),
            "route_endpoint": _column(ffi, "uint32_t", "I", [e for (_, e), _ in routes], keep),
            "route_start": _column(ffi, "uint32_t", "I", starts, keep),
            "route_link": _column(
                ffi, "uint32_t", "I", [at for _, ls in routes for at in ls], keep
            ),
        },
    )
    keep += [kinds, c_protocols, made]
    return made


def _work(
    ffi: Any, transfers: Sequence[PacketTransfer], seed: int, packets_max: int, keep: list[Any]
) -> Any:
    packed = bytearray(_OPERATION.size * max(1, len(transfers)))
    starts = array("I", [0])
    after = array("I")
    for at, one in enumerate(transfers):
        times = (round(ns * _PS) for ns in (one.start_ns, one.before_ns, one.after_ns, one.busy_ns))
        try:
            _OPERATION.pack_into(
                packed, at * _OPERATION.size,
                one.rank, one.peer, one.bytes, *times,
                round(one.limit_bytes_per_s), one.lane, one.payload_bytes, one.header_bytes,
                one.read, one.entropy, one.connection,
            )  # fmt: skip
            after.extend(one.after)
        except (struct.error, OverflowError) as error:
            raise ModelError(f"operation {at}: {one}: numbers are not negative, and nodes have 32 "
                             "bits, others 64") from error  # fmt: skip
        starts.append(len(after))
    made = ffi.new(
        "struct nupa_model_work *",
        {
            "operations": len(transfers),
            "operation": ffi.from_buffer("struct nupa_model_operation[]", packed),
            "after_start": _column(ffi, "uint32_t", "I", starts, keep),
            "after": _column(ffi, "uint32_t", "I", after, keep),
            "seed": seed & (1 << 64) - 1,
            "packets_max": packets_max,
        },
    )
    keep += [packed, made]
    return made


def _result(ffi: Any, lib: Any, sim: Any, graph: Graph, operations: int, seed: int) -> Run:
    times = array("Q", bytes(24 * operations))
    links = array("Q", bytes(64 * len(graph.source)))
    lib.nupa_model_packets_times(sim, ffi.from_buffer("struct nupa_model_times[]", times))
    lib.nupa_model_packets_links(sim, ffi.from_buffer("struct nupa_model_link_use[]", links))
    totals = lib.nupa_model_packets_totals(sim)
    return Run(
        graph=graph,
        time_ns=totals.end_ps / _PS,
        totals=Totals(*(getattr(totals, name) for name in Totals._fields)),
        times_ps=times,
        links_raw=links,
        seed=seed,
    )
