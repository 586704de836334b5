# SPDX-License-Identifier: BSD-3-Clause
"""Accelerators and devices of a fabric: the state of each, and the partitions that it is in."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.core.segment import WHY_BYTES, check, text
from nupa.fabric.host import STATES
from nupa.fabric.tenants.event import EventSeverity
from nupa.fabric.tenants.partition import member_of, wish_of

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric

KINDS = ("accelerator", "device")


class Newcomer(NamedTuple):
    """An accelerator or a device.  state: that of hosts; one that never joined is absent.  tenants:
    of its partitions."""

    kind: str
    name: str
    state: str = "absent"
    tenants: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, as `nupa show --json` prints them."""
        return {
            "name": str(self),
            "kind": self.kind,
            "state": self.state,
            "tenants": list(self.tenants),
            "partitions": list(self.partitions),
        }


def newcomers(fabric: Fabric) -> list[Newcomer]:
    """Returns the accelerators by number, then the devices by name: those that have a state, and
    members of partitions that never joined."""
    found = {(kind, name): Newcomer(kind, name, state) for kind, name, state in _stored(fabric)}
    tenants = {tenant.id: tenant.name for tenant in fabric.tenants}
    for partition in fabric.partitions:
        for member in partition.members:
            if member.kind not in KINDS:
                continue
            key = (member.kind, member.name)
            known = found.get(key, Newcomer(*key))
            tenant = tenants.get(partition.tenant_id)
            found[key] = known._replace(
                tenants=known.tenants
                + ((tenant,) if tenant and tenant not in known.tenants else ()),
                partitions=(*known.partitions, partition.name),
            )
    return sorted(found.values(), key=_order)


def newcomer(fabric: Fabric, kind: str, name: str) -> Newcomer:
    """Returns the newcomer of that name.  LocalError (ENOENT): there is none."""
    known = newcomers(fabric)
    wanted = member_of(wish_of(kind, name))
    for each in known:
        if (each.kind, each.name) == (kind, wanted.name):
            return each
    shown = ", ".join(str(each) for each in known) or "none"
    raise LocalError(
        f"the fabric {fabric.name!r} has no {kind}:{name}: its accelerators and devices "
        f"are {shown}",
        errno.ENOENT,
    )


def states(fabric: Fabric) -> dict[int, str]:
    """Returns the states of accelerators by number."""
    return {int(name): state for kind, name, state in _stored(fabric) if kind == "accelerator"}


def device_states(fabric: Fabric) -> dict[str, str]:
    """Returns the states of devices by name; those that never joined have none."""
    return {name: state for kind, name, state in _stored(fabric) if kind == "device"}


def set_newcomer(fabric: Fabric, kind: str, name: str, state: str) -> None:
    """Sets a state; a change is an event.

    LocalError: no such number or name (EINVAL); FabricError: the table is full (ENOSPC), or memory
    is not coherent (EOPNOTSUPP).
    """
    wish = wish_of(kind, name)
    wish.state = STATES.index(state)
    why = ffi.new("char[]", WHY_BYTES)
    with fabric.control_lock():
        rc = lib.nupa_newcomer_set(fabric.handle, wish, why, WHY_BYTES)
    check(rc, f"cannot set the state of {kind} {name}", text(why))


def drain(fabric: Fabric, kind: str, name: str) -> None:
    """Keeps requests of others off an accelerator, or new uses off a device.

    LocalError: there is none (ENOENT); it is neither ready nor draining (EINVAL).
    """
    found = newcomer(fabric, kind, name)
    if found.state not in ("ready", "draining"):
        raise LocalError(
            f"{kind} {name} of fabric {fabric.name} is {found.state}: only one that is ready can "
            "drain",
            errno.EINVAL,
        )
    set_newcomer(fabric, kind, name, "draining")


def remove(fabric: Fabric, kind: str, name: str) -> None:
    """Takes a newcomer out of the fabric and of its partitions: it is absent.

    LocalError: there is none (ENOENT), or it is absent already (EALREADY).
    """
    found = newcomer(fabric, kind, name)
    if found.state == "absent" and not found.partitions:
        raise LocalError(f"{kind} {name} of fabric {fabric.name} is absent", errno.EALREADY)
    _take_out(fabric, found, "absent")


def fail(fabric: Fabric, kind: str, name: str, why: str = "") -> None:
    """Gives a newcomer up: as remove(), but it is failed until it is added again."""
    _take_out(fabric, newcomer(fabric, kind, name), "failed")
    if why:
        fabric.events.post(f"{kind}.failed", f"{kind}:{name}", why, EventSeverity.CRITICAL)


def _take_out(fabric: Fabric, found: Newcomer, state: str) -> None:
    set_newcomer(fabric, found.kind, found.name, state)
    for partition in found.partitions:
        fabric.partitions.get(partition).leave(str(found))


def _stored(fabric: Fabric) -> list[tuple[str, str, str]]:
    """Returns kind, name and state of each."""
    handle = fabric.handle
    room = lib.nupa_newcomer_list(handle, ffi.NULL, 0)
    infos = ffi.new("struct nupa_member[]", room)
    found = min(room, lib.nupa_newcomer_list(handle, infos, room))
    members = [(member_of(info), STATES[info.state]) for info in infos[0:found]]
    return [(member.kind, member.name, state) for member, state in members]


def _order(each: Newcomer) -> tuple[str, int, str]:
    return each.kind, int(each.name) if each.kind == "accelerator" else 0, each.name
