# SPDX-License-Identifier: BSD-3-Clause
"""The places where UCX's libucp may be."""

from __future__ import annotations

import errno
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nupa.base.errors import LocalError, NupaError

T = TypeVar("T")

SYSTEM = "libucp.so.0"
_REMEDY = "`apt install libucx0`, or `pip install 'nupa[trunk]'`, or name it by `library`"


def candidates(named: str) -> list[str]:
    """Returns the libraries to try: the one *named*, else the system's and the Python package's."""
    if named:
        return [named]
    package = importlib.util.find_spec("libucx")
    folders = package.submodule_search_locations if package is not None else None
    packaged = [Path(folder) / "lib" / SYSTEM for folder in folders or []]
    return [SYSTEM, *(str(path) for path in packaged if path.exists())]


def first_of(named: str, work: Callable[[str], T]) -> T:
    """Calls *work* with the first library that exists.  LocalError: none does; else as *work*."""
    why = ""
    for library in candidates(named):
        try:
            return work(library)
        except NupaError as error:
            if error.errno != errno.ENOENT:
                raise
            why = str(error)
    raise LocalError(f"UCX is not found: {why}; {_REMEDY}", errno.ENOENT)
