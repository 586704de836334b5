# SPDX-License-Identifier: BSD-3-Clause
"""Reads files of users and of others up to a limit: no file, pipe or device fills the memory."""

from __future__ import annotations

from pathlib import Path

from nupa.model.errors import ModelError


def read_bytes(path: Path, limit_bytes: int) -> bytes:
    """Reads a file.  ModelError: it is unreadable, or longer than the limit."""
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # a NUL byte
        raise ModelError(f"{str(path)!r}: no file has that name: {error}") from error
    if len(data) > limit_bytes:
        raise ModelError(f"{path}: longer than {limit_bytes} bytes, the most that is read")
    return data


def read_text(path: Path, limit_bytes: int) -> str:
    """Reads a file of text.  ModelError as `read_bytes`, or it is not UTF-8."""
    try:
        return read_bytes(path, limit_bytes).decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: offset {error.start}: not UTF-8") from error
