# SPDX-License-Identifier: BSD-3-Clause
"""docs/collectives.md: its examples and commands run as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "collectives.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[0].splitlines()
OUTPUT = [
    "[ 6.        40.         1.3333334]\n[ 3.         10.          0.33333334]\n"
    "host0/1 24 bytes sent\nhost1/1 24 bytes sent\nhost2/1 24 bytes sent\nhost3/1 24 bytes sent\n",
    "[ 3.  6.  9. 12. 15.] [3. 3.] [0 1 2] [7]\n",
]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "NUPA_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize(
    ("example", "output"), list(zip(EXAMPLES, OUTPUT, strict=True)), ids=[0, 1]
)
def test_an_example_of_the_page_runs(example: str, output: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        capture_output=True,
        text=True,
        timeout=50,
        env=environment(tmp_path),
    )
    assert (result.returncode, result.stderr, result.stdout) == (0, "", output)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_runs(line: str, tmp_path: Path) -> None:
    program, *words = shlex.split(line)
    assert program == "nupa"
    if "--iterations" not in words:
        words += ["--iterations", "3"]
    result = subprocess.run(
        [sys.executable, "-m", "nupa.cli", *words],
        capture_output=True,
        text=True,
        timeout=55,
        env=environment(tmp_path),
    )
    assert (result.returncode, result.stderr) == (0, "")
    if "--json" in words:
        (found,) = json.loads(result.stdout)["results"]
        assert found["out_of_place"]["wrong"] == found["in_place"]["wrong"] == 0
        assert "predicted_us" in found
    else:
        assert "# Out of bounds values : 0 OK" in result.stdout
