# SPDX-License-Identifier: BSD-3-Clause
"""The program that checks what it sends and receives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.programs.needs import needs

_SOURCES = [str(Path(__file__).with_name("c") / name) for name in ("checked.c", "end.c")]
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the path of c/checked.c, compiled against the system's libibverbs."""
    program = str(tmp_path_factory.mktemp("wire") / "checked")
    command = [needs("gcc", "gcc"), *_FLAGS, *_SOURCES, "-o", program, "-libverbs"]
    subprocess.run(command, check=True)
    return program
