# SPDX-License-Identifier: BSD-3-Clause
"""docs/c.md: its program compiles as the page says, and says what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "c.md").read_text()
(PROGRAM,) = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
_, COMMANDS, TOOLS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
NUPA = [sys.executable, "-m", "nupa"]
_WAIT_S = 30


@pytest.mark.usefixtures("folder")
def test_the_program_of_the_page_runs_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "hello.c").write_text(PROGRAM)
    compile_it, serve, ask = (shlex.split(line, comments=True) for line in COMMANDS.splitlines())
    subprocess.run([*compile_it, "-Werror", "-Wextra"], cwd=tmp_path, check=True)
    for client in (ask, shlex.split(TOOLS.splitlines()[0], comments=True)):
        assert serve[0] == client[0] == "nupa"
        with subprocess.Popen(
            [*NUPA, *serve[1:]], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            try:
                assert server.stdout.readline() == "waiting at port 7471\n"
                asked = subprocess.run(
                    [*NUPA, *client[1:]], cwd=tmp_path, capture_output=True, text=True,
                    timeout=_WAIT_S, check=False,
                )  # fmt: skip
                assert (asked.returncode, asked.stdout) == (0, "sent\n"), asked.stderr
                assert server.stdout.readline() == "received: hello over RDMA (64 bytes)\n"
                assert server.wait(_WAIT_S) == 0
            finally:
                server.terminate()
    traced = shlex.split(TOOLS.splitlines()[1], comments=True)
    listed = subprocess.run(
        [*NUPA, *traced[1:]], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert "SEND" in listed
