# SPDX-License-Identifier: BSD-3-Clause
"""The state of a link: one object, whoever looks at it or sets it."""

from __future__ import annotations


class Wire:
    """Of a model that is of no fabric: it is up until it is set."""

    def __init__(self) -> None:
        self._up = True
        self._downs = 0

    @property
    def up(self) -> bool:
        return self._up

    @property
    def downs(self) -> int:
        """How often it went down."""
        return self._downs

    def set(self, up: bool) -> None:
        """Take it down, or up.  Whoever is told of it follows: `settle` waits for that."""
        self._downs += self._up and not up
        self._up = up

    def settle(self) -> None:
        """After `set`: until nobody uses a link any more that is down."""
