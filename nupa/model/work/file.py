# SPDX-License-Identifier: BSD-3-Clause
"""Files that describe storage, a training or inference step, or a dispatch: TOML with a `kind`.

The examples in the folder `examples` name each key.  The keys of a table are the fields of its
class, so the schema is made of those.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from nupa.model.errors import ModelError
from nupa.model.work.phase import Work
from nupa.model.work.storage import Storage
from nupa.model.work.training.dispatch import Dispatch
from nupa.model.work.training.inference import Inference
from nupa.model.work.training.layout import Parallelism
from nupa.model.work.training.step import Training
from nupa.model.work.training.transformer import Transformer

EXAMPLES = Path(__file__).parent / "examples"


class WorkKind(NamedTuple):
    """A kind of file: the class of its work, and those of its tables by name.

    *tables*: a table's name is its key, and the field of the work that it fills.
    """

    work: type[Any]
    tables: Mapping[str, tuple[str, type[Any]]] = {}


_STEP = {"model": ("model", Transformer), "parallel": ("layout", Parallelism)}
KINDS: Mapping[str, WorkKind] = {
    "storage": WorkKind(Storage),
    "training": WorkKind(Training, _STEP),
    "inference": WorkKind(Inference, _STEP),
    "dispatch": WorkKind(Dispatch),
}
_WANTED = {"integer": "a whole number", "boolean": "true or false", "string": "a string"}


def read(table: Mapping[str, Any], source: str) -> Work:
    """Returns the work that a parsed file describes.

    ModelError names *source*, table and key, and the nearest key that there is; or the work is
    impossible.
    """
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        near = difflib.get_close_matches(str(kind), KINDS, 1)
        raise ModelError(
            f"{source}: kind is {kind!r}"
            + (f": is {near[0]!r} meant?" if near else "")
            + f" There are {', '.join(KINDS)}"
        )
    _check(table, kind, source)
    found = KINDS[kind]
    values = {key: value for key, value in table.items() if key != "kind"}
    try:
        for name, (field, made) in found.tables.items():
            values[field] = made(**_tuples(values.pop(name, {})))
        work: Work = found.work(**values)
    except ModelError as error:
        raise ModelError(f"{source}: {error}") from error
    return work


def schema(kind: str) -> dict[str, Any]:
    """Returns the JSON schema of a kind of file.  ModelError: there is no such kind."""
    if kind not in KINDS:
        raise ModelError(f"no kind {kind!r}: there are {', '.join(KINDS)}")
    found = KINDS[kind]
    tables = {field: name for name, (field, _) in found.tables.items()}
    made = _object(found.work, tables)
    made["properties"] |= {
        "kind": {"const": kind},
        **{name: _object(each) for name, (_, each) in found.tables.items()},
    }
    made["required"] = ["kind", *made["required"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def examples() -> Iterator[Path]:
    """Yields the example files, by name."""
    yield from sorted(EXAMPLES.glob("*.toml"))


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(each) if isinstance(each, list) else each for key, each in values.items()}


def _object(made: type[Any], tables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the schema of a class's fields; *tables* are the names of those that are tables."""
    names = tables or {}
    hints = get_type_hints(made)
    fields = dataclasses.fields(made)
    properties = {
        each.name: _property(hints[each.name]) for each in fields if each.name not in names
    }
    required = [
        names.get(each.name, each.name) for each in fields if each.default is dataclasses.MISSING
    ]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }


_PROPERTIES: Mapping[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
}


def _property(hint: Any) -> dict[str, Any]:
    """Returns the schema of a field of that type."""
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _property(get_args(hint)[0])}
    return dict(_PROPERTIES[hint])


def _check(table: Mapping[str, Any], kind: str, source: str) -> None:
    """Raises ModelError for the first place that does not fit the schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema(kind)).iter_errors(table))
    if error is None:
        return
    where = ".".join(str(part) for part in error.absolute_path)
    title = f"[{where}]" if isinstance(error.instance, dict) and where else where or "the file"
    say = _SAYINGS.get(error.validator)
    raise ModelError(f"{source}: {title}: {say(error) if say else error.message}")


def _unknown(error: Any) -> str:
    known = list(error.schema["properties"])
    for key in error.instance:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f": is `{near[0]}` meant?" if near else f"; the keys are {', '.join(known)}"
            return f"there is no key `{key}`{hint}"
    raise AssertionError(error.message)


def _missing(error: Any) -> str:
    missing = [key for key in error.validator_value if key not in error.instance]
    tables = [key for key in missing if error.schema["properties"][key].get("type") == "object"]
    if tables:
        return f"the table [{tables[0]}] is missing"
    return f"the key `{missing[0]}` is missing"


def _other(error: Any) -> str:
    return f"{error.instance!r} was given: give one of {', '.join(map(str, error.validator_value))}"


def _typed(error: Any) -> str:
    return f"{error.instance!r} is not {_WANTED.get(error.validator_value, error.validator_value)}"


_SAYINGS: Mapping[str, Callable[[Any], str]] = {
    "additionalProperties": _unknown,
    "required": _missing,
    "enum": _other,
    "type": _typed,
}
