# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model profiles`, `validate` and `replay`: their tables, their JSON, their errors."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.base.progress import Progress
from nupa.cli import main
from nupa.cli.model.command import COMMANDS
from nupa.model.profile.profile import load, names
from nupa.model.validate.files import FILES

KINDS_SHOWN = ("fabric", "medium", "drive", "processor", "library")


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Returns the output of a command that succeeds with at most its progress on stderr."""
    code = main(["model", *argv])
    out, err = capsys.readouterr()
    assert code == 0
    assert all(line.startswith("[") for line in err.splitlines()), err
    return out


def test_profiles_lists_each_once_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    tables = printed(capsys, "profiles").split("\n\n")
    kinds = [each.split()[0].lower() for each in tables]
    assert kinds == [kind for kind in KINDS_SHOWN if names(kind)]
    listed = [line.split()[0] for each in tables for line in each.splitlines()[1:]]
    assert sorted(listed) == names()
    hdr = next(line for line in tables[0].splitlines() if line.startswith("ib-hdr "))
    assert hdr.split()[1:5] == ["200", "Gb/s", "130", "ns"]


@pytest.mark.parametrize("name", names())
def test_a_profile_is_printed_with_each_figure(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = load(name)
    text = printed(capsys, "profiles", name)
    assert text.startswith(f"{name}: {profile.title}\n")
    for figure in profile.figures.values():
        assert figure.source in text
    assert all(note in text for note in profile.notes)
    shown = json.loads(printed(capsys, "profiles", name, "--json"))
    assert set(shown["figures"]) == set(profile.figures)
    assert all({"unit", "source", "confidence"} <= set(each) for each in shown["figures"].values())


def test_what_the_packets_of_a_fabric_do_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "profiles", "roce-400").splitlines()
    assert "packets: flow_control pause, transport dcqcn, spread flow" in lines


def test_a_range_and_the_fitted_files_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "profiles", "ib-hdr").splitlines()
    hop = next(line for line in lines if line.startswith("hop"))
    assert hop.split()[1:7] == ["130", "ns", "90", "to", "130", "vendor"]
    fetch = next(line for line in lines if line.startswith("fetch"))
    assert "perftest-ib-hdr-write-lat.csv" in fetch
    assert any("from 2 B to 8 MiB, 2 ranks, write" in line for line in lines)


def test_all_profiles_are_one_json_array(capsys: pytest.CaptureFixture[str]) -> None:
    assert [each["name"] for each in json.loads(printed(capsys, "profiles", "--json"))] == names()


def test_an_unknown_profile_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "profiles", "ib-hd"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "is 'ib-hdr' meant?" in err


@pytest.mark.timeout(300)  # it simulates millions of packets
def test_validate_judges_each_file_against_its_bars(capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = printed(capsys, "validate").splitlines()
    assert head.split()[:5] == ["FILE", "FITTED", "BAR", "CASES", "ERROR"]
    judged = [line.split()[0] for line in lines if not line.split()[0].endswith(":")]
    assert [name for name in judged if name != "which"] == [
        file.name for file in FILES for _ in file.bars
    ]
    assert lines[-1].startswith("which is faster, where they differ by more than 10 %")


def test_validate_of_one_file_prints_its_cases(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "validate", "perftest-ib-hdr-write-lat.csv").splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("CASE"))
    assert len(lines) - at - 1 == 23
    assert lines[at + 1].split()[:3] == ["write:2", "ib-hdr", "1.87"]


def test_validate_as_json_has_errors_as_fractions(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "validate", "perftest-ib-edr-send-bw", "--json"))
    (file,) = found["files"]
    assert file["file"] == "perftest-ib-edr-send-bw"
    mean = sum(abs(case["error"]) for case in file["cases"]) / len(file["cases"])
    assert file["bars"][0]["error"] == pytest.approx(mean)
    assert set(found["order"]) == {"pairs", "right", "share", "limit", "met"}


def test_validate_refuses_an_unknown_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "validate", "perftest"]) == 1
    assert "no calibration file 'perftest' is judged" in capsys.readouterr().err


TRACE = str(Path(__file__).parents[2] / "data" / "chakra.0.et")


def test_a_replay_is_explained_as_a_prediction_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "x.json"
    lines = printed(capsys, "replay", TRACE, "--on", "ib-ndr", "--timeline", str(out)).splitlines()
    assert re.match(r"why: chakra on ib-ndr, 2 ranks: [\d.]+ µs", lines[0])
    assert any(re.match(r" +\d+%  computation +46.0 µs  the program computes", x) for x in lines)
    assert "RANK  PROCESS" in next(line for line in lines if line.startswith("RANK"))
    events = json.loads(out.read_text())["traceEvents"]
    ranks = {each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert {"rank 0", "rank 1"} <= ranks


@pytest.mark.parametrize("option", ["--goal", "--chakra", "--timeline"])
def test_a_replay_that_cannot_be_written_is_one_line(
    option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "none" / "x.json"
    assert main(["model", "replay", TRACE, "--on", "ib-ndr", option, str(out)]) == 1
    assert re.fullmatch(
        rf"nupa: .*{re.escape(str(tmp_path))}/none/x\S*: No such file or directory\n",
        capsys.readouterr().err,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as found:
        main(["model", command, "--help"])
    assert found.value.code == 0
    assert f"examples:\n  nupa model {command}" in capsys.readouterr().out


def test_progress_is_silent_until_its_quiet_time_is_over() -> None:
    times: Iterator[float] = iter([0.0, 1.9, 2.0])
    out = io.StringIO()
    with Progress(2, out, clock=lambda: next(times), quiet_s=2.0) as progress:
        progress.step("first")
        progress.step("second")
    assert out.getvalue() == "[2/2]  2.0 s  second\n"


def test_details_are_lines_every_five_seconds_where_no_line_is_rewritten() -> None:
    now = 0.0
    out = io.StringIO()
    with Progress(1, out, clock=lambda: now, quiet_s=2.0) as progress:
        progress.step("sweep")
        for second in range(1, 13):
            now = float(second)
            progress.detail(f"{second} of 12")
    assert out.getvalue() == "[1/1]  5.0 s  5 of 12\n[1/1] 10.0 s  10 of 12\n"
