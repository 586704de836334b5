# SPDX-License-Identifier: BSD-3-Clause
"""Errors that name a file and an offset, for tests with any bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nupa.model.errors import ModelError


@contextmanager
def suppress_at(name: str) -> Iterator[None]:
    """Runs the block, which succeeds or raises an error with the name and an offset."""
    try:
        yield
    except ModelError as error:
        if f"{name}: offset " not in str(error):
            raise
