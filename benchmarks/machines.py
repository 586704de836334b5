# SPDX-License-Identifier: BSD-3-Clause
"""Machines for benchmarks: network namespaces, each made when it is first needed.

    left, right = bench.machines.get(pair)

As links, they stay until the end, and are idle while others are measured.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import pytest

from nupa.programs.pair import ProgramError
from tests.common.namespaces import Namespace, machines

T = TypeVar("T")


def pair() -> AbstractContextManager[tuple[Namespace, ...]]:
    """Returns the maker of two machines with a cable between them."""
    return machines(2)


class Machines:
    """What was made so far; a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._made: dict[Callable[[], AbstractContextManager[Any]], Any] = {}

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Takes all of them down."""
        self._made.clear()
        self._stack.close()

    def get(self, make: Callable[[], AbstractContextManager[T]]) -> T:
        """Returns what *make* makes, once.  ProgramError: it cannot be made."""
        if make not in self._made:
            try:
                self._made[make] = self._stack.enter_context(make())
            except pytest.skip.Exception as error:  # no namespaces here, or a tool is missing
                raise ProgramError(str(error)) from error
        made: T = self._made[make]
        return made
