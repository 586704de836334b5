# SPDX-License-Identifier: BSD-3-Clause
"""Answers as JSON: what is printed is what answer.schema.json describes, no more and no less."""

from __future__ import annotations

import json
from importlib import resources
from importlib.util import find_spec
from typing import Any

import jsonschema
import pytest

from nupa.cli import main
from nupa.model.answer.answer import Answer, SampleCheck, StageTime

SCHEMA = json.loads((resources.files("nupa.model") / "answer/answer.schema.json").read_text())


def check(value: Any) -> None:
    jsonschema.validate(json.loads(json.dumps(value)), SCHEMA)


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert main(["model", *argv]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "argv",
    [
        ("--work", "write:8", "--on", "ib-hdr"),
        ("--work", "write-bw:8..8M", "--on", "cxl-gen6x4"),
        ("--work", "allreduce:1M..1G", "--on", "nvlink4", "--ranks", "8"),
        ("--work", "alltoall:64M", "--on", "fat_tree(64,roce-400)", "--engine", "flows"),
        ("--work", "barrier", "--on", "ib-ndr", "--ranks", "8"),
    ],
)
def test_what_predict_prints_fits_the_schema(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(capsys, "predict", *argv, "--json")
    check(found)
    for answer in found if isinstance(found, list) else [found]:
        assert sum(stage["ns"] for stage in answer["stages"]) == pytest.approx(answer["time_ns"])
        assert sum(stage["share"] for stage in answer["stages"]) == pytest.approx(1)
        assert answer["low_ns"] <= answer["time_ns"] <= answer["high_ns"]


@pytest.mark.skipif(find_spec("nupa._model") is None, reason="the packet engine is not built")
def test_a_checked_answer_fits_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "predict", "--work", "write:8", "--on", "ib-hdr", "--check", "--json")
    check(found)
    assert abs(found["check"]["gap"]) < 0.02


def test_each_property_of_the_schema_is_printed_by_some_answer() -> None:
    everything = Answer(
        "w", "n", 2, 8, 1.0, 1.0, 1.0, (StageTime("post", 1.0),), "a", "r", "packets", "r",
        energy_pj=1.0, seed=1, check=SampleCheck("s", 1.0, 1.0), directions=2,
    )  # fmt: skip
    check(everything.shown())
    assert set(everything.shown()) == set(SCHEMA["$defs"]["answer"]["properties"])


@pytest.mark.parametrize(
    "change",
    [{"time_ns": 0}, {"stages": []}, {"engine": "guess"}, {"more": 1}, {"links": [{"name": "x"}]}],
)
def test_the_schema_refuses_what_no_answer_is(change: dict[str, Any]) -> None:
    right = Answer(
        "w", "n", 2, 8, 1.0, 1.0, 1.0, (StageTime("a", 1.0),), "a", "r", "flows", "r"
    ).shown()
    check(right)
    with pytest.raises(jsonschema.ValidationError):
        check(right | change)


def test_compared_answers_fit_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(
        capsys, "compare", "--work", "write:8", "--on", "ib-hdr,roce-100,nope", "--json"
    )
    assert set(found) == {"work", "answers", "errors"}
    check(list(found["answers"].values()))
    assert "no network 'nope'" in found["errors"]["nope"]


def test_both_answers_of_why_fit_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "why", "ib-hdr", "roce-100", "--work", "write:8", "--json")
    check([found["a"], found["b"]])
    more = sum(row["more_ns"] for row in found["stages"])
    assert more == pytest.approx(found["b"]["time_ns"] - found["a"]["time_ns"])
