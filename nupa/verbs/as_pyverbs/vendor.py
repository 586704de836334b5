# SPDX-License-Identifier: BSD-3-Clause
"""Names of pyverbs' modules for one vendor's devices: they import, using one is refused.

A program tries whether it has such a device, and learns here that it has not.
"""

from __future__ import annotations

import errno
from types import ModuleType
from typing import Any, NoReturn

from nupa.verbs.base import PyverbsCM, PyverbsValue
from nupa.verbs.base.errors import PyverbsRDMAError, PyverbsUserError

_CONSTANTS = ("MLX5", "_MLX5", "EFA")


class Value(PyverbsValue):
    """An attribute of the device: takes any arguments; its use is refused."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        pass


class _Refusing(type):
    """A class whose methods, of any name, refuse."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Refusal(f"{cls.__name__}.{name}")


class Vendor(PyverbsCM, metaclass=_Refusing):
    """Raises PyverbsUserError: the device is not of that vendor."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        raise PyverbsUserError(f"Cannot make {type(self).__name__}: nupa_rdma0 is not its device")


class _Refusal:
    """A function that refuses, or an enumeration whose members are 0."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise PyverbsRDMAError(
            f"Failed {self._name}: nupa_rdma0 is not its device", errno.EOPNOTSUPP
        )

    def __getattr__(self, name: str) -> int:
        if not _is_constant(name):
            raise AttributeError(name)
        return 0


def _is_constant(name: str) -> bool:
    return name.isupper() or name.startswith(_CONSTANTS)


def fill(module: ModuleType) -> None:
    """Gives *module* any name: classes and functions that refuse, constants that are 0."""

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        if _is_constant(name):
            return 0
        if name[0].isupper():
            base: type = Value if name.endswith("Attr") else Vendor
            found: Any = type(base)(name, (base,), {"__module__": module.__name__})
        else:
            found = _Refusal(name)

        setattr(module, name, found)
        return found

    setattr(module, "__getattr__", get)  # noqa: B010
