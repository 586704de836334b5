# SPDX-License-Identifier: BSD-3-Clause
"""Chakra traces: two files that Google's protobuf made, files of ours, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.model.engine.replay import network_for, replay
from nupa.model.errors import ModelError
from nupa.model.formats import chakra
from nupa.model.formats.chakra.node import nodes
from nupa.model.formats.wire import WireError, fields, put_varint, varint
from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import Schedule
from tests.unit.model.refused import suppress_at

DATA = Path(__file__).parents[3] / "data"


def written(schedule: Schedule, folder: Path) -> Schedule:
    for rank, data in enumerate(chakra.write(schedule)):
        (folder / f"t.{rank}.et").write_bytes(data)
    return chakra.read(str(folder / "t.0.et"))


def test_files_of_another_protobuf_are_read() -> None:
    found = list(nodes((DATA / "chakra.0.et").read_bytes(), "chakra.0.et"))
    assert [(n.id, n.name, n.type, n.deps) for n in found] == [
        (7, "forward", 4, []),
        (8, "activations", 5, [7]),
        (9, "gradients", 7, [8]),
        (300, "optimizer", 4, [9]),
    ]
    assert found[0].duration_ns == 40_000
    assert found[1].number("comm_size") == 65536
    schedule = chakra.read(str(DATA / "chakra"))
    assert schedule.ranks == 2
    # 64 KiB from 0 to 1, then a ring all-reduce of 1 MiB: two rounds of two halves.
    sizes = sorted(step.bytes for step in schedule.steps if step.peer != step.rank)
    assert sizes == [65536] + 4 * [1 << 19]
    found_time = replay(schedule, network_for(schedule, "ib-hdr"))
    assert found_time.answer.time_ns > 46_000 + 2 * 2**19 / 25
    assert found_time.ranks[1].computation_ns == 46_000


def test_a_written_schedule_reads_back_the_same(tmp_path: Path) -> None:
    steps = [
        RankOperation(0, 0, 0, "compute", (), 1234),
        RankOperation(0, 1, 8, "write", (0,), 0),
        RankOperation(1, 1, 0, "receive", (1,), 0),
        RankOperation(1, 0, 64, "read", (2,), 0, 1),
        RankOperation(1, 1, 0, "compute", (3,), 5, 1),
    ]
    schedule = Schedule("t", 2, steps)
    again = written(schedule, tmp_path)
    assert sorted(step[:4] for step in again.steps) == sorted(step[:4] for step in steps)
    assert replay(again, network_for(again, "ib-hdr")).ranks == tuple(
        replay(schedule, network_for(schedule, "ib-hdr")).ranks
    )
    folder = tmp_path / "again"
    folder.mkdir()
    assert written(again, folder).steps == again.steps


def test_a_message_that_another_rank_waits_for_has_a_receive(tmp_path: Path) -> None:
    steps = [RankOperation(0, 1, 8, "write"), RankOperation(1, 1, 0, "compute", (0,), 700)]
    schedule = Schedule("t", 2, steps)
    again = written(schedule, tmp_path)
    network = network_for(schedule, "ib-hdr")
    assert replay(again, network).ranks[1].end_ns == replay(schedule, network).ranks[1].end_ns


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.0.et").write_bytes(b"")
    (tmp_path / "a.2.et").write_bytes(b"")
    with pytest.raises(ModelError, match="the traces are of ranks 0, 2"):
        chakra.read(str(tmp_path / "a"))
    with pytest.raises(ModelError, match="no trace"):
        chakra.read(str(tmp_path / "b.0.et"))


def test_a_cut_file_names_the_offset(tmp_path: Path) -> None:
    data = (DATA / "chakra.0.et").read_bytes()
    (tmp_path / "c.0.et").write_bytes(data[:-3])
    with pytest.raises(ModelError, match=r"c\.0\.et: offset \d+: a message of \d+ bytes"):
        chakra.read(str(tmp_path / "c"))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"type": 99}, "is of type 99"),
        ({"type": 6, "attributes": {"comm_src": 1}}, "receives from rank 1 with tag 0"),
        ({"type": 5}, "has no attribute comm_dst"),
        ({"type": 5, "attributes": {"comm_dst": 4}}, "comm_dst is 4: there are ranks 0 to 1"),
        ({"type": 7, "attributes": {"comm_size": 8}}, "has no comm_type from 0 to 9"),
        ({"type": 4, "deps": [77]}, "waits for node 77: there is none"),
    ],
)
def test_a_wrong_node_is_named(step: dict[str, object], said: str) -> None:
    from nupa.model.formats.chakra.node import TraceNode
    from nupa.model.formats.chakra.read import _TraceAssembly

    trace = [TraceNode(id=5, name="n", **step)]  # type: ignore[arg-type]
    with pytest.raises(ModelError) as caught:
        _TraceAssembly("t", ["t.0.et", "t.1.et"], [trace, []]).schedule()
    assert f"t.0.et: node 5 ('n'): {said}" in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_nodes_or_an_error_with_an_offset(data: bytes) -> None:
    with suppress_at("f"):
        list(nodes(data, "f"))


@given(st.integers(0, (1 << 64) - 1))
def test_a_number_is_read_as_it_was_written(value: int) -> None:
    packed = put_varint(value)
    assert varint(packed, 0) == (value, len(packed))


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(WireError, match="more than 64 bits"):
        list(fields(b"\x08" + b"\xff" * 9 + b"\x7f"))
