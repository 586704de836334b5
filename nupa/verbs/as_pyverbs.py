# SPDX-License-Identifier: BSD-3-Clause
"""Lets `import pyverbs` mean nupa.verbs, so that a pyverbs program runs without a change.

install() does it for this process; `python -m nupa.verbs program.py` does it and runs a program.
pyverbs.X is then nupa.verbs.X, the very module.  A module of pyverbs that is not here does not
import, which is an ImportError that names it; those for one vendor's devices do (vendor.py).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from nupa.verbs.vendor import fill

_OURS = "nupa.verbs"
_THEIRS = "pyverbs"
_VENDORS = "pyverbs.providers"


class _Alias(Loader):
    """Puts the module of ours into the place of the one that is being imported."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(_our_name(module.__name__))


class _Vendor(Loader):
    def exec_module(self, module: ModuleType) -> None:
        fill(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname != _THEIRS and not fullname.startswith(f"{_THEIRS}."):
            return None
        if fullname == _VENDORS or fullname.startswith(f"{_VENDORS}."):
            return ModuleSpec(fullname, _Vendor(), is_package=True)
        found = find_spec(_our_name(fullname))
        if found is None:
            return None
        package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, _Alias(), is_package=package)


def _our_name(theirs: str) -> str:
    return _OURS + theirs.removeprefix(_THEIRS)


def install() -> None:
    """From now on pyverbs and its modules are nupa.verbs and its, in this process.

    RuntimeError if another pyverbs was imported before.
    """
    there = sys.modules.get(_THEIRS)
    if there is not None and there.__name__ != _OURS:
        raise RuntimeError(
            f"pyverbs was imported before, from {there.__file__}: "
            "call nupa.verbs.as_pyverbs.install() before anything imports it"
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
