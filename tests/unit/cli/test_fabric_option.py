# SPDX-License-Identifier: BSD-3-Clause
"""--fabric has one spelling in all commands, in any place before --; NUPA_FABRIC is its default."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.cli import build_parser
from nupa.cli.common.command import Parser
from nupa.fabric import Fabric, registry
from nupa.netdev import state
from nupa.topology.topology import star
from tests.unit.cli.command import Nupa, runs

#: Commands that use no fabric, by their first words.
WITHOUT = (
    "completion",
    "dissector",
    "doctor",
    "demo",
    "fabric",
    "ls",
    "man",
    "model",
    "trace",
    "vm ls",
    "trunk part",
    "trunk up",
)


pytestmark = pytest.mark.usefixtures("up")


@pytest.fixture
def up(folder: Path) -> Iterator[None]:
    """Two fabrics are up, neither of them named `default`."""
    assert registry.folder() == str(folder)
    for name, hosts in (("lab", 3), ("rack", 4)):
        Fabric.create(name, star(hosts)).close()
    yield
    assert registry.folder() == str(folder)
    for name in registry.names():
        Fabric.remove(name)


def leaves(parser: argparse.ArgumentParser) -> Iterator[Parser]:
    """Yields the parser of each command."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        assert isinstance(parser, Parser)
        yield parser
    for action in below:
        for each in action.choices.values():
            yield from leaves(each)


def test_each_command_of_a_fabric_takes_the_option() -> None:
    without = {
        parser.prog.removeprefix("nupa ")
        for parser in leaves(build_parser([]))
        if not parser.takes("--fabric")
    }
    assert {name for name in without if not name.startswith(WITHOUT)} == set()


@pytest.mark.parametrize(
    "line",
    [
        "--fabric rack show --json",
        "--fabric=rack show --json",
        "show --fabric rack --json",
        "show --json --fabric rack",
        "show rack --json",
        "show --json rack",
        "show --json rack --fabric rack",
        "--fabric lab show --json --fabric rack",
    ],
)
def test_the_option_is_taken_in_any_place(nupa: Nupa, line: str) -> None:
    assert json.loads(nupa(*line.split()))["name"] == "rack"


@pytest.mark.parametrize(
    "line", ["--fabric lab pool ls", "pool --fabric lab ls", "pool ls --fabric lab"]
)
def test_commands_of_commands_take_it_in_any_place(nupa: Nupa, line: str) -> None:
    assert nupa(*line.split()).startswith("no regions")


@pytest.mark.parametrize("line", ["--fabric lab doctor", "--fabric lab vm ls", "--fabric=x ls"])
def test_commands_without_a_fabric_refuse_it(nupa: Nupa, line: str) -> None:
    assert "unrecognized arguments: --fabric; see `nupa " in nupa.fails(*line.split(), code=2)


def test_two_names_are_refused(nupa: Nupa) -> None:
    line = nupa.fails("show", "lab", "--fabric", "rack", code=2)
    assert "two fabrics are named, lab and rack: name one; see `nupa show --help`" in line


@pytest.mark.parametrize(
    ("words", "own", "program"),
    [
        ("run --fabric lab -- p --fabric x", {"fabric": "lab"}, "p --fabric x"),
        ("run p --fabric x -- y", {"fabric": None}, "p --fabric x -- y"),
        ("run --host 1 p -c", {"host": "1"}, "p -c"),
        ("run --host=1 --hosts 4 -- -p", {"host": "1", "hosts": 4}, "-p"),
        ("--fabric lab run -- p", {"fabric": "lab"}, "p"),
        ("shell host1 --fabric lab -- p", {"fabric": "lab", "host": "host1"}, "p"),
        ("shell host1 --fabric lab p -x", {"fabric": "lab", "host": "host1"}, "p -x"),
        ("shell --fabric lab host1", {"fabric": "lab", "host": "host1"}, ""),
        ("shell host1 --fabric lab", {"fabric": "lab", "host": "host1"}, ""),
        ("net exec host0 --fab lab -- p -- q", {"fabric": "lab", "host": "host0"}, "p -- q"),
        ("net exec host0 p -f", {"fabric": None, "host": "host0"}, "p -f"),
        ("vm run host0 --name m --mover relay -- p", {"fabric": "m", "mover": "relay"}, "p"),
    ],
)
def test_options_stand_on_both_sides_of_the_host(
    words: str, own: dict[str, object], program: str
) -> None:
    args = build_parser(words.split()).parse_args(words.split())
    assert vars(args).items() >= own.items()
    assert args.command == program.split()


@pytest.mark.parametrize("as_path", [False, True])
def test_the_environment_names_the_default(
    nupa: Nupa, monkeypatch: pytest.MonkeyPatch, as_path: bool
) -> None:
    assert "several fabrics are up, lab, rack: name one with --fabric" in nupa.fails("show")
    monkeypatch.setenv("NUPA_FABRIC", registry.path_of("rack") if as_path else "rack")
    assert json.loads(nupa("show", "--json"))["name"] == "rack"
    assert json.loads(nupa("show", "lab", "--json"))["name"] == "lab"
    runs("--host", "host3", "--", "true")
    assert "the fabric 'rack' is up already" in nupa.fails("up")
    assert "the fabric 'rack' has no interfaces" in nupa.fails("shell", "host1")
    assert "the fabric 'rack' has no interfaces" in nupa.fails("net", "down")
    assert "no fabric manager" in nupa.fails("fm", "ls")
    nupa("down")
    assert registry.names() == ["lab"]
    assert nupa.fails("show") == (
        "nupa: no fabric is named 'rack' (NUPA_FABRIC); up are: lab; "
        "`nupa up --fabric rack` makes it\n"
    )
    assert "rack is up: 2 hosts" in nupa("up")


def test_a_path_is_as_good_as_a_name(nupa: Nupa) -> None:
    path = registry.path_of("lab")
    assert json.loads(nupa("show", path, "--json"))["name"] == "lab"
    assert "the fabric 'lab' has no interfaces" in nupa.fails("shell", "--fabric", path, "host1")
    assert nupa.fails("show", "--fabric", "/nowhere/nupa-0-x") == (
        "nupa: no fabric is at '/nowhere/nupa-0-x'; up are: lab, rack\n"
    )


def test_the_only_fabric_without_interfaces_is_named_with_the_command_that_helps(
    nupa: Nupa,
) -> None:
    nupa("down", "rack")
    helps = "nupa: the fabric 'lab' has no interfaces: `nupa net up --fabric lab` makes them\n"
    assert nupa.fails("shell", "host1") == helps
    assert nupa.fails("net", "exec", "host1", "--", "true") == helps
    assert state.meant_name() == "lab"
