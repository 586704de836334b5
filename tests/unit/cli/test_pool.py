# SPDX-License-Identifier: BSD-3-Clause
"""`nupa pool`: what it makes, lists, ends and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.cli import main
from nupa.fabric import Fabric
from nupa.topology.topology import star
from tests.unit.cli.command import Nupa


@pytest.fixture(autouse=True)
def fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fabric]:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    with Fabric.create("default", star(2)) as fabric:
        yield fabric


def test_what_the_command_makes_stays_until_it_is_freed(nupa: Nupa, fabric: Fabric) -> None:
    assert "no regions" in nupa("pool", "ls")
    assert nupa("pool", "alloc", "64K", "log", "--share", "host1") == (
        "0x10000: 64KiB of host0, shared with host1\n"
    )
    made = json.loads(nupa("pool", "alloc", "100", "--host", "1", "--json"))
    assert (made["host"], made["pid"], made["share"], made["size"]) == ("host1", 0, [], 100)
    listed = json.loads(nupa("pool", "ls", "--json"))
    assert [region["tag"] for region in listed] == ["log", ""]
    assert json.loads(nupa("show", "--json"))["regions"] == listed
    lines = nupa("pool", "ls").splitlines()
    assert lines[0].split() == [
        *("REGION", "TAG", "SIZE", "OWNER", "SHARED", "WITH", "COHERENCE", "WINDOWS", "STATE")
    ]
    assert lines[1].split() == ["0x10000", "log", "64KiB", "host0", "host1", "hardware", "0", "-"]
    assert lines[1] in nupa("show")
    assert nupa("pool", "free", "log", made["id"]) == ""
    assert fabric.pool.regions() == []


def test_a_region_with_windows_goes_by_force_alone(nupa: Nupa, fabric: Fabric) -> None:
    nupa("pool", "alloc", "4096", "used", "--share", "all")
    with fabric.host("host1").map(fabric.pool.find("used")) as window:
        assert "it has windows" in nupa.fails("pool", "free", "used")
        assert not window.revoked
        nupa("pool", "free", "used", "--force")
        assert window.revoked
    assert fabric.pool.regions() == []


def test_leaks_are_listed_with_their_reason(nupa: Nupa) -> None:
    assert nupa("pool", "ls", "--leaks") == "no leaks\n"
    nupa("pool", "alloc", "1", "left")
    assert "nothing runs on its host" in nupa("pool", "ls", "--leaks")
    (leak,) = json.loads(nupa("pool", "ls", "--leaks", "--json"))
    assert (leak["tag"], leak["host"]) == ("left", "host0")
    assert "nothing runs" in leak["why"]


def test_a_quota_is_set_shown_and_kept(nupa: Nupa) -> None:
    nupa("pool", "quota", "host0", "128K")
    nupa("pool", "alloc", "128K")
    assert "past the quota" in nupa.fails("pool", "alloc", "1")
    assert nupa("pool", "quota").splitlines()[1].split() == ["host0", "128KiB", "128KiB"]
    assert json.loads(nupa("pool", "quota", "host0", "none", "--json")) == [
        {"host": "host0", "limit": None, "used": 131072}
    ]
    assert nupa("pool", "quota", "host0").splitlines()[1].split() == ["host0", "128KiB", "none"]


def test_a_wrong_command_line_is_one_line(nupa: Nupa) -> None:
    assert "no region 'nope'" in nupa.fails("pool", "free", "nope")
    assert "no region 0x10000" in nupa.fails("pool", "free", "0x10000")
    assert "'5Q' is not a size" in nupa.fails("pool", "alloc", "5Q", code=2)
    assert "'x' is not a size" in nupa.fails("pool", "quota", "host0", "x", code=2)
    assert "no host 'host7'" in nupa.fails("pool", "alloc", "1", "--share", "host7")
    assert "no host 'host7'" in nupa.fails("pool", "quota", "host7")
    assert "SIZE" in nupa.fails("pool", "alloc", code=2)


@pytest.mark.parametrize("words", [[], ["ls"], ["alloc"], ["free"], ["quota"]])
def test_help_has_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pool", *words, "--help"])
    assert "examples:\n  nupa pool " in capsys.readouterr().out
