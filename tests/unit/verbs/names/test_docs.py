# SPDX-License-Identifier: BSD-3-Clause
"""docs/python.md: its examples run unchanged and print the documented output."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nupa import verbs

PAGE = Path(__file__).parents[4] / "docs" / "python.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
OUTPUT = ["b'hello bob'\nb'hello'\n", "[63. 62. 61.]\n", "RDMA_CM_EVENT_ESTABLISHED\n"]


@pytest.mark.parametrize(
    ("example", "output"), list(zip(EXAMPLES, OUTPUT, strict=True)), ids=[0, 1, 2]
)
def test_an_example_of_the_page_runs(example: str, output: str) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (result.returncode, result.stderr, result.stdout) == (0, "", output)


def test_every_name_of_the_package_is_there() -> None:
    for name in verbs.__all__:
        assert getattr(verbs, name) is not None
