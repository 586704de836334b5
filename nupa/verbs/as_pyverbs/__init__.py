# SPDX-License-Identifier: BSD-3-Clause
"""pyverbs' module names: each is importable below nupa.verbs, and below pyverbs after install().

install() makes `import pyverbs` mean nupa.verbs in this process; `python -m nupa.verbs program.py`
calls it and runs a program.  pyverbs.X is then the very module nupa.verbs.X.  A module of pyverbs
that NUPA lacks raises ImportError; those for one vendor's devices import (vendor.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from nupa.verbs.as_pyverbs.vendor import fill

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    Loader = MetaPathFinder = object  # importlib.abc takes 10 ms to import

_OURS = "nupa.verbs"
_THEIRS = "pyverbs"
_VENDORS = "pyverbs.providers"

#: Modules of pyverbs that have another name here, or share a module with others.
OUR_NAMES = {
    "dma_util": "mem_alloc",
    "dmabuf": "device.dmabuf",
    "flow": "raw.flow",
    "libibverbs": "enums",
    "libibverbs_enums": "enums",
    "librdmacm": "cm_enums",
    "librdmacm_enums": "cm_enums",
    "pyverbs_error": "base.errors",
    "spec": "raw.spec",
    "wq": "raw.wq",
}


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> None:
        """Leaves it to the import system."""


class _Alias(_Loader):
    """Puts the module *target* in the place of the one that is imported."""

    def __init__(self, target: str) -> None:
        self._target = target

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(self._target)


class _Vendor(_Loader):
    def exec_module(self, module: ModuleType) -> None:
        fill(module)


@dataclass(frozen=True)
class Aliases(MetaPathFinder):
    """Finds modules of *package*, pyverbs or nupa.verbs, that are a module of ours."""

    package: str

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        dot_name = fullname.removeprefix(self.package)
        if dot_name == fullname or dot_name[:1] not in ("", "."):
            return None
        if fullname == _VENDORS or fullname.startswith(f"{_VENDORS}."):
            return ModuleSpec(fullname, _Vendor(), is_package=True)
        name = dot_name[1:]
        ours = f"{_OURS}.{OUR_NAMES.get(name, name)}" if name else _OURS
        found = find_spec(ours) if ours != fullname else None
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, _Alias(ours), is_package=is_package)


def install() -> None:
    """Makes pyverbs and its modules mean nupa.verbs and its own, in this process, from now on.

    RuntimeError: another pyverbs was imported before.
    """
    there = sys.modules.get(_THEIRS)
    if there is not None and there.__name__ != _OURS:
        raise RuntimeError(
            f"pyverbs was imported before, from {there.__file__}: "
            "call nupa.verbs.as_pyverbs.install() before anything imports it"
        )
    if Aliases(_THEIRS) not in sys.meta_path:
        sys.meta_path.insert(0, Aliases(_THEIRS))
