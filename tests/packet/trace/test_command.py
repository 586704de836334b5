# SPDX-License-Identifier: BSD-3-Clause
"""`nupa trace`: its output and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nupa.cli import main
from nupa.cli import trace as command
from nupa.diagram.draw import listing
from nupa.diagram.find.transfer import MARKS
from tests.packet.trace import scenes
from tests.packet.trace.scenes import SEND, Scene
from tests.unit.cli.command import Nupa

Run = Callable[..., str]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Nupa:
    return Nupa(capsys, ("trace",))


@pytest.fixture
def refused(shown: Nupa) -> Run:
    return shown.fails


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three SENDs, transfers 0x10, 0x20 and 0x30, and a packet that belongs to none."""
    scene = Scene()
    for number in (0x10, 0x20, 0x30):
        scene.transfer = number
        scene.wqe(SEND, number, after=100)
        scene.request("RC_SEND_ONLY", number, bytes(number), after=100)
    scene.transfer = 0
    scene.ack(5)
    path = tmp_path / "x.pcapng"
    path.write_bytes(scene.bytes())
    return path


def test_without_more_the_transfers_are_listed(file: Path, shown: Run) -> None:
    lines = shown(file).splitlines()
    assert lines[0].endswith(
        "x.pcapng: 3 transfers; 7 packets in 500 ns; 1 packet belongs to no transfer"
    )
    assert [line.split()[:2] for line in lines[3:]] == [["1", "0x10"], ["2", "0x20"], ["3", "0x30"]]


def test_one_transfer_is_found_by_number_id_or_packet(file: Path, shown: Run) -> None:
    ways = (("--number", "2"), ("--transfer", "0x20"), ("--transfer", "32"), ("--packet", "4"))
    drawn = {shown(file, *way) for way in ways}
    assert len(drawn) == 1
    assert drawn.pop().startswith("transfer 0x20: SEND 32 B\n")


def test_a_file_of_one_transfer_needs_no_number(tmp_path: Path, shown: Run) -> None:
    path = tmp_path / "x.pcapng"
    path.write_bytes(scenes.send().bytes())
    assert shown(path, "--all").startswith("transfer 0x100110000000001: SEND 8 B\n")
    assert shown(path, "--svg", "-").startswith("<svg")


def test_what_is_not_there_is_said_with_what_is_near(file: Path, refused: Run) -> None:
    assert "no transfer 0x21: " in refused(file, "--transfer", "0x21")
    assert "near are 0x10 (number 1), 0x20 (number 2), 0x30 (number 3)" in refused(
        file, "--transfer", "0x21"
    )
    assert "no transfer number 4: " in refused(file, "--number", "4")
    assert "has 3 transfers" in refused(file, "--number", "4")
    assert "the last one is 7" in refused(file, "--packet", "8")
    assert "packet 7 belongs to no transfer; near ones that do are 6" in refused(
        file, "--packet", "7"
    )
    assert "which transfer? " in refused(file, "--all")


def test_ids_are_not_asked_of_a_capture_that_has_none(tmp_path: Path, refused: Run) -> None:
    scene = Scene(names_transfers=False)
    scene.request("RC_SEND_ONLY", 1, b"x")
    path = tmp_path / "x.pcapng"
    path.write_bytes(scene.bytes())
    assert "its records name none; use --number or --packet" in refused(path, "--transfer", "1")


@pytest.mark.parametrize(
    "options",
    [
        ("--number", "0"),
        ("--number", "1", "--packet", "2"),
        ("--number", "1", "--sort", "duration"),
        ("--transfer", "abc"),
        ("--only", "slow"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    options: tuple[str, ...], file: Path, refused: Run
) -> None:
    assert "nupa trace --help" in refused(file, *options, code=2)


def test_json_has_the_list_and_the_diagram(file: Path, shown: Run) -> None:
    found = json.loads(shown(file, "--json"))
    assert [one["transfer"] for one in found["transfers"]] == ["0x10", "0x20", "0x30"]
    assert (found["packets"], found["unassigned"], found["damage"]) == (7, 1, None)
    drawn = json.loads(shown(file, "--number", "1", "--json"))
    assert drawn["transfer"] == "0x10"
    assert [(row["label"], row["packets"]) for row in drawn["rows"]] == [
        ("WQE SEND 16 B", [1]),
        ("RC SEND Only PSN 16", [2]),
    ]


def test_the_list_can_be_sorted_and_cut(file: Path, shown: Run) -> None:
    found = json.loads(shown(file, "--json", "--slowest", "2", "--sort", "bytes"))
    assert [one["number"] for one in found["transfers"]] == [2, 1]
    assert json.loads(shown(file, "--json", "--only", "retry"))["transfers"] == []


def test_ascii_and_width_are_as_asked(file: Path, shown: Run) -> None:
    assert shown(file, "--number", "1", "--ascii").isascii()
    assert shown(file, "--ascii").isascii()
    narrow, wide = shown(file, "--number", "1", "--width", "80"), shown(file, "--number", "1")
    assert max(map(len, narrow.splitlines())) <= 80
    assert "\x1b" not in wide


def test_an_svg_is_written_and_nothing_printed(file: Path, shown: Run, refused: Run) -> None:
    out = file.with_suffix(".svg")
    assert shown(file, "--number", "1", "--svg", out) == ""
    assert out.read_text(encoding="utf-8").startswith("<svg")
    nowhere = file.parent / "missing" / "x.svg"
    assert "cannot be written: No such file" in refused(file, "--number", "1", "--svg", nowhere)


def test_of_a_damaged_file_comes_what_was_before_then_the_message(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_bytes(file.read_bytes()[:-50])
    for options in ((), ("--number", "1")):
        assert main(["trace", str(file), *options]) == 1
        out, err = capsys.readouterr()
        assert "0x10" in out
        assert err.startswith(f"nupa: {file}: at byte ")
        assert "ends too early" in err


def test_a_file_that_is_not_there_is_said_in_one_line(tmp_path: Path, refused: Run) -> None:
    assert "cannot be opened" in refused(tmp_path / "x.pcapng")


def test_the_choices_of_the_command_are_those_of_the_layer_below() -> None:
    assert set(command._FLAGS) == set(MARKS)
    assert set(command._SORTS) == set(listing.SORTS)
