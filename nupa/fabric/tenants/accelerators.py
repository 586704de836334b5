# SPDX-License-Identifier: BSD-3-Clause
"""The accelerators of a fabric: its partitions are the virtual pods of a UALink pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from nupa.base.errors import LocalError
from nupa.fabric.tenants.newcomer import Newcomer, newcomers, set_newcomer, states
from nupa.fabric.tenants.onboarding import admit

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric


#: States in which an accelerator may send requests.
_SENDING = ("ready", "draining")


class Accelerators:
    """The controller of a UALink pod, `nupa.accel.ualink.Pod(controller=fabric.accelerators)`.

    Accelerators of one partition reach each other; two limited members do not.  Those of no
    partition reach each other, too.  Requests reach accelerators that are ready.

    >>> from nupa.accel.ualink import Pod
    >>> from nupa.fabric import Fabric
    >>> with Fabric(hosts=1) as fabric:
    ...     fabric.partitions.add("training", kind="vpod").join("accelerator:1")
    ...     pod = Pod(controller=fabric.accelerators)
    ...     one, two = pod.attach(1, bytearray(64)), pod.attach(2, bytearray(64))
    ...     fabric.accelerators.reaches(1, 2)
    False
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._seen = -1
        #: Accelerator -> its partition's P_Key, and whether it is a full member.
        self._vpods: dict[int, tuple[int, bool]] = {}
        self._states: dict[int, str] = {}

    def admit(self, number: int, identity: Mapping[str, str]) -> None:
        """Judges an accelerator by the admission policy.  LocalError (EACCES): it is refused."""
        admit(self._fabric, "accelerator", str(number), identity)

    def left(self, number: int) -> None:
        """Makes an accelerator absent; its memberships stay for its return."""
        with suppress(LocalError):  # the fabric was closed first
            set_newcomer(self._fabric, "accelerator", str(number), "absent")

    def vpod(self, number: int) -> str | None:
        """Returns the name of an accelerator's partition; None: it is in none."""
        self._look()
        pkey, _ = self._vpods.get(number, (0, True))
        return self._fabric.partitions.get(pkey).name if pkey else None

    def __iter__(self) -> Iterator[Newcomer]:
        """Goes through the accelerators that have joined or are members of a partition."""
        return (each for each in newcomers(self._fabric) if each.kind == "accelerator")

    def state(self, number: int) -> str:
        """Returns "ready", "absent", "onboarding", "draining" or "failed"."""
        return states(self._fabric).get(number, "absent")

    def reaches(self, source: int, destination: int) -> bool:
        """Tells whether the switches have a route for requests from one to the other.

        The destination is ready.  The source is ready or draining: its data may be moved away.
        """
        self._look()
        if self._states.get(destination) != "ready" or self._states.get(source) not in _SENDING:
            return False
        here, there = (self._vpods.get(each, (0, True)) for each in (source, destination))
        return here[0] == there[0] and (here[1] or there[1] or source == destination)

    def _look(self) -> None:
        """Reads the members again if anything has changed; each change is an event."""
        last = self._fabric.events.last
        if last != self._seen:
            self._vpods = {
                int(member.name): (partition.pkey, member.membership == "full")
                for partition in self._fabric.partitions
                for member in partition.members
                if member.kind == "accelerator"
            }
            self._states = states(self._fabric)
            self._seen = last
