# SPDX-License-Identifier: BSD-3-Clause
"""One message on one path: its stages, and the rate of many."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from nupa.model.answer.answer import StageTime
from nupa.model.engine.moves import move_of
from nupa.model.engine.packets.protocol import protocol_of
from nupa.model.errors import ModelError
from nupa.model.network.path import Path
from nupa.model.profile.profile import Profile

#: Operations of a processor on a window of remote memory: no work request, no completion.
MEMORY = ("load", "store", "multimem")
#: Operations whose payload comes back.
ANSWERED = ("read", "atomic", "load")


def wire_bytes(profile: Profile, size_bytes: int, operation: str = "write") -> float:
    """Returns the payload and the headers of its packets, or of its loads and stores."""
    full, header = "mtu", profile.get("header")
    if operation in MEMORY and "line" in profile.figures:
        full, header = "line", profile.get("line_header")
    packets = ceil(size_bytes / profile[full]) if size_bytes and full in profile.figures else 1
    return size_bytes + packets * header


def serialisation_ns(profile: Profile, size_bytes: int, operation: str = "write") -> float:
    """Returns the time of the payload and its packets' headers on one port."""
    rate = profile["rate"] * profile.get("efficiency", 1.0)
    return wire_bytes(profile, size_bytes, operation) / rate * 1e9


def returned_bytes(profile: Profile, size_bytes: int, operation: str) -> float:
    """Returns what a message puts on the wire the other way: acknowledgements, requests, pulls.

    They share the port with the data of that way, if there are some.
    """
    protocol = protocol_of(profile)
    packets = ceil(size_bytes / profile.get("mtu", max(1, size_bytes)))
    sent = ceil(packets / protocol.ack_packets) if protocol.ack_packets else 1
    if protocol.transport == "pull":
        sent += ceil(packets / protocol.pull_packets)
    return protocol.control_bytes * (sent + (operation in ANSWERED))


def one_way(path: Path, size_bytes: int, operation: str = "write") -> Iterator[StageTime]:
    """Yields the stages on the wire: the packets follow each other through the switches."""
    profile = path.profile
    first = min(size_bytes, profile.get("mtu", size_bytes))
    yield StageTime("first packet", first * profile.get("packet_copy"))
    yield StageTime("serialisation", serialisation_ns(profile, size_bytes, operation))
    yield StageTime("switches", path.switches * profile.get("hop"))
    yield StageTime("media", sum(link.latency_ns for link in path.links))


def message(path: Path, operation: str, size_bytes: int) -> tuple[StageTime, ...]:
    """Returns the stages of one operation, as perftest's latency tests time it.

    A write or send: until the target sees it (half a round trip).  A read or atomic: until the
    requester has the answer.
    """
    stages = [stage for stage in _message(path, operation, size_bytes) if stage.ns]
    merged: dict[str, float] = {}
    for stage in stages:
        merged[stage.name] = merged.get(stage.name, 0.0) + stage.ns
    return tuple(StageTime(name, ns) for name, ns in merged.items())


def _message(path: Path, operation: str, size_bytes: int) -> Iterator[StageTime]:
    figures = path.profile.figures
    move = move_of(path.profile, operation, size_bytes)
    if move:
        yield StageTime("post", move.post)
        yield StageTime("completion", move.whole - move.post)
        return
    if operation in ("load", "store") and "issue" not in figures:
        raise ModelError(
            f"{path.profile.name} has no loads and stores of remote memory: {operation} was asked; "
            "ask for read or write, or choose a CXL or accelerator fabric"
        )
    # Accelerators have no work requests: they load and store.
    stored = operation in MEMORY or ("issue" in figures and "post" not in figures)
    yield from (_memory if stored else _posted)(path, operation, size_bytes)
    yield StageTime("jitter", path.profile.get("jitter"))


def _memory(path: Path, operation: str, size_bytes: int) -> Iterator[StageTime]:
    """Yields the stages of a load, or of a store until the target sees it."""
    profile = path.profile
    yield StageTime("issue", profile.get("issue"))
    yield from one_way(path, 0 if operation in ANSWERED else size_bytes, operation)
    if operation in ANSWERED:
        yield StageTime("target's answer", profile.get("respond"))
        yield from one_way(path, size_bytes, operation)
    yield StageTime("arrival", profile.get("arrive"))


def _posted(path: Path, operation: str, size_bytes: int) -> Iterator[StageTime]:
    """Yields the stages of a work request."""
    profile = path.profile
    outward = 0 if operation == "read" else size_bytes
    yield StageTime("software", profile.get("software"))
    yield StageTime("post", profile.get("post"))
    yield StageTime("doorbell", profile.get("doorbell"))
    if outward > profile.get("inline"):
        yield StageTime("descriptor fetch", profile.get("descriptor"))
        yield StageTime("payload fetch", profile.get("fetch"))
    if "eager" in profile.figures and size_bytes > profile["eager"]:
        yield StageTime("rendezvous", profile["rendezvous"])
    yield from one_way(path, outward)
    if operation in ANSWERED:
        yield StageTime("target's answer", profile.get("respond"))
        if "post" not in profile.figures:  # sockets: a program answers, by the same software
            yield StageTime("software", profile.get("software"))
        yield from one_way(path, size_bytes)
    if operation == "send":
        yield StageTime("receive", profile.get("receive"))
    yield StageTime("write to memory", profile.get("write"))
    yield StageTime("completion", profile.get("completion"))


def issue_ns(profile: Profile, operation: str) -> float:
    """Returns the time from one message of a queue pair to its next; 0: no rate is known."""
    reads = operation == "read" and "read_rate" in profile.figures
    rate = profile.get("read_rate" if reads else "message_rate")
    return 1e9 / rate if rate else 0.0


def interval_ns(
    path: Path,
    operation: str,
    size_bytes: int,
    in_flight: int,
    queue_pairs: int = 1,
    directions: int = 1,
) -> StageTime:
    """Returns what limits a stream of messages, and the time between two of them in one direction.

    Each of *queue_pairs* has *in_flight* and rates of its own; they share the port, the bus, the
    credits of the endpoint, and the processor of a mover.
    """
    profile = path.profile
    round_trip = sum(
        stage.ns / path.ways if stage.name == "serialisation" else stage.ns
        for stage in message(path, operation, size_bytes)
    )
    move = move_of(profile, operation, size_bytes)
    if move:
        return StageTime("message rate", max(move.stream, move.whole / in_flight / queue_pairs))
    serial = serialisation_ns(profile, size_bytes, operation)
    if directions > 1:
        rate_per_s = profile["rate"] * profile.get("efficiency", 1.0)
        serial += returned_bytes(profile, size_bytes, operation) / rate_per_s * 1e9
    limits = [
        StageTime("serialisation", serial / (path.share * path.ways)),
        StageTime("messages in flight", round_trip / in_flight / queue_pairs),
    ]
    limits.append(StageTime("message rate", issue_ns(profile, operation) / queue_pairs))
    for figure, size in (
        ("flow_rate", size_bytes / queue_pairs),
        ("bus", size_bytes),
        # The adapter fetches one such payload after the other; of long messages only the first.
        ("single_rate", min(size_bytes, profile.get("mtu", size_bytes)) / queue_pairs),
    ):
        if figure in profile.figures:
            limits.append(StageTime(figure.replace("_", " "), size / profile[figure] * 1e9))
    if "window" in profile.figures:
        in_window = max(1.0, profile["window"] / max(size_bytes, 1))
        limits.append(StageTime("window", round_trip / in_window))
    return max(limits, key=lambda limit: limit.ns)
