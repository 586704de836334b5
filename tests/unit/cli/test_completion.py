# SPDX-License-Identifier: BSD-3-Clause
"""`nupa completion` in a real bash, and the pages of `nupa man` before those who judge them."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nupa.cli import commands
from nupa.cli.man import pages
from nupa.fabric import Fabric, registry
from nupa.topology.topology import star
from tests.unit.cli.command import Nupa

_WAIT_S = 30.0


@pytest.fixture
def fabrics(folder: Path) -> Iterator[None]:
    assert registry.folder() == str(folder)
    for name in ("lab", "rack"):
        Fabric.create(name, star(2)).close()
    yield
    assert registry.folder() == str(folder)
    for name in registry.names():
        Fabric.remove(name)


@pytest.fixture
def bash(fabrics: None, nupa: Nupa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script that completes `nupa`, which is in PATH; two fabrics are up."""
    assert fabrics is None
    program = tmp_path / "nupa"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nupa "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = tmp_path / "completion"
    script.write_text(nupa("completion", "bash"))
    return script


COMPLETE = """\
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_nupa 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nupa sh", {"shell", "show"}),
        ("nupa show --fab", {"--fabric"}),
        ("nupa show --fabric ", {"lab", "rack"}),
        ("nupa down r", {"rack"}),
        ("nupa pool alloc --coherence ", {"hardware", "software"}),
        ("nupa run --fabric l", {"lab"}),
        ("nupa run -- no-such-progra", {""}),
        ("nupa run -- bas", {"bash", "basename"}),
        ("nupa fm dcd-a", {"dcd-add"}),
        ("nupa tenant a", {"add", "assign"}),
        ("nupa partition add x --kind ", {"partition", "vpod"}),
        ("nupa host drain host0 --w", {"--wait"}),
        ("nupa events --fol", {"--follow"}),
        ("nupa completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(bash: Path, line: str, words: set[str]) -> None:
    found = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", bash, *line.split(" ")],
        capture_output=True,
        text=True,
        check=True,
    )
    completed = set(found.stdout.splitlines())
    assert completed >= words if "--" in line.split() else completed == words, found.stderr


def test_a_tab_in_an_interactive_bash_names_the_fabric(bash: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "dumb"
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    os.write(terminal, f"source {bash}; echo rea''dy\n".encode())
    _read_until(terminal, lambda text: "ready" in text)
    os.write(terminal, b"nupa down --fabric la\t\n")
    _read_until(terminal, lambda _: registry.names() == ["rack"])
    os.write(terminal, b"exit\n")
    os.waitpid(child, 0)
    os.close(terminal)


def _read_until(terminal: int, done: Callable[[str], bool]) -> None:
    text, end = "", time.monotonic() + _WAIT_S
    while not done(text):
        assert time.monotonic() < end, text
        if select.select([terminal], [], [], 0.05)[0]:
            text += os.read(terminal, 4096).decode(errors="replace")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_has_all_commands(nupa: Nupa, shell: str) -> None:
    script = nupa("completion", shell)
    for command in commands():
        assert command in script
    assert "nupa ls" in script


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("man1")
    for name, text in pages():
        (place / f"{name}.1").write_text(text, encoding="utf-8")
    return place


@pytest.mark.parametrize(
    "judge", [["groff", "-ww", "-man", "-Tutf8", "-z"], ["mandoc", "-Tlint", "-Wwarning"]]
)
def test_no_tool_warns_of_a_page(manual: Path, judge: list[str]) -> None:
    if shutil.which(judge[0]) is None:
        pytest.skip(f"{judge[0]} is not installed")
    files = sorted(manual.iterdir())
    assert len(files) > len(commands())
    found = subprocess.run([*judge, *files], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("", "")


def test_a_page_has_what_the_help_has(manual: Path) -> None:
    text = subprocess.run(
        ["groff", "-man", "-Tascii", "-P-cbou", manual / "nupa-pool-alloc.1"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for words in (
        "nupa-pool-alloc - make a region",
        "share the region with host1,host2 or all",
        "  nupa pool alloc 1G cache --share all",
    ):
        assert words in text
    assert "nupa pool\n" in (manual / "nupa.1").read_text().replace("\\fB", "").replace(
        "\\fR", ""
    ).replace("\\fI\\,", "").replace("\\/", "")


def test_the_command_writes_the_pages(nupa: Nupa, tmp_path: Path) -> None:
    to = tmp_path / "share" / "man1"
    assert nupa("man", "--to", to).endswith(f" pages are in {to}\n")
    assert {f"nupa-{name}.1" for name in commands()} <= {file.name for file in to.iterdir()}
    assert "Not a directory" in nupa.fails("man", "--to", to / "nupa.1" / "x")
