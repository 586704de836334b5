# SPDX-License-Identifier: BSD-3-Clause
"""--check: packets agree with the answer's engine, or the check says which mechanism differs."""

from __future__ import annotations

import pytest

from nupa.model.answer.answer import SampleCheck
from nupa.model.engine.flows import compiled
from nupa.model.engine.predict import predict
from nupa.model.network.text import parse
from nupa.model.work import file
from nupa.model.work.text import parse as parse_work

pytestmark = pytest.mark.skipif(not compiled.is_built(), reason="nupa._model is not built")
EXAMPLES = {path.stem: path for path in file.examples()}


def checked(work: str, on: str) -> SampleCheck:
    text = f"@{EXAMPLES[work[1:]]}" if work.startswith("@") else work
    found = predict(parse_work(text), parse(on), check=True).check
    assert found is not None
    print(f"{work} on {on}: {found.sample}: {found.gap:+.1%}, {found.note}")
    return found


@pytest.mark.parametrize(
    ("work", "on", "most"),
    [
        ("allreduce:64M,algorithm=double-tree", "fat_tree(64,ib-ndr)", 0.01),
        ("allreduce:64M,algorithm=tree", "fat_tree(64,ib-ndr)", 0.02),
        ("allreduce:64M,algorithm=double-tree", "fat_tree(64,roce-400)", 0.02),
        ("broadcast:64M", "fat_tree(8,ib-ndr)", 0.01),
        ("alltoall:64M", "fat_tree(64,ib-ndr,radix=16)", 0.03),
        ("alltoall:64M", "fat_tree(64,ib-ndr,radix=16,taper=0.5)", 0.03),
        ("alltoall:64M", "fat_tree(64,uec-800,radix=16)", 0.03),
        ("alltoall:64M", "rail(64,nvlink4,ib-ndr)", 0.10),
        ("alltoall:64M", "dragonfly(64)", 0.06),
        ("allgather:64M,algorithm=pat", "fat_tree(64,ib-ndr,radix=16)", 0.01),
        ("@dispatch-deepseek-v3", "rail(64,nvlink4,ib-ndr)", 0.10),
        ("@dispatch-deepseek-v3", "nvl(64)", 0.02),
    ],
)
def test_packets_agree_with_the_answers_engine(work: str, on: str, most: float) -> None:
    found = checked(work, on)
    assert abs(found.gap) < most
    assert not found.note


def test_a_hash_of_paths_is_named_as_the_reason_of_a_gap() -> None:
    found = checked("alltoall:64M", "fat_tree(64,roce-400,radix=16)")
    assert found.gap > 0.1
    assert "if packets took paths in turn, not by a hash" in found.note
    assert abs(float(found.note.split("%")[0])) < 3


def test_buffers_are_named_as_the_reason_of_a_gap() -> None:
    found = checked("@storage-cluster", "storage16")
    assert found.gap > 0.1
    assert found.note == "+0.0% if buffers were endless"


def test_exchanges_in_a_row_are_checked_by_fewer_tokens_of_all_ranks() -> None:
    found = checked("@dispatch-deepseek-v3", "rail(64,nvlink4,roce-400)")
    assert found.sample.startswith("dispatch:16x7168")
    assert found.sample.endswith("64 ranks")
