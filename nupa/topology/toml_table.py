# SPDX-License-Identifier: BSD-3-Clause
"""TOML files, read key by key; errors name file, line, table and key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from nupa.topology.error import TopologyError

FILE_BYTES_MAX = 1 << 20
_AT_LINE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)$", re.DOTALL)
_WANTED = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "an array",
    dict: "a table",
}


def read(path: Path) -> bytes:
    """Reads the file.  TopologyError: it is unreadable or longer than FILE_BYTES_MAX."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise TopologyError(f"{path}: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise TopologyError(f"{path}: a topology has at most {FILE_BYTES_MAX} bytes")
    return data


def document(data: bytes, source: str) -> Table:
    """Parses the outermost table.  TopologyError: not TOML; it begins with `SOURCE:LINE:`."""
    return Table(parse(data, source), "the file")


def parse(data: bytes, source: str) -> dict[str, Any]:
    """Parses TOML to plain values.  TopologyError, as document()."""
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TopologyError(f"{source}:{line}: not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise TopologyError(_with_line(str(error), source, data)) from error
    except RecursionError as error:
        raise TopologyError(f"{source}: its values are nested too deeply") from error


def _with_line(message: str, source: str, data: bytes) -> str:
    """Moves the line of tomllib's `… (at line 3, column 7)` or `(at end of document)` to the
    front."""
    match = _AT_LINE.match(message)
    if match:
        return f"{source}:{match[2]}: {match[1]} (column {match[3]})"
    last_line = len(data.splitlines()) or 1
    return f"{source}:{last_line}: {message}"


class Table:
    """A table of the file; keys that were not asked for are unknown keys."""

    def __init__(self, values: dict[str, Any], title: str) -> None:
        self._values = values
        self._asked: list[str] = []
        self.title = title

    def has(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str, kind: type, default: Any = None, required: bool = False) -> Any:
        self._asked.append(key)
        if key not in self._values:
            if required:
                raise TopologyError(f"{self.title}: the key `{key}` is missing")
            return default
        value = self._values[key]
        # bool is a subtype of int in Python, but not in TOML.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TopologyError(f"{self.title}: `{key}` is {value!r}, not {_WANTED[kind]}")
        return value

    def any(self, key: str, default: Any) -> Any:
        """Returns a value of any kind, which the caller checks."""
        self._asked.append(key)
        return self._values.get(key, default)

    def text(self, key: str, default: str = "", required: bool = False) -> str:
        return str(self.get(key, str, default, required))

    def number(
        self, key: str, low: int, high: int, default: int = 0, required: bool = False
    ) -> int:
        value = self.get(key, int, default, required)
        if key in self._values and not low <= value <= high:
            raise TopologyError(f"{self.title}: `{key}` is {value}: choose {low} to {high}")
        return int(value)

    def table(self, key: str) -> Table:
        return Table(self.get(key, dict, {}), f"[{key}]")

    def tables(self, key: str) -> list[Table]:
        values = self.get(key, list, [])
        found = []
        for i, value in enumerate(values, 1):
            if not isinstance(value, dict):
                raise TopologyError(f"`{key}` holds {value!r}: write tables, [[{key}]]")
            named = value.get("name")
            title = f"[[{key}]] {i}" + (f" ({named!r})" if isinstance(named, str) else "")
            found.append(Table(value, title))
        return found

    def done(self) -> None:
        for key in self._values:
            if key not in self._asked:
                raise TopologyError(
                    f"{self.title}: there is no key `{key}`; the keys are: {', '.join(self._asked)}"
                )
