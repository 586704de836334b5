# SPDX-License-Identifier: BSD-3-Clause
"""`nupa show --watch`: one report after another, until Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from nupa.fabric import Fabric
from nupa.programs.pair import NUPA
from nupa.topology.topology import star

DEADLINE_S = 30.0


@pytest.fixture
def fabric(folder: Path) -> Iterator[str]:  # noqa: ARG001
    with Fabric.create("lab", star(2)):
        pass
    yield "lab"
    Fabric.remove("lab")


def watching(*options: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    command = [*NUPA, "show", "lab", "--watch", "0.05", *options]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE)


def ends_by_ctrl_c(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (0, b"")


def test_through_a_pipe_reports_follow_each_other_until_ctrl_c(fabric: str) -> None:
    process = watching("--qps")
    assert process.stdout
    for _ in range(3):
        assert process.stdout.readline() == f"{fabric}: 2 hosts\n".encode()
        while process.stdout.readline() != b"no queue pairs\n":
            pass
        assert process.stdout.readline() == b"\n"
    ends_by_ctrl_c(process)


def test_with_json_each_report_is_a_document(fabric: str) -> None:
    process = watching("--json")
    assert process.stdout
    for _ in range(2):
        document = b""
        while not document.endswith(b"\n}\n"):
            document += process.stdout.readline()
        assert json.loads(document)["name"] == fabric
    ends_by_ctrl_c(process)


@pytest.mark.usefixtures("fabric")
def test_on_a_terminal_the_page_is_drawn_over_and_cut_to_its_size() -> None:
    ours, theirs = pty.openpty()
    os.environ.pop("COLUMNS", None)
    subprocess.run(["stty", "rows", "6", "cols", "20"], stdin=theirs, check=True)
    process = watching(stdout=theirs)
    os.close(theirs)
    page = b""
    with open(ours, "rb", buffering=0) as screen:  # noqa: PTH123
        while page.count(b"\x1b[H") < 3:
            page += _some(screen)
        ends_by_ctrl_c(process)
    second = page.split(b"\x1b[H")[2].removesuffix(b"\x1b[J").splitlines()
    assert second[-1].startswith(b"... and ")
    assert len(second) == 5
    assert all(line.endswith(b"\x1b[K") and len(line) <= 23 for line in second)


def _some(screen: IO[bytes]) -> bytes:
    return screen.read(4096) or b""


def test_a_reader_that_goes_ends_it_without_a_traceback(fabric: str) -> None:  # noqa: ARG001
    process = watching()
    assert process.stdout
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(DEADLINE_S) == 1


def test_a_time_that_is_none_is_refused() -> None:
    for word in ("0", "-1", "soon"):
        command = [*NUPA, "show", f"--watch={word}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 2
        assert f"{word!r} is not a time above 0" in done.stderr
