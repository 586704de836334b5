# SPDX-License-Identifier: BSD-3-Clause
"""Files of a recording: whole, of a killed process, cut, damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nupa.model.errors import ModelError
from nupa.model.recording.file import read_file
from nupa.model.recording.layout import BODY_OFFSET, HEADER, HEADER_BYTES, RECORD, CallKind
from nupa.model.recording.recording import read
from tests.unit.model.recording.made import Made, header
from tests.unit.model.refused import suppress_at


def test_the_structs_have_the_sizes_of_the_header() -> None:
    assert (HEADER.size, RECORD.size) == (224, 32)


def test_a_whole_file_says_so(tmp_path: Path) -> None:
    path = Made(0, 5, 6).post(10, 5, 8).put(CallKind.LEFT, 99).write(tmp_path)
    found = read_file(path)
    assert (found.whole, found.cut, len(found.records)) == (True, False, 2)
    assert (found.host_name, found.program) == ("host0", "app")


def killed(folder: Path, tail: Made, body: Made) -> Path:
    """Writes the file of a process that was killed: its tail has the records of *tail*."""
    path = body.write(folder)
    data = bytearray(path.read_bytes())
    records = tail.data[BODY_OFFSET:]
    data[HEADER_BYTES : HEADER_BYTES + len(records)] = records
    path.write_bytes(bytes(data))
    return path


def test_a_killed_process_leaves_all_up_to_its_last_call(tmp_path: Path) -> None:
    body = Made(0, 5, 6, changed={"body_records": 2}).post(10, 5, 8)
    killed(tmp_path, Made(0, 5, 6).post(30, 5, 9), body)
    recording = read(str(tmp_path))
    assert [call.bytes for call in recording.processes[0].calls] == [0, 8, 0, 9]
    assert "was killed, or still runs" in recording.warnings[0]


def test_a_process_killed_while_it_moved_its_tail_leaves_each_record_once(tmp_path: Path) -> None:
    moved = Made(0, 5, 6).post(10, 5, 8)
    path = killed(tmp_path, moved, moved)
    assert len(read_file(path).records) == 2
    path.write_bytes(path.read_bytes()[:-32])  # only a part of it came there
    assert len(read_file(path).records) == 2


def test_a_body_with_a_hole_is_named(tmp_path: Path) -> None:
    path = Made(0, 5, 6).post(10, 5, 8).write(tmp_path)
    path.write_bytes(path.read_bytes() + bytes(32))
    with pytest.raises(ModelError, match=f"offset {BODY_OFFSET + 64}: record 2 of 3 is missing"):
        read_file(path)


def test_half_a_record_at_the_end_is_left_out(tmp_path: Path) -> None:
    path = Made(0, 5, 6).post(10, 5, 8).write(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    assert len(read_file(path).records) == 1


def test_a_full_disk_is_a_warning(tmp_path: Path) -> None:
    Made(0, 5, 6).post(10, 5, 8).put(CallKind.CUT, 20).write(tmp_path)
    assert "the disk was full" in read(str(tmp_path)).warnings[0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "offset 0: no recording"),
        (b"NUPAREC\n", "offset 0: no recording"),
        (header(version=9), "offset 8: version 9"),
        (header(record_bytes=24), "offset 8: version 2 with a header of 4096 and records of 24"),
        (header(ticks_per_s=5), "offset 56: a clock of 5 ticks a second"),
        (header(start_ticks=0), "offset 40: no time"),
    ],
)
def test_a_wrong_header_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "x.nrec"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        read_file(path)
    assert f"{path}: {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": 77}, "a record of kind 77"),
        ({"kind": CallKind.POST, "opcode": 200}, "the unknown opcode 200"),
        ({"kind": CallKind.POST, "mover": 9}, "an unknown mover 9"),
        ({"kind": CallKind.POST, "at": -2_000_000 + 1_000_000}, "ticks: the recording began at"),
    ],
)
def test_a_wrong_record_is_named_by_its_offset(
    tmp_path: Path, change: dict[str, int], said: str
) -> None:
    options = {"at": 5, **change}
    path = Made(0, 5, 6).put(**options).write(tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ModelError) as caught:
        read_file(path)
    assert f"{path}: offset {BODY_OFFSET + 32}: " in str(caught.value)
    assert said in str(caught.value)


def test_a_folder_without_a_recording_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="did a process of the program open an RDMA device"):
        read(str(tmp_path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tail=st.binary(max_size=400),
    noise=st.binary(max_size=400),
    cut=st.integers(0, 24_576),
    count=st.integers(0, 1 << 63),
)
def test_any_bytes_are_records_or_an_error_that_names_the_file(
    tmp_path: Path, tail: bytes, noise: bytes, cut: int, count: int
) -> None:
    path = tmp_path / "x.nrec"
    data = Made(0, 5, 6, changed={"body_records": count}).post(10, 5, 8).data + noise
    data = data[:HEADER_BYTES] + tail + data[HEADER_BYTES + len(tail) :]
    path.write_bytes(data[: HEADER_BYTES + cut])
    with suppress_at(str(path)):
        read(str(path))


def test_clocks_of_one_machine_are_one(tmp_path: Path) -> None:
    """A second process whose header is a little off has the first one's clock."""
    long = Made(0, 5, 6)
    ns = 1_000_000 + 10_000_000
    long.put(CallKind.CLOCK, 10_000_000, qpn=ns & 0xFFFFFFFF, peer=ns >> 32).write(tmp_path)
    Made(1, 6, 5, changed={"start_ns": 1_000_300, "ticks_per_s": 1_010_000_000}).post(
        500, 5, 8
    ).write(tmp_path)
    found = read(str(tmp_path))
    post = found.processes[1].calls[-1]
    assert post.at_ns == pytest.approx(500)
