# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fault`: what it adds, lists, clears and refuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nupa.cli import main
from nupa.fabric import Fabric
from nupa.fabric.fault import KINDS
from nupa.topology.topology import star

Run = Callable[..., str]


WORDS = ("fault",)


@pytest.fixture(autouse=True)
def fabric(folder: Path) -> Iterator[Fabric]:  # noqa: ARG001
    """The default one, of two hosts, in a folder of this test alone."""
    with Fabric.create("default", star(2)) as fabric:
        yield fabric
    Fabric.remove("default")


def test_a_fault_is_added_listed_and_cleared(nupa: Run) -> None:
    added = nupa("host0", "add", "drop", "--probability", "1%", "--seed", "7")
    assert added == (
        "fault 1 on host0/1: drop probability 1%, seed 7\n"
        "again: nupa fault host0 add drop --probability 1% --seed 7\n"
    )
    assert nupa("ls").splitlines() == [
        "ID  PORT     KIND  PARAMETERS      SEED  PACKETS SEEN  PACKETS HIT  LEFT",
        "1   host0/1  drop  probability 1%  7     0             0            until cleared",
    ]
    assert nupa("clear", "1") == ""
    assert nupa("ls") == "default has no faults: `nupa fault PORT add KIND` adds one\n"


def test_json_has_all_of_a_fault(nupa: Run) -> None:
    words = ["switch0/2", "add", "delay", "--delay", "2ms", "--after", "9", "--count", "3"]
    added = json.loads(nupa(*words, "--seed", "0x10", "--json"))
    assert added == {
        "id": 1,
        "port": "switch0/2",
        "kind": "delay",
        "probability": 1.0,
        "count": 3,
        "after": 9,
        "for_ns": 0,
        "duration_ns": 2_000_000,
        "bytes_per_s": 0,
        "seed": 16,
        "seen": 0,
        "hits": 0,
        "ended": False,
    }
    assert json.loads(nupa("ls", "--json")) == [added]


def test_the_line_that_says_how_to_add_it_again_does(nupa: Run, fabric: Fabric) -> None:
    options = ["--probability", "33.333%", "--count", "3", "--after", "2", "--duration", "1.5ms"]
    _, again = nupa("host1", "add", "reorder", *options).splitlines()
    command = shlex.split(again.removeprefix("again: "))
    assert command[:2] == ["nupa", "fault"]
    nupa(*command[2:])
    first, second = fabric.faults()
    assert first.fault == second.fault
    assert (first.port, second.port) == ("host1/1", "host1/1")


def test_the_command_is_printed_as_it_was_given_with_the_seed_that_was_drawn(
    nupa: Run, fabric: Fabric
) -> None:
    options = ("--del=2000us", "--count=0x2", "--fabric", fabric.name)
    words = ("host0-switch0", "add", "delay", *options)
    _, again = nupa(*words).splitlines()
    (entry,) = fabric.faults()
    seed = f" --seed {entry.fault.seed}" if "seed" in entry.fault.options else ""
    assert again == f"again: nupa fault {' '.join(words)}{seed}"


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_can_be_added(nupa: Run, fabric: Fabric, kind: str) -> None:
    rate = ["--rate", "10MB/s"] if kind == "bandwidth" else []
    nupa("host0-switch0", "add", kind, *rate)
    (entry,) = fabric.faults()
    assert (entry.port, entry.fault.kind, entry.fault.count) == ("host0/1", kind, KINDS[kind].count)


def test_a_seed_is_drawn_anew_and_shown(nupa: Run, fabric: Fabric) -> None:
    said = [nupa("host0", "add", "drop") for _ in range(2)]
    seeds = [entry.fault.seed for entry in fabric.faults()]
    assert seeds[0] != seeds[1]
    for text, seed in zip(said, seeds, strict=True):
        assert f"seed {seed}\n" in text


def test_for_says_how_long(nupa: Run, fabric: Fabric) -> None:
    said = nupa("host0", "add", "drop", "--for", "90s", "--count", "1", "--seed", "3")
    assert "again: nupa fault host0 add drop --for 90s --count 1 --seed 3\n" in said
    (entry,) = fabric.faults()
    assert 0 < entry.fault.for_ns <= 90_000_000_000
    assert entry.left.startswith("1 hit, ")


