# SPDX-License-Identifier: BSD-3-Clause
"""The controller of a UALink pod, as the pod's switch asks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class PodController(Protocol):
    """Assigns accelerators to virtual pods, and so decides which of them the switch connects.

    `nupa.fabric.Accelerators` is one, of a fabric's partitions.
    """

    def admit(self, number: int, identity: Mapping[str, str]) -> None:
        """Lets an accelerator join.  LocalError: it is refused."""

    def reaches(self, source: int, destination: int) -> bool:
        """Tells whether the switch has a route for requests from one accelerator to the other."""

    def left(self, number: int) -> None:
        """Is told that an accelerator was detached."""
