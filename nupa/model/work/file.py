# SPDX-License-Identifier: BSD-3-Clause
"""Work that has many numbers: its fields by name, from a TOML file or from options of a text."""

from __future__ import annotations

import difflib
import importlib
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

from nupa.base.errors import LocalError
from nupa.base.quantity import byte_count
from nupa.model.errors import ModelError
from nupa.model.work.phase import Work

FILE_BYTES_MAX = 1 << 20
#: By a file's `kind`: the module and class whose fields are its keys.
KINDS: Mapping[str, tuple[str, str]] = {
    "storage": ("nupa.model.work.storage", "Storage"),
    "training": ("nupa.model.work.training.step", "Training"),
    "inference": ("nupa.model.work.training.inference", "Inference"),
    "dispatch": ("nupa.model.work.training.dispatch", "Dispatch"),
}
#: Fields that a file calls differently: TP, PP, DP and EP are parallelism.
_KEYS = {"layout": "parallel"}


def of_kind(kind: str, table: Mapping[str, Any], source: str) -> Work:
    """Returns the work of a kind with these fields.

    ModelError names *source*, and the key that is missing, unknown or of another type.
    """
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, 1)
        raise ModelError(
            f"{source}: kind is {kind!r}"
            + (f": is {near[0]!r} meant?" if near else ":")
            + f' Give one of {", ".join(KINDS)}, or work = "allreduce:1G"'
        )
    module, name = KINDS[kind]
    made = _build(getattr(importlib.import_module(module), name), table, source, "")
    return cast(Work, made)


def _build(made: type, table: Mapping[str, Any], source: str, inside: str) -> Any:
    """Makes an object of a class, whose fields are the table's keys."""
    known = {_KEYS.get(each.name, each.name): each for each in fields(made)}
    hints = get_type_hints(made)
    where = f"{source}: {inside}" if inside else f"{source}: "
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise ModelError(
                f"{where}{key} is unknown"
                + (f": is {near[0]} meant?" if near else ":")
                + f" Give some of {', '.join(known)}"
            )
    for key, field in known.items():
        if key not in table and _required(field):
            raise ModelError(f"{where}{key} is missing: give it")
    values = {
        known[key].name: _value(hints[known[key].name], value, source, f"{inside}{key}")
        for key, value in table.items()
    }
    try:
        return made(**values)
    except ModelError as error:
        raise ModelError(f"{source}: {error}") from error


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _value(hint: Any, value: Any, source: str, key: str) -> Any:
    """Converts a value to a field's type; numbers may be sizes, as "4K"."""
    if is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ModelError(f"{source}: {key} is {value!r}: write a table, [{key}]")
        return _build(cast(type, hint), value, source, f"{key}.")
    kinds = [each for each in get_args(hint) if each is not type(None)] or [hint]
    kind = str if isinstance(kinds[0], str) else kinds[0]  # of a Literal
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(value)
    if kind is bool and value in ("true", "false"):
        return value == "true"
    if kind is int and isinstance(value, str):
        try:
            return byte_count(value)
        except LocalError as error:
            raise ModelError(f"{source}: {key}: {error}") from error
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        wanted = {int: "a whole number, or a size", bool: "true or false", str: "a text"}
        raise ModelError(f"{source}: {key} is {value!r}: give {wanted.get(kind, 'a number')}")
    return value


def read_table(name: str) -> dict[str, Any]:
    """Reads a file of TOML.  ModelError: it cannot be read, is too long, or is no TOML."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ModelError(f"{name}: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise ModelError(f"{name}: longer than {FILE_BYTES_MAX} bytes: such a file has fewer")
    try:
        return tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ModelError(f"{name}: not TOML: {error}") from error
