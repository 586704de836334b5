# SPDX-License-Identifier: BSD-3-Clause
"""Timelines: the shape that the Trace Event Format document states, checked without our code."""

from __future__ import annotations

import json
from collections import defaultdict
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.cli import main
from nupa.model.answer.answer import Answer, StageTime, TimelineSpan
from nupa.model.answer.perfetto import trace
from nupa.model.study.question import predict

#: Of the document: a JSON object, complete events (X) and metadata events (M) with known names.
FORMAT = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["ph", "pid", "tid", "name"],
                "properties": {
                    "ph": {"enum": ["X", "M"]},
                    "pid": {"type": "integer"},
                    "tid": {"type": "integer"},
                    "name": {"type": "string", "minLength": 1},
                    "args": {"type": "object"},
                },
                "if": {"properties": {"ph": {"const": "X"}}},
                "then": {
                    "required": ["ts", "dur"],
                    "properties": {
                        "ts": {"type": "number", "minimum": 0},
                        "dur": {"type": "number", "minimum": 0},
                        "cat": {"type": "string"},
                    },
                },
                "else": {
                    "properties": {
                        "name": {
                            "enum": [
                                "process_name", "process_labels", "process_sort_index",
                                "thread_name", "thread_sort_index",
                            ]
                        }
                    },
                    "required": ["args"],
                },
            },
        },
    },
}  # fmt: skip


def judge(found: dict[str, Any]) -> None:
    """Checks types, that threads have names, and that slices of a thread do not overlap."""
    jsonschema.validate(found, FORMAT)
    threads: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    named = set()
    for event in found["traceEvents"]:
        key = (event["pid"], event["tid"])
        if event["ph"] == "X":
            threads[key].append((event["ts"], event["ts"] + event["dur"]))
        elif event["name"] == "thread_name":
            assert key not in named
            named.add(key)
    assert set(threads) == named
    for slices in threads.values():
        slices.sort()
        for (_, end), (start, _) in pairwise(slices):
            assert start >= end - 1e-6 * max(1.0, end)


def slices(found: dict[str, Any], category: str) -> list[dict[str, Any]]:
    return [e for e in found["traceEvents"] if e["ph"] == "X" and e["cat"] == category]


def test_stages_follow_each_other_until_the_end() -> None:
    answer = predict("allreduce:1M", "ib-ndr", 8)
    found = trace([answer])
    judge(found)
    last = max(slices(found, "stage"), key=lambda event: event["ts"])
    assert (last["ts"] + last["dur"]) * 1e3 == pytest.approx(answer.time_ns)


@pytest.mark.skipif(find_spec("nupa._model") is None, reason="the packet engine is not built")
def test_each_operation_of_the_packet_engine_is_a_slice_of_its_rank() -> None:
    answer = predict("allreduce:1M,algorithm=ring", "ib-ndr", 4, engine="packets", spans=True)
    found = trace([answer])
    judge(found)
    assert len(slices(found, "operation")) == 4 * 2 * 3  # 2 (n - 1) steps of each rank


@given(
    st.lists(
        st.builds(
            TimelineSpan, st.integers(0, 3), st.just("write"), st.floats(0, 1e6), st.floats(0, 1e6)
        )
    )
)
def test_operations_that_overlap_lie_on_further_threads(spans: list[TimelineSpan]) -> None:
    answer = Answer(
        "w", "n", 4, 8, 1.0, 1.0, 1.0, (StageTime("a", 1.0),), "a", "r", "flows", "r",
        spans=tuple(spans),
    )  # fmt: skip
    found = trace([answer])
    judge(found)
    assert len(slices(found, "operation")) == len(spans)


def test_the_command_writes_a_process_for_each_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.json"
    argv = ["compare", "--work", "write:8", "--on", "ib-hdr,roce-100", "--timeline", str(out)]
    assert main(["model", *argv]) == 0
    capsys.readouterr()
    found = json.loads(out.read_text())
    judge(found)
    names = [e["args"]["name"] for e in found["traceEvents"] if e["name"] == "process_name"]
    assert names == ["write:8 on ib-hdr", "write:8 on roce-100"]


def test_a_folder_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["predict", "--work", "write:8", "--on", "ib-hdr", "--timeline", "/none/such/x.json"]
    assert main(["model", *argv]) == 1
    assert "--timeline /none/such/x.json: No such file" in capsys.readouterr().err
