# SPDX-License-Identifier: BSD-3-Clause
"""Answers as a timeline: Chrome's trace events in JSON, which ui.perfetto.dev opens.

Each answer is a process.  Its first thread has the stages, one after the other; each rank has a
thread, and further ones for operations that overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nupa.model.answer.answer import Answer, TimelineSpan
from nupa.model.answer.meaning import meaning

_US = 1e3  # the format counts microseconds
_STAGES = 0
Event = dict[str, Any]


def trace(answers: Sequence[Answer]) -> dict[str, Any]:
    """Returns the trace: an object with traceEvents."""
    events: list[Event] = []
    for pid, answer in enumerate(answers, 1):
        events.extend(_process(pid, answer))
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _process(pid: int, answer: Answer) -> Iterator[Event]:
    yield _named("process_name", pid, 0, f"{answer.work} on {answer.network}")
    yield {**_named("process_labels", pid, 0, ""), "args": {"labels": f"engine {answer.engine}"}}
    yield _named("thread_name", pid, _STAGES, "stages of the longest chain")
    at = 0.0
    for stage in answer.stages:
        args = {"share": stage.ns / answer.time_ns, "meaning": meaning(stage.name)}
        yield _slice(pid, _STAGES, stage.name, at, stage.ns, args)
        at += stage.ns
    threads: dict[tuple[int, int], int] = {}
    for span, lane in _lanes(answer.spans):
        key = (span.rank, lane)
        if key not in threads:
            threads[key] = len(threads) + 1
            name = f"rank {span.rank}" + (f", {lane + 1}" if lane else "")
            yield _named("thread_name", pid, threads[key], name)
            order = {"sort_index": span.rank * 1000 + min(lane, 999)}
            yield {**_named("thread_sort_index", pid, threads[key], ""), "args": order}
        yield _slice(pid, threads[key], span.name, span.start_ns, span.ns, {})


def _lanes(spans: Sequence[TimelineSpan]) -> Iterator[tuple[TimelineSpan, int]]:
    """Yields spans with the first lane of their rank that is free: slices of a thread must nest."""
    free: dict[int, list[float]] = {}
    for span in sorted(spans, key=lambda each: (each.start_ns, each.rank)):
        lanes = free.setdefault(span.rank, [])
        lane = next((at for at, end in enumerate(lanes) if end <= span.start_ns), len(lanes))
        if lane == len(lanes):
            lanes.append(0.0)
        lanes[lane] = span.start_ns + span.ns
        yield span, lane


def _named(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(pid: int, tid: int, name: str, start_ns: float, ns: float, args: Event) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": "stage" if tid == _STAGES else "operation",
        "pid": pid,
        "tid": tid,
        "ts": start_ns / _US,
        "dur": ns / _US,
        "args": args,
    }
