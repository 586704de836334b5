# SPDX-License-Identifier: BSD-3-Clause
"""`nupa replay`: its output and exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nupa.cli import main
from nupa.fabric import Fabric
from nupa.replay import ReplayDifferenceError
from nupa.topology.topology import star
from tests.packet.replay.tape import Talk, Tape, pattern

VA = 0x1000


@pytest.fixture
def tape() -> Tape:
    tape = Tape()
    talk = Talk(tape)
    talk.store(VA, pattern(300))
    talk.load(VA, pattern(300))
    return tape


@pytest.fixture
def tampered(tape: Tape) -> Tape:
    Talk(tape, psn=tape.packets[-1]["BTH"].psn + 2).load(VA, pattern(300, 1))
    return tape


def test_a_capture_that_matches_exits_with_0(
    tape: Tape, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tape.write(tmp_path / "x.pcapng")
    assert main(["replay", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "2 requests played between 2 hosts: 2 matched, 0 differed" in out
    assert err == ""


def test_a_difference_exits_with_1_and_is_shown(
    tampered: Tape, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tampered.write(tmp_path / "x.pcapng")
    assert main(["replay", str(path)]) == 1
    out, _ = capsys.readouterr()
    assert out.startswith("packet 7: RC RDMA_READ of 300 bytes at 0x1000, rkey 0x77, from 10.0.0.1")
    assert "read data, 300 bytes from byte 0 on: the capture has 07 14" in out
    assert main(["replay", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["matched"], found["differed"], found["hosts"]) == (2, 1, 2)
    (difference,) = found["differences"]
    assert (difference["packet"], difference["came"][:5]) == (7, "00 0d")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere.pcapng"], "nowhere.pcapng: cannot be opened: No such file"),
        ([__file__], "this is not a pcapng or pcap file"),
        (["--fabric", "none-such", __file__], "no fabric is named 'none-such'"),
    ],
)
def test_what_cannot_be_replayed_exits_with_2_and_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_the_regression_test_of_the_page_runs(
    tape: Tape, tampered: Tape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[3] / "docs" / "replay.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict[str, Callable[[], None]] = {}
    exec(example, names)
    test = names["test_the_failure_of_last_week_does_not_come_back"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    tape.write(Path("tests/failure.pcapng"), frames=tape.frames()[:6])
    test()
    tampered.write(Path("tests/failure.pcapng"))
    with pytest.raises(ReplayDifferenceError, match="1 differed"):
        test()


def test_it_plays_on_a_fabric_that_is_up_and_leaves_it_as_it_was(
    tape: Tape,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    path = tape.write(tmp_path / "x.pcapng")
    Fabric.create("rack", star(1, "rack")).close()
    assert main(["replay", "--fabric", "rack", str(path)]) == 0
    assert "between 1 hosts: 2 matched" in capsys.readouterr().out
    with Fabric.open("rack") as fabric:
        assert fabric.processes() == []
    Fabric.remove("rack")