def test_some_are_cleared_or_all(nupa: Run, fabric: Fabric) -> None:
    for _ in range(4):
        nupa("host0", "add", "drop")
    nupa("clear", "1", "3")
    assert [entry.id for entry in fabric.faults()] == [2, 4]
    nupa("clear", "--all")
    assert fabric.faults() == []
    nupa("host0", "add", "drop")
    assert [entry.id for entry in fabric.faults()] == [5]


def test_a_fault_that_is_not_there_is_not_cleared(
    nupa: Run, nupa_fails: Run, fabric: Fabric
) -> None:
    nupa("host0", "add", "drop")
    assert "default has no fault 7, 8: `nupa fault ls`" in nupa_fails("clear", "7", "1", "8")
    assert fabric.faults() == []
    nupa("clear", "--all")


def test_the_table_has_an_end_which_is_said(nupa_fails: Run, nupa: Run, fabric: Fabric) -> None:
    for _ in range(64):
        nupa("host0", "add", "drop")
    line = nupa_fails("host0", "add", "drop")
    assert line.startswith("nupa: cannot add drop to host0/1: ")
    assert "64" in line
    assert len(fabric.faults()) == 64


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: PORT|ls|clear"),
        (["host0"], "'host0': write host0 add KIND, ls, or clear"),
        (["host0", "drop"], "'host0 drop': write host0 add KIND"),
        (["host0", "remove", "drop"], "write host0 add KIND"),
        (["host0", "add", "drop", "more"], "write host0 add KIND"),
        (["host0", "add", "fire"], "'fire' is not a kind of fault: there are drop, duplicate"),
        (["host0", "add", "drop", "--delay", "1s"], "drop takes no duration: it takes prob"),
        (["host0", "add", "bandwidth"], "bandwidth needs a rate: 10MB/s"),
        (["host0", "add", "bandwidth", "--rate", "10"], "'10' is not a rate: write its unit"),
        (["host0", "add", "drop", "--probability", "2"], "'2' is not a probability: above 0"),
        (["host0", "add", "drop", "--for", "2"], "'2' is not a time: write its unit"),
        (["host0", "add", "drop", "--count", "x"], "'x' is not a number like 16 or 0x10"),
        (["host0", "add", "drop", "--all"], "add takes no --all"),
        (["ls", "host0"], "ls lists all faults of a fabric, and takes no 'host0'"),
        (["ls", "--seed", "1"], "ls takes no --seed"),
        (["clear"], "clear takes the IDs of faults, or --all"),
        (["clear", "1", "--all"], "clear takes the IDs of faults, or --all"),
        (["clear", "0"], "'0' is not the ID of a fault"),
        (["clear", "drop"], "'drop' is not the ID of a fault"),
        (["clear", "1", "--for", "1s"], "clear takes no --for"),
    ],
)
def test_a_wrong_command_line_is_one_line(nupa_fails: Run, words: list[str], said: str) -> None:
    assert said in nupa_fails(*words, code=2)


def test_a_place_or_fabric_that_is_not_there_is_one_line(nupa_fails: Run) -> None:
    assert "no port, host or link is named 'host9'" in nupa_fails("host9", "add", "drop")
    assert "no fabric is named 'lab'" in nupa_fails("ls", "--fabric", "lab")


def test_help_says_what_each_kind_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["fault", "--help"])
    shown = capsys.readouterr().out
    for kind, info in KINDS.items():
        assert f"  {kind:<10} {info.what}\n" in shown
    assert "nupa fault host0 add drop --probability 1%\n" in shown


def test_show_mentions_faults(nupa: Run, capsys: pytest.CaptureFixture[str]) -> None:
    nupa("host0", "add", "drop")
    nupa("host1", "add", "kill")
    assert main(["show"]) == 0
    assert "2 faults on host0/1, host1/1: `nupa fault ls`" in capsys.readouterr().out
    assert main(["show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [fault["kind"] for fault in shown["faults"]] == ["drop", "kill"]
