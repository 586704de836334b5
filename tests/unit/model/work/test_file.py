# SPDX-License-Identifier: BSD-3-Clause
"""Files of works: the examples are valid and complete, and each error names its place."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from nupa.model.engine.predict import predict
from nupa.model.errors import ModelError
from nupa.model.network.text import parse as network
from nupa.model.work import text
from nupa.model.work.file import KINDS, examples, read, schema
from nupa.model.work.storage import Storage
from nupa.model.work.training.step import Training

EXAMPLES = list(examples())
STEP = """
kind = "training"
batch = 8
[model]
layers = 8
hidden = 1024
heads = 16
vocab = 32000
sequence = 2048
[parallel]
dp = 2
"""


def _read(data: str) -> Any:
    return read(tomllib.loads(data), "step.toml")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_predicted_on_the_network_of_its_command(path: Path) -> None:
    on = re.search(r"--on '?([^'\n]+)", path.read_text())
    assert on
    answer = predict(text.parse(f"@{path}"), network(on[1], 2))
    assert 0 < answer.low_ns <= answer.time_ns <= answer.high_ns
    assert sum(stage.ns for stage in answer.stages) == pytest.approx(answer.time_ns)


def test_the_examples_name_each_key() -> None:
    shown = "\n".join(path.read_text() for path in EXAMPLES)
    for kind in KINDS.values():
        for made in (kind.work, *(table for _, table in kind.tables.values())):
            for field in fields(made):
                if field.name not in ("layout", "head_dim"):
                    name = rf"^(# )?\[?{field.name}\b"
                    assert re.search(name, shown, re.MULTILINE), field.name


@pytest.mark.parametrize("kind", KINDS)
def test_every_schema_is_one(kind: str) -> None:
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(schema(kind))


def test_a_step_has_the_numbers_of_its_file() -> None:
    step = _read(STEP)
    assert isinstance(step, Training)
    assert (step.batch, step.model.hidden, step.layout.dp) == (8, 1024, 2)
    ordered = _read(STEP + 'order = ["dp", "tp", "pp"]')
    assert ordered.layout.order == ("dp", "tp", "pp")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"training"', '"trainin"', "kind is 'trainin': is 'training' meant?"),
        ("batch", "bacth", "the file: there is no key `bacth`: is `batch` meant?"),
        ("layers", "layer", "[model]: there is no key `layer`: is `layers` meant?"),
        ("dp = 2", "zz = 2", "[parallel]: there is no key `zz`; the keys are tp, pp, dp, ep"),
        ("heads = 16\n", "", "[model]: the key `heads` is missing"),
        ("batch = 8\n", "", "the file: the key `batch` is missing"),
        ("hidden = 1024", 'hidden = "wide"', "model.hidden: 'wide' is not a whole number"),
        ("batch = 8", "batch = 8\nsharded = 1", "sharded: 1 is not true or false"),
        ("batch = 8", "batch = 9", "batch is 9: give a multiple of dp x micro_batch = 2"),
        ("heads = 16", "heads = 17", "1024 hidden do not divide by 17 heads"),
        ("[parallel]\ndp = 2", "", "the table [parallel] is missing"),
    ],
)
def test_an_error_of_a_file_names_file_key_and_remedy(old: str, new: str, message: str) -> None:
    assert old in STEP
    with pytest.raises(ModelError) as caught:
        _read(STEP.replace(old, new))
    assert str(caught.value).startswith("step.toml: ")
    assert message in str(caught.value)


def test_a_word_of_the_list_is_named_with_the_others() -> None:
    with pytest.raises(ModelError, match=r"transport: 'quic' was given: give one of rdma, tcp"):
        read({"kind": "storage", "transport": "quic"}, "s.toml")


def test_storage_has_a_text_of_its_own() -> None:
    work = text.parse("storage:128K,rw=randread,iodepth=32,transport=tcp,converged=true")
    assert work == Storage(131072, "randread", 32, transport="tcp", converged=True)
    with pytest.raises(ModelError, match="iodepth: 'deep' is not a whole number"):
        text.parse("storage:4K,iodepth=deep")
