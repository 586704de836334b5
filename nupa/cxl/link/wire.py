# SPDX-License-Identifier: BSD-3-Clause
"""The state of a link."""

from __future__ import annotations


class Wire:
    """A link without a fabric: it is up until it is set."""

    def __init__(self) -> None:
        self._up = True
        self._downs = 0

    @property
    def up(self) -> bool:
        return self._up

    @property
    def downs(self) -> int:
        """The number of times that the link went down."""
        return self._downs

    def set(self, up: bool) -> None:
        """Takes the link down, or up; `settle` waits for those who follow it."""
        self._downs += self._up and not up
        self._up = up

    def settle(self) -> None:
        """Waits until a link that is down is no longer in use."""
