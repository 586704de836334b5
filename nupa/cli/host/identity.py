# SPDX-License-Identifier: BSD-3-Clause
"""The identity that a newcomer presents: words of a command line, and files."""

from __future__ import annotations

import errno
import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nupa.base.errors import LocalError

FILE_BYTES_MAX = 1 << 16
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
_VALUE_CHARS_MAX = 127


def identity(words: Iterable[str]) -> dict[str, str]:
    """Returns the properties of *words*, each KEY=VALUE or a TOML or JSON file of them.

    LocalError: a file is unreadable, or a property is not text or a number (EINVAL).
    """
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        for name, each in ({key: value} if equals else _read(Path(word))).items():
            _check(name, each, word)
            found[name] = str(each)
    return found


def _check(name: str, value: Any, source: str) -> None:
    if not _KEY.fullmatch(name):
        raise LocalError(
            f"{source!r}: the property {name!r}: write letters, digits, '_' and '-', as serial=SN1",
            errno.EINVAL,
        )
    if type(value) not in (str, int) or not str(value).isprintable():
        raise LocalError(f"{source!r}: {name} is {value!r}: write text or a number", errno.EINVAL)
    if len(str(value)) > _VALUE_CHARS_MAX:
        raise LocalError(
            f"{source!r}: {name} has {len(str(value))} characters: write at most "
            f"{_VALUE_CHARS_MAX}",
            errno.EINVAL,
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise LocalError(
            f"--identity {path}: {error.strerror}: name a file, or write KEY=VALUE",
            error.errno or 0,
        ) from error
    if len(data) > FILE_BYTES_MAX:
        raise LocalError(f"{path}: an identity has at most {FILE_BYTES_MAX} bytes", errno.EFBIG)
    try:
        text = data.decode()
        value = json.loads(text) if text.lstrip()[:1] == "{" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise LocalError(f"{path}: neither TOML nor JSON: {error}", errno.EINVAL) from error
    if not isinstance(value, dict):
        raise LocalError(f"{path}: write an object of properties", errno.EINVAL)
    return value
