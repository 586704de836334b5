# SPDX-License-Identifier: BSD-3-Clause
"""rdma-core's test suites, by the way they are run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs.needs import needs_interfaces

from .upstream import PYPI, PYPI_VERSION, Suite, debian_version, unpack_debian, unpack_pypi

OWN_PYVERBS = (("PYTHONPATH", str(PYPI / "python")),)
NUPA_VERBS = (sys.executable, "-P", "-m", "nupa.verbs")


def _debian(folder: Path, python: tuple[str, ...]) -> Suite:
    version = debian_version()
    unpack_debian(folder)
    return Suite(version, folder, python)


def pypi(folder: Path, python: tuple[str, ...], env: tuple[tuple[str, str], ...] = ()) -> Suite:
    unpack_pypi(folder)
    return Suite(PYPI_VERSION, folder, python, env)


#: The origins of a suite and of its pyverbs; Debian's is v44, PyPI's v59.  PyPI's pyverbs brings
#: libraries of its own, by RPATH.
_WAYS: dict[str, Callable[[Path], Suite]] = {
    "debian": lambda folder: _debian(folder, ("/usr/bin/python3", "-P")),
    "debian-nupa.verbs": lambda folder: _debian(folder, NUPA_VERBS),
    "pypi": lambda folder: pypi(folder, (sys.executable, "-P"), OWN_PYVERBS),
    "pypi-nupa.verbs": lambda folder: pypi(folder, NUPA_VERBS),
}


@pytest.fixture(params=_WAYS)
def suite(request: pytest.FixtureRequest, tmp_path: Path) -> Suite:
    needs_interfaces()
    folder = tmp_path / "suite"
    folder.mkdir()
    return _WAYS[request.param](folder)
