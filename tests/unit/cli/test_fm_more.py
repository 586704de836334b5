# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm`: events, tags, service, errors, secrets, registers, and any command in bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.cli import main
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.fm.server.server import Server, path_of
from nupa.cxl.site.site import Site
from tests.unit.cli.command import Nupa

STEP = 256 << 20
TAG = "0f3a0000-0000-0000-0000-000000000001"
COMMANDS = (
    *("serve", "ls", "bind", "unbind", "port", "lds", "alloc", "abort", "events", "qos"),
    *("bandwidth", "aer", "secret", "config", "memory", "send"),
    *("dcd-ls", "dcd-add", "dcd-release", "dcd-tags", "dcd-keep", "dcd-drop", "dcd-set"),
)


WORDS = ("fm",)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    """A site with two hosts, a device at port 2, an MLD with dynamic capacity at 3."""
    with Site(2, [STEP], [4 * STEP], dynamic_bytes=2 * STEP) as site:
        with Server(site.manager, path_of("default")).start():
            yield site
        assert list(folder.iterdir()) == []


def test_events_are_listed(site: Site, nupa: Nupa) -> None:
    before = len(nupa("events").splitlines())  # of its making
    nupa("bind", "0", "1", "2")
    with site.lock:
        site.switch.port(2).set_link(False)
    lines = nupa("events").splitlines()[before:]
    assert len(lines) == 2
    assert lines[0].endswith("informational     virtual switch 0, vPPB 1: bound to port 2")
    found = json.loads(nupa("events", "--json"))[before:]
    assert [(each["port"], each["log"], each["lost"]) for each in found] == [
        (None, "informational", 0)
    ] * 2
    assert found[1]["text"] == "port 2 (downstream): its link is down"


def test_events_are_followed_until_the_user_ends_it(site: Site, folder: Path) -> None:
    follower = subprocess.Popen(
        [sys.executable, "-m", "nupa.cli", "fm", "events", "--follow", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"NUPA_DIR": str(folder)},
    )
    assert follower.stdout is not None
    with FabricManager.of(site.manager) as fm, follower.stdout as lines:
        for _ in fm.events():  # of its making
            assert json.loads(lines.readline())["text"].startswith("port ")
        for _ in range(3):
            fm.bind(0, 0, 2)
            assert json.loads(lines.readline())["text"].endswith("bound to port 2")
            fm.unbind(0, 0)
            assert json.loads(lines.readline())["text"].endswith("unbound")
        follower.send_signal(signal.SIGINT)
        assert follower.wait(30) == 0


def test_tags_are_listed_kept_and_dropped(site: Site, nupa: Nupa) -> None:
    assert site.switch.mld(3).dynamic
    nupa("dcd-add", "3", "0", "1", "32M", "--tag", TAG)
    nupa("dcd-keep", "3", TAG)
    nupa("dcd-release", "3", "0", "--tag", TAG)
    assert json.loads(nupa("dcd-tags", "3", "--json")) == [
        {"tag": TAG, "kept": True, "hosts": [], "offered": []}
    ]
    assert nupa("dcd-tags", "3").splitlines()[1] == f"{TAG}  yes   -      -"
    assert "unsupported: region 1 is in use" in nupa.fails("dcd-set", "3", "1", "4M", code=(1, 2))
    nupa("dcd-drop", "3", TAG)
    nupa("dcd-set", "3", "1", "4M", "--sanitize")
    assert json.loads(nupa("dcd-ls", "3", "--json"))["regions"][1]["block_bytes"] == 4 << 20
    assert f"nothing is shared under {TAG}" in nupa.fails("dcd-drop", "3", TAG, code=(1, 2))
    nupa("dcd-add", "3", "2", "0", "8M", "--contiguous")


def test_service_is_set_and_listed(site: Site, nupa: Nupa) -> None:
    assert site.switch.mld(3).qos.severe_percent == 25
    assert json.loads(nupa("qos", "3", "severe_percent=40", "--json"))["severe_percent"] == 40
    assert "moderate_percent     10" in nupa("qos", "3")
    assert "'x' is not a setting" in nupa.fails("qos", "3", "x=1", code=(1, 2))
    assert "severe_percent is 101" in nupa.fails("qos", "3", "severe_percent=101", code=(1, 2))
    assert json.loads(nupa("bandwidth", "3", "1", "128", "64", "--json"))[:4] == [0, 128, 64, 0]
    assert "0   200" in nupa("bandwidth", "3", "0", "200", "--limit")


def test_errors_and_secrets_reach_a_virtual_switch(site: Site, nupa: Nupa) -> None:
    nupa("aer", "0", "1", "12")
    nupa("aer", "0", "upstream", "6", "--correctable")
    virtual = site.switch.vcs(0)
    assert virtual.vppb(1).config["aer"]["uncorrectable_status.poisoned_tlp"] == 1
    assert virtual.upstream.config["aer"]["correctable_status.bad_tlp"] == 1
    assert "upstream" in nupa.fails("aer", "0", "x", "12", code=(1, 2))
    assert nupa("secret", "0") == "not set\n"
    assert nupa("secret", "0", "--set", TAG) == f"{TAG}\n"
    assert "the secret of virtual switch 0 is set already" in nupa.fails(
        "secret", "0", "--set", TAG
    )


def test_registers_are_read_and_written(site: Site, nupa: Nupa) -> None:
    assert site.switch.mld(3).lds
    assert nupa("config", "2", "0") == "0x4e031e98\n"
    assert nupa("config", "3", "0x10", "--ld", "1", "--write", "0x10000000") == "0x10000004\n"
    nupa("config", "3", "4", "--ld", "1", "--write", "2")
    assert nupa("memory", "3", "1", "0x10001000", "20").startswith("0x10001000  ")
    nupa("memory", "3", "1", "0x10001014", "--write", "00000000")
    assert "4 bytes at 0x0 are not all in a BAR" in nupa.fails(
        "memory", "3", "1", "0", "4", code=(1, 2)
    )


def test_any_command_is_sent_in_bytes(site: Site, nupa: Nupa) -> None:
    assert site.switch.ports
    assert nupa("send", "5101", "0102").splitlines()[0].startswith("0000  01 00 00 00 02 03")
    assert len(nupa("send", "5600", "--port", "3").splitlines()) == 6
    assert "0000  " in nupa("send", "4000", "--port", "3", "--ld", "0")
    assert nupa("send", "0001", "--cci").startswith("0000  98 1e")
    assert "unsupported" in nupa.fails("send", "5500", "--port", "3", code=(1, 2))
    assert "invalid payload length" in nupa.fails("send", "5100", "00", code=(1, 2))


@pytest.mark.parametrize(
    "argv",
    [
        ("send", "x"),
        ("send", "12345"),
        ("send", "5100", "0"),
        ("qos", "3", "severe_percent"),
        ("secret", "0", "--set", "x"),
        ("config", "2", "x"),
        ("dcd-keep", "3", "x"),
        ("dcd-set", "3", "0", "4X"),
    ],
)
def test_a_wrong_word_is_a_wrong_command_line(nupa: Nupa, argv: tuple[str]) -> None:
    assert "--help" in nupa.fails(*argv, code=(1, 2))


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fm", command, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    assert f"nupa fm {command}" in out.partition("examples:")[2]
