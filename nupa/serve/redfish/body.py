# SPDX-License-Identifier: BSD-3-Clause
"""Bodies of requests: JSON of strangers, checked property by property."""

from __future__ import annotations

import json
from typing import Any

from nupa.serve.redfish.errors import RedfishError

_TYPES = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    list: "an array",
    dict: "an object",
}
#: The largest integer that JSON carries between all implementations (RFC 8259 6).
_INTEGER_MAX = 2**53 - 1


def parse(data: bytes) -> dict[str, Any]:
    """Returns the object of a body.  RedfishError: it is not one, or nests too deep."""
    try:
        found = json.loads(data, parse_constant=_no_constant)
        json.dumps(found, ensure_ascii=False).encode()  # no halves of surrogates
    except (ValueError, RecursionError) as error:
        raise RedfishError("MalformedJSON", text=f"the body is not JSON: {error}"[:200]) from error
    if not isinstance(found, dict):
        raise RedfishError("MalformedJSON", text="the body is JSON, but not an object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


class Body:
    """An object of a request; each take() removes a property, and what is left is unknown.

    A property of the schema that cannot be written is named by read_only().
    """

    def __init__(self, content: dict[str, Any], path: str = "", root: Body | None = None) -> None:
        # Annotations of the client may be ignored: DSP0266 7.5.1.
        self._left = {name: each for name, each in content.items() if "@odata." not in name}
        self._path = path
        self._root = root or self
        if root is None:
            self.refused: list[RedfishError] = []
            self.used = False  # a property was taken
            self._open: list[Body] = []
        self._root._open.append(self)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, kind: type, default: Any = None, *, choices: Any = None) -> Any:
        """Takes a property of that type, or *default*.  RedfishError: another type or value."""
        if name not in self._left:
            return default
        value: Any = self._left.pop(name)
        self._root.used = self._root.used or kind is not dict
        at = f"{self._path}/{name}"
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            text = f"{at[1:]} is {_shown(value)}, and must be {_TYPES[kind]}"
            raise RedfishError("PropertyValueTypeError", _shown(value), name, text=text, related=at)
        if isinstance(value, int) and not 0 <= value <= _INTEGER_MAX:
            text = f"{at[1:]} is {_shown(value)}, and must be from 0 to 2^53 - 1"
            raise RedfishError(
                "PropertyValueFormatError", _shown(value), name, text=text, related=at
            )
        if choices is not None and value not in choices:
            text = f"{at[1:]} is {_shown(value)}, and must be one of {', '.join(map(str, choices))}"
            raise RedfishError("PropertyValueNotInList", _shown(value), name, text=text, related=at)
        return value

    def need(self, name: str, kind: type, *, choices: Any = None) -> Any:
        """Takes a required property.  RedfishError: it is missing."""
        if name not in self._left:
            raise RedfishError("PropertyMissing", name, related=f"{self._path}/{name}")
        return self.take(name, kind, choices=choices)

    def object(self, name: str) -> Body:
        """Takes an object, empty if it is missing."""
        return Body(self.take(name, dict, {}), f"{self._path}/{name}", self._root)

    def objects(self, name: str) -> list[Body] | None:
        """Takes an array of objects; None: it is missing."""
        found = self.take(name, list)
        if found is None:
            return None
        for number, each in enumerate(found):
            if not isinstance(each, dict):
                at = f"{self._path}/{name}/{number}"
                raise RedfishError("PropertyValueTypeError", _shown(each), name, related=at)
        return [
            Body(each, f"{self._path}/{name}/{number}", self._root)
            for number, each in enumerate(found)
        ]

    def links(self, name: str) -> list[str] | None:
        """Takes an array of links, as their URIs; None: it is missing."""
        found = self.take(name, list)
        return None if found is None else [self._link(each, name) for each in found]

    def link(self, name: str) -> str | None:
        """Takes a link, as its URI."""
        found = self.take(name, dict)
        return None if found is None else self._link(found, name)

    def _link(self, value: Any, name: str) -> str:
        uri = value.get("@odata.id") if isinstance(value, dict) else None
        if not isinstance(uri, str):
            at = f"{self._path}/{name}"
            text = f'{at[1:]} holds {_shown(value)}, and must hold {{"@odata.id": URI}}'
            raise RedfishError("PropertyValueTypeError", _shown(value), name, text=text, related=at)
        return uri.rstrip("/")

    def read_only(self, *names: str) -> None:
        """Refuses properties of the schema that cannot be written."""
        for name in names:
            if self._left.pop(name, None) is not None:
                self._root.refused.append(
                    RedfishError("PropertyNotWritable", name, related=f"{self._path}/{name}")
                )

    def end(self) -> list[RedfishError]:
        """Returns the errors of properties that are unknown or not writable."""
        unknown = [
            RedfishError("PropertyUnknown", name, related=f"{body._path}/{name}")
            for body in self._root._open
            for name in body._left
        ]
        return [*self._root.refused, *unknown]

    def finish(self) -> None:
        """Refuses all properties that are left.  RedfishError: there is one."""
        errors = self.end()
        if errors:
            raise errors[0]


def _shown(value: Any) -> str:
    return json.dumps(value)[:60]
