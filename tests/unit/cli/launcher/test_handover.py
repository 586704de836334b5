# SPDX-License-Identifier: BSD-3-Clause
"""Command lines that the launcher runs itself, and those that it gives to Python untouched."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nupa.base.ownership import outer_uid
from nupa.fabric import Fabric, registry
from nupa.topology.topology import HostConfig, SegmentConfig, SwitchConfig, Topology, star
from tests.unit.cli.launcher.install import install

TO_PYTHON = 77
DEADLINE_S = 30
# Prints the words that Python would get, one a line.
SCRIPT = f"printf '%s\\n' \"$@\"; exit {TO_PYTHON}"

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def command(tmp_path: Path) -> str:
    return install(tmp_path / "bin", SCRIPT)


def run(
    command: str, *words: str | bytes, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [command, *words],
        capture_output=True,
        timeout=DEADLINE_S,
        env={**os.environ, **(env or {})},
    )


def goes_to_python(command: str, *words: str | bytes, **env: str) -> bool:
    """Tells whether Python got the words, all as they were, and nothing was left behind."""
    before = set(os.listdir(os.environ["NUPA_DIR"]))  # noqa: PTH208
    found = run(command, *words, env=env)
    if found.returncode != TO_PYTHON:
        assert found.returncode == 0, found
        return False
    assert found.stdout == b"".join(os.fsencode(word) + b"\n" for word in words) or not words
    assert found.stderr == b""
    assert set(os.listdir(os.environ["NUPA_DIR"])) == before  # noqa: PTH208
    return True


@pytest.mark.parametrize(
    "words",
    [
        "run true",
        "run -- true",
        "run -- true --host x -- --fabric",
        "run --host 1 true",
        "run --host=host1 -- true",
        "run --fabric default -- true",
        "run --fabric=default --host 0 true --x",
        "run --host host0 --fabric default -- /bin/true",
    ],
)
def test_the_launcher_runs_plain_lines(command: str, words: str) -> None:
    assert not goes_to_python(command, *words.split())


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--help",
        "--version",
        "up",
        "ls --json",
        "runs true",
        "--fabric default run -- true",
        "run",
        "run --",
        "run --help",
        "run -h -- true",
        "run --host",
        "run --host -- true",
        "run --host= -- true",
        "run --host -1 -- true",
        "run --host 0 --host 1 -- true",
        "run --host 7 -- true",
        "run --host 01 -- true",
        "run --host nobody -- true",
        "run --hos 1 -- true",
        "run --hosts 2 -- true",
        "run --hosts=2 -- true",
        "run --fabric -- true",
        "run --fabric x --fabric y -- true",
        "run --fabric none -- true",
        "run --fabric .x -- true",
        "run --fabric /dev/shm/x -- true",
        f"run --fabric {'x' * 33} -- true",
        "run --fab default -- true",
        "run --net -- true",
        "run --mover cma -- true",
        "run --capture x -- true",
        "run --record x -- true",
        "run - true",
        "run --x -- true",
        "run -- no-such-program",
        "run -- /",
        "run -- /dev/null",
    ],
)
def test_python_gets_all_other_lines(command: str, words: str) -> None:
    assert goes_to_python(command, *words.split())


def test_python_gets_words_that_are_empty_or_no_text(command: str) -> None:
    assert goes_to_python(command, "run", "--", "")
    assert goes_to_python(command, "run", "--host", "", "--", "true")
    assert goes_to_python(command, "run", "--host", b"\xff\n", "--", "true")


@pytest.mark.parametrize(
    "env",
    [
        {"NUPA_UID": "1"},
        {"NUPA_FABRIC": "none"},
        {"NUPA_FABRIC": "/dev/shm/x"},
        {"NUPA_FABRIC": "x" * 40},
        {"NUPA_DIR": "/nonexistent"},
        {"PATH": "/nonexistent"},
    ],
)
def test_python_gets_what_the_environment_makes_another_case(
    command: str, env: dict[str, str]
) -> None:
    found = run(command, "run", "--", "true", env=env)
    assert (found.returncode, found.stderr) == (TO_PYTHON, b"")


def test_python_chooses_among_several_fabrics(command: str) -> None:
    for name in ("a", "b"):
        Fabric.create(name, star(2)).close()
    assert goes_to_python(command, "run", "true")
    assert not goes_to_python(command, "run", "--fabric", "b", "true")
    assert not goes_to_python(command, "run", "true", NUPA_FABRIC="a")
    Fabric.create("default", star(2)).close()
    assert not goes_to_python(command, "run", "true")
    for name in ("a", "b", "default"):
        Fabric.remove(name)


def test_python_refuses_hosts_that_are_not_ready(command: str) -> None:
    Fabric.create("lab", star(1, spare=1)).close()
    assert goes_to_python(command, "run", "--host", "host1", "true")
    assert not goes_to_python(command, "run", "--host", "host0", "true")
    Fabric.remove("lab")


def test_python_gets_fabrics_of_other_machines(command: str, folder: Path, tmp_path: Path) -> None:
    shared = Topology(
        "shared",
        switches=(SwitchConfig("switch0", 2),),
        hosts=(HostConfig("host0", "switch0"), HostConfig("host1", "switch0")),
        segment=SegmentConfig(segment_bytes=256 << 20),
    )
    Fabric.create("shared", shared).close()
    assert goes_to_python(command, "run", "true")
    Fabric.remove("shared")
    Fabric.create("lab", star(2)).close()
    trunk = folder / f".nupa-{os.geteuid()}-lab.trunk"
    trunk.touch()
    assert goes_to_python(command, "run", "true")
    trunk.unlink()
    for variable, parent in (("XDG_RUNTIME_DIR", ""), ("TMPDIR", f"nupa-{outer_uid()}")):
        machine = tmp_path / parent / "nupa-vm-lab"
        machine.mkdir(parents=True)
        assert goes_to_python(command, "run", "true", **{variable: str(tmp_path)})
        machine.rmdir()
    assert not goes_to_python(command, "run", "true")
    Fabric.remove("lab")


@pytest.mark.parametrize("content", [b"", b"\x01NUPAFAB", bytes(1 << 16), b"x" * 100_000])
def test_python_judges_damaged_fabrics(command: str, folder: Path, content: bytes) -> None:
    path = folder / f"nupa-{os.geteuid()}-lab"
    path.write_bytes(content)
    path.chmod(0o600)
    assert goes_to_python(command, "run", "--fabric", "lab", "true")
    path.unlink()


def test_python_judges_files_and_folders_that_others_may_change(command: str, folder: Path) -> None:
    Fabric.create("lab", star(2)).close()
    path = Path(registry.path_of("lab"))
    lock = folder / f"nupa-{os.geteuid()}.lock"
    path.chmod(0o640)
    assert goes_to_python(command, "run", "true")
    path.chmod(0o600)
    lock.symlink_to(folder / "elsewhere")
    assert goes_to_python(command, "run", "true")
    lock.unlink()
    mode = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(0o777)
    assert goes_to_python(command, "run", "true")
    folder.chmod(0o1777)
    assert not goes_to_python(command, "run", "true")
    folder.chmod(mode)
    Fabric.remove("lab")


def test_python_says_why_a_program_will_not_load_our_libraries(
    command: str, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    for content, mode in (
        (b"\x7fELF", 0o755),
        (b"#!\n", 0o755),
        (b"#!/nonexistent\n", 0o755),
        (b"no header\n", 0o755),
        (Path("/bin/true").read_bytes(), 0o4755),
        (Path("/bin/true").read_bytes(), 0o2755),
        (Path("/bin/true").read_bytes()[:200], 0o755),
    ):
        program.write_bytes(content)
        program.chmod(mode)
        assert goes_to_python(command, "run", "--", str(program)), content[:20]
    program.write_bytes(b"#!/bin/sh\nexit 0\n")
    assert not goes_to_python(command, "run", "--", str(program))


@pytest.mark.usefixtures("command")
def test_links_to_the_command_find_python(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("bin/nupa")
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "nupa"
    other.symlink_to(link)
    for path in (link, other):
        assert goes_to_python(str(path), "ls", "a b")
    found = subprocess.run(
        ["sh", "-c", "cd bin && PATH=. nupa ls"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (TO_PYTHON, "ls\n")


def test_a_command_without_python_says_what_to_do(command: str) -> None:
    script = Path(command).with_name("nupa-python")
    script.write_text("#!/nonexistent\n")
    said = run(command, "ls").stderr.decode()
    assert said.startswith(f"nupa: cannot run {script}: No such file or directory; install")
    script.unlink()
    found = run(command, "ls")
    assert found.returncode == 1
    assert found.stderr.count(b"\n") == 1


def test_the_installed_command_is_the_launcher() -> None:
    installed = Path(sys.executable).with_name("nupa")
    if not installed.exists():
        pytest.skip("`make build` installs the command")
    assert installed.read_bytes()[:4] == b"\x7fELF"
    assert installed.with_name("nupa-python").exists()
