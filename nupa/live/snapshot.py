# SPDX-License-Identifier: BSD-3-Clause
"""A snapshot: the state of a fabric at one moment, as plain values."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from nupa.fabric import Fabric
    from nupa.live.rates import FabricRates

#: Of the JSON: 1 is added when a key goes away or its meaning changes, not for new keys.
VERSION = 1
#: The latest events that a snapshot has.
EVENTS = 100
#: Keys of Fabric.show() that are lists, and empty in a snapshot without a fabric.
_LISTS = (
    *("hosts", "ports", "wires", "movers", "listeners", "regions", "faults"),
    *("tenants", "partitions", "accelerators", "devices"),
    *("qps", "mrs", "pds", "cqs", "srqs", "cm_ids", "contexts"),
)


class Snapshot(NamedTuple):
    """The state of a fabric at one moment.

    fabric: as Fabric.show() returns it, with all of its lists; where error is not empty, the lists
    are.  interfaces: as `nupa net ls --json`; machines: those of this fabric, as `nupa vm ls
    --json`; events: the latest, oldest first.  lists: whether queue pairs, memory regions and their
    like are listed.  monotonic_ns: time.monotonic_ns(), or the given clock; time_ns: since the
    epoch; cost_ns: the time that it took.  rates: None in the first of a series.
    """

    fabric: dict[str, Any]
    interfaces: list[dict[str, Any]]
    machines: list[dict[str, Any]]
    events: list[dict[str, Any]]
    lists: bool
    monotonic_ns: int
    time_ns: int
    cost_ns: int = 0
    rates: FabricRates | None = None
    error: str = ""

    @property
    def generation(self) -> str:
        """The number of the fabric; empty without one."""
        return str(self.fabric.get("generation", ""))

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON; docs/serve.md has the shape."""
        return {
            "version": VERSION,
            "error": self.error,
            "time_ns": self.time_ns,
            "monotonic_ns": self.monotonic_ns,
            "cost_ns": self.cost_ns,
            "lists": self.lists,
            **self.fabric,
            "interfaces": self.interfaces,
            "machines": self.machines,
            "events": self.events,
            "rates": self.rates.as_dict() if self.rates else None,
        }


def take(
    fabric: Fabric, *, lists: bool = True, clock: Callable[[], int] = time.monotonic_ns
) -> Snapshot:
    """Returns the state of *fabric*, read from shared memory.

    *lists*: with queue pairs, memory regions, channels and their like, one by one.  Without them a
    snapshot of a fabric with thousands of queue pairs costs little.  *clock*: in nanoseconds.
    NupaError: the fabric is closed or damaged.
    """
    at, began = clock(), time.perf_counter_ns()
    shown = dict.fromkeys(_LISTS, ()) | fabric.show(lists=lists)
    found = Snapshot(
        {key: list(value) if isinstance(value, tuple) else value for key, value in shown.items()},
        _interfaces(fabric),
        _machines(fabric),
        _events(fabric),
        lists,
        at,
        time.time_ns(),
    )
    return found._replace(cost_ns=time.perf_counter_ns() - began)


def without_fabric(
    name: str | None, error: Exception, clock: Callable[[], int] = time.monotonic_ns
) -> Snapshot:
    """Returns the snapshot of a fabric that cannot be read, with the reason."""
    fabric: dict[str, Any] = {key: [] for key in _LISTS}
    return Snapshot(
        {"name": name or "", "generation": "", **fabric},
        [],
        [],
        [],
        lists=False,
        monotonic_ns=clock(),
        time_ns=time.time_ns(),
        error=str(error),
    )


def _interfaces(fabric: Fabric) -> list[dict[str, Any]]:
    from nupa.netdev import state, view

    up = state.load(fabric.name) if fabric.name in state.names() else None
    return [] if up is None else view.rows(up, fabric)


def _machines(fabric: Fabric) -> list[dict[str, Any]]:
    from nupa.vm.files.place import is_machine
    from nupa.vm.files.shown import machine

    return [machine(fabric.name)] if is_machine(fabric.name) else []


def _events(fabric: Fabric) -> list[dict[str, Any]]:
    events = fabric.events
    found = events.read(max(events.last - EVENTS, 0))
    return [event._asdict() | {"severity": str(event.severity)} for event in found]
