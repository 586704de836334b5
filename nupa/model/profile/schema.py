# SPDX-License-Identifier: BSD-3-Clause
"""The JSON schema of a profile, and checks against it by jsonschema."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from nupa.model.errors import ModelError
from nupa.model.profile.figure import Confidence
from nupa.model.profile.kinds import (
    KINDS,
    TABLES,
    FlowControl,
    Spread,
    Switching,
    Transport,
)

_FIGURE: Mapping[str, Any] = {
    "type": "object",
    "required": ["value", "unit", "source", "confidence"],
    "additionalProperties": False,
    "properties": {
        "value": {"type": "number", "minimum": 0},
        "low": {"type": "number", "minimum": 0},
        "high": {"type": "number", "minimum": 0},
        "unit": {"type": "string"},
        "source": {"type": "string", "minLength": 1},
        "confidence": {"enum": list(get_args(Confidence))},
        "fitted": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    },
}
_TABLE = {
    "type": "object",
    "required": ["unit", "source", "confidence", "columns", "rows"],
    "additionalProperties": False,
    "properties": {
        **{key: _FIGURE["properties"][key] for key in ("unit", "source", "confidence", "fitted")},
        "columns": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "rows": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"type": "array", "items": {"type": "number", "minimum": 0}},
        },
    },
}
_PAIR = {
    "type": "array",
    "items": {"type": "integer", "minimum": 1},
    "minItems": 2,
    "maxItems": 2,
}

SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["name", "title", "kind", "figures"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9.-]*$"},
        "title": {"type": "string", "minLength": 1},
        "kind": {"enum": ["fabric", "medium", "library", "drive", "processor", "base"]},
        "base": {"type": "string"},
        "notes": {"type": "array", "items": {"type": "string"}},
        "envelope": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "bytes": _PAIR,
                "ranks": _PAIR,
                "operations": {"type": "array", "items": {"type": "string"}},
            },
        },
        "figures": {
            "type": "object",
            "propertyNames": {"enum": list(KINDS)},
            "additionalProperties": _FIGURE,
        },
        "packets": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "flow_control": {"enum": list(get_args(FlowControl))},
                "transport": {"enum": list(get_args(Transport))},
                "spread": {"enum": list(get_args(Spread))},
                "switching": {"enum": list(get_args(Switching))},
                "virtual_queues": {"type": "boolean"},
            },
        },
        "tables": {
            "type": "object",
            "propertyNames": {"enum": list(TABLES)},
            "additionalProperties": _TABLE,
        },
    },
}


def check(table: Mapping[str, Any], source: str) -> None:
    """Raises ModelError for the first place that does not fit the schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(SCHEMA).iter_errors(table))
    if error is None:
        return
    where = ".".join(str(part) for part in error.absolute_path) or "the file"
    message = error.message
    if error.validator == "enum" and isinstance(error.instance, str):
        near = difflib.get_close_matches(error.instance, map(str, error.validator_value), 1)
        message = f"{error.instance!r} is unknown" + (f": is {near[0]!r} meant?" if near else "")
    raise ModelError(f"{source}: {where}: {message}")
