# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa net exec` 10 ms.
# ruff: noqa: PTH123
"""Files of state: JSON of named tuples, replaced as a whole, and checked when they are read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from nupa.base.errors import FabricError, LocalError
from nupa.base.ownership import open_own
from nupa.base.process import Process

T = TypeVar("T")

_BYTES_MAX = 1 << 20


def load(path: str, version: int, parse: Callable[[Any], T], remedy: str) -> T | None:
    """Returns what *parse* makes of the file; None: there is none.

    FabricError: the file is damaged, has another version, or is another user's.
    """
    try:
        with open(open_own(path, os.O_RDONLY), "rb") as file:
            data = file.read(_BYTES_MAX + 1)
        if len(data) > _BYTES_MAX:
            raise ValueError(f"it has more than {_BYTES_MAX} bytes")
        value = json.loads(data)
        if field(int, value, "version") != version:
            raise ValueError(f"it has version {value['version']}, this NUPA has {version}")
        return parse(value)
    except FileNotFoundError:
        return None
    except (LocalError, OSError, ValueError) as error:
        raise FabricError(f"cannot read {path}: {error}; {remedy}") from error


def store(path: str, version: int, state: Mapping[str, Any]) -> None:
    """Replaces the file.  FabricError: no room."""
    beside = f"{path}.{os.urandom(8).hex()}"
    try:
        fd = open_own(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump({"version": version} | _plain(state), file, indent=1)
        os.rename(beside, path)  # noqa: PTH104
    except OSError as error:
        with suppress(OSError):
            os.unlink(beside)  # noqa: PTH108
        raise FabricError(f"cannot write {path}: {error.strerror}", error.errno or 0) from error


def _plain(value: Any) -> Any:
    """Returns objects for named tuples, but a pair for a process."""
    if hasattr(value, "_asdict") and not isinstance(value, Process):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


def record(kind: Callable[..., T], value: Any) -> T:
    """Makes a named tuple of its JSON object.  ValueError names the key that is wrong."""
    hints = get_type_hints(kind)
    return kind(**{key: field(hints[key], value, key) for key in hints})


def field(kind: Any, value: Any, key: str) -> Any:
    """Returns value[key] as *kind*: a type, a named tuple, tuple[kind, ...] or kind | None."""
    if not isinstance(value, dict) or key not in value:
        raise ValueError(f"the key `{key}` is missing")
    found, wrong = value[key], ValueError(f"`{key}` is {value[key]!r}")
    if get_origin(kind) is UnionType:
        kind = get_args(kind)[0]
        if found is None:
            return None
    if get_origin(kind) is tuple:
        if not isinstance(found, list):
            raise wrong
        return tuple(field(get_args(kind)[0], {key: inner}, key) for inner in found)
    if kind is Process:
        if not isinstance(found, list) or [type(part) for part in found] != [int, int]:
            raise wrong
        if min(found) <= 0:
            raise wrong
        return Process(*found)
    if hasattr(kind, "_fields"):
        return record(kind, found)
    if kind is float and type(found) is int:
        return float(found)
    if type(found) is not kind:
        raise wrong
    return found
