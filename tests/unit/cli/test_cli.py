# SPDX-License-Identifier: BSD-3-Clause
"""The `nupa` command: what it prints, its exit codes, one line for each error."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nupa import cli
from nupa.cli import commands, main
from nupa.doctor.checks import LIMITED, MISSING, OK, Check
from nupa.fabric import Fabric, NupaError, registry
from nupa.topology.topology import star
from tests.unit.cli.command import runs

Run = Callable[..., str]


pytestmark = pytest.mark.usefixtures("folder")


def test_a_fabric_goes_up_is_seen_and_goes_down(nupa: Run) -> None:
    assert nupa("up") == "default is up: 2 hosts (host0 to host1), 1 switch\n"
    assert nupa("ls").splitlines() == [
        "FABRIC   HOSTS  PROCESSES  INTERFACES  STATE",
        "default  2      0          0           up",
    ]
    assert json.loads(nupa("ls", "--json")) == [
        {
            "name": "default",
            "path": registry.path_of("default"),
            "owner": os.geteuid(),
            "error": None,
            "auto": False,
            "hosts": 2,
            "processes": 0,
            "interfaces": 0,
        }
    ]
    assert nupa("down") == ""
    assert nupa("ls") == "no fabric is up: `nupa up` makes one\n"
    assert json.loads(nupa("ls", "--json")) == []


def test_a_topology_of_ones_own_is_taken(nupa: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text('[[switch]]\nname = "s"\nports = 1\n[[host]]\nname = "h"\nswitch = "s"\n')
    assert nupa("up", "--topology", str(path), "--name", "one") == (
        "one is up: 1 host (h), 1 switch\n"
    )
    nupa("down", "one")


def test_hosts_and_a_pool_need_no_file(nupa: Run, nupa_fails: Run) -> None:
    assert nupa("up", "--hosts", "8", "--pool", "4G") == (
        "default is up: 8 hosts (host0 to host7), 1 switch\n"
    )
    with Fabric.open() as fabric:
        assert sum(quota.used for quota in fabric.pool.quotas().values()) == 0
        fabric.pool.alloc(4 << 30, "all", ()).free()
        with pytest.raises(NupaError):
            fabric.pool.alloc((4 << 30) + 1, "more", ())
    runs("--hosts", "8", "--", "true")
    assert (
        "--hosts 3: the fabric 'default' is up with 8: leave --hosts out, or take it down "
        "(`nupa down default`)" in nupa_fails("run", "--hosts", "3", "--", "true")
    )
    nupa("down")
    assert nupa("up", "--pool", "1T", "--topology", "rack24").startswith("default is up: 24 hosts")
    nupa("down")


def test_run_makes_a_fabric_of_so_many_hosts(nupa_fails: Run) -> None:
    runs("--hosts", "254", "--host", "host253", "--", "true")
    assert "there are 255 hosts: a fabric has 1 to 254" in nupa_fails(
        "run", "--hosts", "255", "--", "true"
    )


@pytest.mark.parametrize("size", ["0", "100", "64K1", "2T", "-1", "1X"])
def test_a_pool_that_no_fabric_has_is_refused_by_its_option(nupa_fails: Run, size: str) -> None:
    line = nupa_fails("up", f"--pool={size}", code=2)
    assert line.startswith(f"nupa: argument --pool: '{size}' is not ")


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["up", "--foo"], "nupa up"),
        (["run", "--foo", "--", "true"], "nupa run"),
        (["fm", "ls", "--foo"], "nupa fm ls"),
        (["pool", "--foo", "ls"], "nupa pool"),
        (
            ["model", "predict", "--foo", "--work", "write:8", "--on", "ib-hdr"],
            "nupa model predict",
        ),
        (["--foo", "up"], "nupa"),
    ],
)
def test_an_unknown_option_names_the_help_of_its_command(
    nupa_fails: Run, argv: list[str], command: str
) -> None:
    assert nupa_fails(*argv, code=2) == (
        f"nupa: unrecognized arguments: --foo; see `{command} --help`\n"
    )


def test_a_malformed_topology_is_named_with_its_line(nupa_fails: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[link]\n\nwidth = \n")
    assert f"{path}:3: Invalid value" in nupa_fails("up", "--topology", str(path))


def test_more_hosts_than_ports_is_one_line(nupa_fails: Run, tmp_path: Path) -> None:
    path = tmp_path / "many.toml"
    path.write_text(
        '[[switch]]\nname = "s"\nports = 2\n[[host]]\nname = "h"\ncount = 3\nswitch = "s"\n'
    )
    line = nupa_fails("up", "--topology", str(path))
    assert line.startswith(f"nupa: {path}: h2: all 2 ports of s are taken")


def test_show_says_what_there_is(nupa: Run) -> None:
    nupa("up", "--topology", "storage16", "--name", "rack")
    text = nupa("show")
    assert text.startswith("rack: 16 hosts\n")
    assert "server15  10.0.0.16  -    server15/1  ACTIVE" in text
    shown = json.loads(nupa("show", "rack", "--json"))
    assert [host["name"] for host in shown["hosts"]] == [f"server{i}" for i in range(16)]
    trunk = next(port for port in shown["ports"] if port["name"] == "switch0/24")
    assert (trunk["peer"], trunk["width"], trunk["speed"]) == ("switch1/24", "x16", "Gen5")
    assert set(trunk["counters"]) >= {"port_xmit_data", "port_rcv_packets", "link_downed"}
    assert (shown["movers"], shown["auto"]) == ([], False)
    nupa("down", "rack")


def test_a_port_goes_down_and_up(nupa: Run, nupa_fails: Run) -> None:
    nupa("up")
    nupa("port", "host1", "down")
    shown = json.loads(nupa("show", "--json"))
    assert [host["state"] for host in shown["hosts"]] == ["ACTIVE", "DOWN"]
    nupa("port", "1", "up", "--fabric", "default")
    shown = json.loads(nupa("show", "--json"))
    assert [host["state"] for host in shown["hosts"]] == ["ACTIVE", "ACTIVE"]
    assert "no port, host or link is named 'host2'" in nupa_fails("port", "host2", "down")
    nupa("down")


def test_down_refuses_what_is_in_use(nupa: Run, nupa_fails: Run) -> None:
    with Fabric.create("lab", star(2)):
        assert "'lab' is in use" in nupa_fails("down", "lab")
        assert "'lab' is in use" in nupa_fails("down", "--all")
        nupa("down", "lab", "--force")


def test_down_all_takes_all_down(nupa: Run) -> None:
    for name in ("a", "b"):
        nupa("up", "--name", name)
    nupa("down", "--all")
    assert registry.names() == []


def test_damaged_fabrics_are_listed_with_what_is_wrong(nupa: Run, nupa_fails: Run) -> None:
    bad = Path(registry.path_of("bad"))
    bad.touch(0o600)
    bad.write_bytes(os.urandom(1 << 16))
    assert "it holds no fabric" in nupa("ls")
    assert "it holds no fabric" in json.loads(nupa("ls", "--json"))[0]["error"]
    assert "it holds no fabric" in nupa_fails("show", "bad")
    assert "it holds no fabric" in nupa_fails("run", "--fabric", "bad", "--", "true")
    nupa("down", "bad")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["show", "x"], "no fabric is named 'x'; up are: none; `nupa up --fabric x` makes it"),
        (["down", "x"], "no fabric is named 'x': `nupa ls` lists them"),
        (["port", "host0", "up"], "no fabric is named 'default'"),
        (["run", "--fabric", "x", "--", "true"], "no fabric is named 'x'"),
        (["run", "--host", "moon", "--", "true"], "has no host 'moon': its hosts are host0, host1"),
        (["up", "--name", "a/b"], "'a/b' is not a name for a fabric"),
        (["up", "--topology", "rack"], "no preset 'rack': choose one of gpu24, pair, rack24"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_1(
    nupa_fails: Run, argv: list[str], message: str
) -> None:
    assert message in nupa_fails(*argv)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: COMMAND; see `nupa --help`"),
        (["fly"], "invalid choice: 'fly'"),
        (["up", "--nam"], "expected one argument; see `nupa up --help`"),
        (["port", "host0", "sideways"], "invalid choice: 'sideways'"),
        (["run"], "name a command after --; see `nupa run --help`"),
        (["run", "--"], "name a command after --"),
        (["run", "--mover", "van", "--", "true"], "invalid choice: 'van'"),
        (["down", "x", "--all"], "--all takes down all of your fabrics: leave x out"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_2(
    nupa_fails: Run, argv: list[str], message: str
) -> None:
    assert message in nupa_fails(*argv, code=2)


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"doctor", "down", "ls", "port", "run", "show", "up"} <= set(commands())
    for argv in ([], *([name] for name in commands())):
        with pytest.raises(SystemExit) as caught:
            main([*argv, "--help"])
        assert caught.value.code == 0
        assert "usage: nupa" in capsys.readouterr().out


def test_a_folder_without_source_is_not_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moved" / "__pycache__").mkdir(parents=True)
    (tmp_path / "vm").mkdir()
    for name in ("vm/__init__.py", "up.py", "__main__.py"):
        (tmp_path / name).touch()
    monkeypatch.setattr(cli, "__path__", [str(tmp_path)])
    assert commands() == ["up", "vm"]


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    import nupa as package

    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"nupa {package.__version__}\n"


def test_doctor_says_of_each_thing_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)
    names = [check["name"] for check in checks]
    assert {"engine", "CMA", "userfaultfd", "TUN", "user namespaces", "futex"} <= set(names)
    assert all(check["found"] and check["follows"] for check in checks)
    assert all(check["remedy"] for check in checks if check["state"] != OK)
    assert code == any(check["state"] == MISSING for check in checks)


def test_doctor_fails_where_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def checks() -> Iterator[Check]:
        yield Check("wheel", OK, "round", "it rolls")
        yield Check("bell", LIMITED, "mute", "no sound", "oil it")
        yield Check("frame", MISSING, "gone", "nothing works", "buy one")

    monkeypatch.setattr("nupa.doctor.checks.check_all", checks)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "CHECK  STATE    FOUND  SO",
        "wheel  ok       round  it rolls",
        "bell   limited  mute   no sound",
        "frame  missing  gone   nothing works",
        "",
        "CHECK  WHAT TO DO",
        "bell   oil it",
        "frame  buy one",
    ]


def test_doctor_names_a_folder_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUPA_DIR", "/nowhere")
    assert main(["doctor", "--json"]) == 1
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert found["segments in /nowhere"]["state"] == MISSING
    assert "NUPA_DIR" in found["segments in /nowhere"]["remedy"]


def test_a_locale_without_the_letters_gets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = io.BytesIO()
    with monkeypatch.context() as patch, io.TextIOWrapper(found, encoding="ascii") as out:
        patch.setattr(sys, "stdout", out)
        assert main(["model", "predict", "--work", "write:8", "--on", "ib-hdr"]) == 0
        assert b"why: write:8 on ib-hdr, 2 ranks: 1.88 us" in found.getvalue()


def test_output_that_cannot_be_written_is_one_line() -> None:
    program = "import sys, nupa.cli; sys.exit(nupa.cli.main())"
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [sys.executable, "-c", program, "model", "profiles"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (found.returncode, found.stderr) == (1, "nupa: stdout: No space left on device\n")
