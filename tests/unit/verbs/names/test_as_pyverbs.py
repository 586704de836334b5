# SPDX-License-Identifier: BSD-3-Clause
"""`python -m nupa.verbs`: a pyverbs program, unchanged."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from nupa.verbs.as_pyverbs import OUR_NAMES

PROGRAM = """
import sys
from pathlib import Path
from pyverbs.device import get_device_list
from pyverbs.pyverbs_error import PyverbsUserError
from pyverbs.providers.mlx5.mlx5dv import Mlx5Context, Mlx5DVContextAttr
import pyverbs.providers.mlx5.mlx5_enums as dve
import pyverbs.enums as e
import pyverbs.qp
import nupa.verbs.qp
import neighbour

assert pyverbs.qp is nupa.verbs.qp and pyverbs is nupa.verbs
assert Path(__file__).is_absolute()
assert get_device_list() == []
try:
    Mlx5Context(Mlx5DVContextAttr(flags=dve.MLX5DV_CONTEXT_FLAGS_DEVX), name="mlx5_0")
except PyverbsUserError as error:
    print(error)
try:
    import pyverbs.no_such_module
except ModuleNotFoundError as error:
    print(error.name)
print(neighbour.NAME, e.IBV_QPT_RC.name, *sys.argv[1:])
sys.exit(3)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("NAME = 'beside it'\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "nupa.verbs", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [["program.py"], ["-m", "program"]])
def test_a_program_finds_nupa_verbs_under_the_name_pyverbs(
    program: Path, arguments: list[str]
) -> None:
    done = run(*arguments, "--its", "options", cwd=program.parent)
    assert done.returncode == 3, done.stderr
    refused, missing, said = done.stdout.splitlines()
    assert "nupa_rdma0 is not its device" in refused
    assert missing == "pyverbs.no_such_module"
    assert said == "beside it IBV_QPT_RC --its options"


def test_without_a_program_it_says_how_it_is_used(tmp_path: Path) -> None:
    for arguments in ([], ["-m"]):
        done = run(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "usage: python -m nupa.verbs" in done.stderr


def test_a_pyverbs_that_was_imported_before_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "pyverbs.py").touch()
    code = "import pyverbs; from nupa.verbs.as_pyverbs import install; install()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert "RuntimeError: pyverbs was imported before, from " in done.stderr


@pytest.mark.parametrize(("theirs", "ours"), OUR_NAMES.items())
def test_a_module_of_pyverbs_is_importable_by_its_own_name(theirs: str, ours: str) -> None:
    module = import_module(f"nupa.verbs.{ours}")
    assert import_module(f"nupa.verbs.{theirs}") is module
