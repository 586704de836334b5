# SPDX-License-Identifier: BSD-3-Clause
"""Hosts, accelerators and devices that join and leave a fabric that is up.

A newcomer presents its identity.  The fabric adds what it knows of the newcomer's port, and the
admission policy judges both.  Each step is an event.  docs/tenants.md has the states.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError, NupaError, RemoteError
from nupa.base.quantity import say_count
from nupa.core.segment import WHY_BYTES, HostInfo, check, text
from nupa.fabric.tenants.event import EventSeverity
from nupa.fabric.tenants.newcomer import set_newcomer
from nupa.fabric.tenants.policy import policy_of
from nupa.topology.admission import Admission, Fact, Verdict

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric

PKEYS = 128
_DEFAULT_PKEY = 0xFFFF
#: Pauses between looks at who is left on a host that drains: nothing announces it.
_LOOK_S = 0.02


def add_host(
    fabric: Fabric,
    host: str | int,
    identity: Mapping[str, str] | None = None,
    policy: Admission | None = None,
) -> Verdict:
    """Lets a host join: onboarding, then ready, or failed where the policy refuses it.

    A draining host is ready again.  *policy*: instead of the fabric's.
    LocalError: it is ready (EALREADY), there is none (ENOENT), or it is refused (EACCES).
    """
    found = fabric.host(host)
    if found.control_state == "ready":
        raise LocalError(f"host {found.name} of fabric {fabric.name} is ready", errno.EALREADY)
    if found.control_state == "draining":
        fabric.set_host_state(found.index, "ready")
        return Verdict(True, "it was draining")
    fabric.set_host_state(found.index, "onboarding")
    try:
        verdict = _judge(
            fabric, "host", found.name, identity or {}, port_facts(fabric, found), policy
        )
        if verdict.tenant and found.tenant != verdict.tenant:
            fabric.tenants.get(verdict.tenant).assign(found.index)
        for partition in verdict.partitions:
            fabric.partitions.get(partition).join(found.index)
    except NupaError:
        fabric.set_host_state(found.index, "failed")
        raise
    with fabric.control_lock():
        if not found.pkeys and found.tenant is None:
            _store_pkeys(fabric, found, [_DEFAULT_PKEY])
    fabric.set_port(found.index, True)
    fabric.set_host_state(found.index, "ready")
    return verdict


def admit(
    fabric: Fabric,
    kind: str,
    name: str,
    identity: Mapping[str, str],
    policy: Admission | None = None,
) -> Verdict:
    """Lets an accelerator or a device join the partitions that the policy has for it.

    LocalError: it is refused (EACCES).
    """
    set_newcomer(fabric, kind, name, "onboarding")
    try:
        verdict = _judge(fabric, kind, name, identity, {}, policy)
        for partition in verdict.partitions:
            fabric.partitions.get(partition).join(f"{kind}:{name}")
    except NupaError:
        set_newcomer(fabric, kind, name, "failed")
        raise
    set_newcomer(fabric, kind, name, "ready")
    return verdict


def drain_host(
    fabric: Fabric, host: str | int, *, wait: bool = False, timeout: float | None = None
) -> int:
    """Keeps new processes off a host; returns how many are there.

    *wait*: until there is none.  LocalError: it is neither ready nor draining (EINVAL);
    RemoteError: some are left after *timeout* seconds (ETIMEDOUT).
    """
    found = fabric.host(host)
    if found.control_state not in ("ready", "draining"):
        raise LocalError(
            f"host {found.name} of fabric {fabric.name} is {found.control_state}: only a host that "
            "is ready can drain",
            errno.EINVAL,
        )
    fabric.set_host_state(found.index, "draining")
    until = None if timeout is None else time.monotonic() + timeout
    while left := processes(fabric, found):
        if not wait:
            break
        if until is not None and time.monotonic() >= until:
            raise RemoteError(
                f"host {found.name} still has {say_count(left, 'process')} after {timeout:g} s: "
                f"`nupa show` lists them, `nupa host remove {found.name}` ends their connections",
                errno.ETIMEDOUT,
            )
        time.sleep(_LOOK_S)
    return left


def remove_host(fabric: Fabric, host: str | int) -> None:
    """Takes a host out of the fabric: its place is absent.

    Its port is down and its P_Key table empty, so its queue pairs are in error.  It leaves its
    tenant and its partitions.
    LocalError: it is absent already (EALREADY).
    """
    found = fabric.host(host)
    if found.control_state == "absent":
        raise LocalError(f"host {found.name} of fabric {fabric.name} is absent", errno.EALREADY)
    _take_out(fabric, found.index, "absent")


def fail_host(fabric: Fabric, host: str | int, why: str = "") -> None:
    """Gives a host up: as remove_host(), but it is failed until it is added again."""
    found = fabric.host(host)
    _take_out(fabric, found.index, "failed")
    if why:
        fabric.events.post("host.failed", found.name, why, EventSeverity.CRITICAL)


def processes(fabric: Fabric, host: HostInfo) -> int:
    """Returns how many processes are attached to a host, its network interface aside."""
    return sum(slot.host == host.index and not slot.net_queue for slot in fabric.processes())


def port_facts(fabric: Fabric, host: HostInfo) -> dict[str, Fact]:
    """Returns the properties of a host's port for the policy: link_layer, width, speed (mega-
    transfers a second per lane), switch."""
    port = fabric.ports[host.port]
    peer = fabric.ports[port.peer]
    return {
        "link_layer": host.link_layer,
        "width": port.width_lanes,
        "speed": port.speed_mtps,
        "switch": peer.name.rpartition("/")[0],
    }


def _take_out(fabric: Fabric, index: int, state: str) -> None:
    host = fabric.host(index)
    fabric.set_host_state(index, state)
    with fabric.control_lock():
        _store_pkeys(fabric, host, [])
    if host.tenant is not None:
        fabric.tenants.get(host.tenant).release(index)
        with fabric.control_lock():
            _store_pkeys(fabric, host, [])
    fabric.set_port(index, False)


def _judge(
    fabric: Fabric,
    kind: str,
    name: str,
    identity: Mapping[str, str],
    known: Mapping[str, Fact],
    policy: Admission | None,
) -> Verdict:
    """Returns the verdict of a newcomer that is admitted.  LocalError (EACCES): it is refused."""
    why = next(
        (
            f"it says that its {key} is {identity[key]}, and its port has {known[key]}"
            for key in known
            if key in identity and identity[key] != str(known[key])
        ),
        "",
    )
    verdict = Verdict(False, why)
    if not why:
        judging = policy_of(fabric) if policy is None else policy
        verdict = judging.judge(kind, name, {**identity, **known})
    if not verdict.admitted:
        fabric.events.post("admission.refused", name, verdict.why, EventSeverity.WARNING)
        raise LocalError(f"{kind} {name} is refused: {verdict.why}", errno.EACCES)
    fabric.events.post("admission.granted", name, f"{kind} {name}: {verdict.why}")
    return verdict


def _store_pkeys(fabric: Fabric, host: HostInfo, pkeys: list[int]) -> None:
    """Stores a whole P_Key table.  The caller holds the control lock."""
    table = ffi.new("uint16_t[]", pkeys + [0] * (PKEYS - len(pkeys)))
    why = ffi.new("char[]", WHY_BYTES)
    rc = lib.nupa_pkey_table_set(fabric.handle, host.index, 0, table, PKEYS, why, WHY_BYTES)
    check(rc, f"cannot set the P_Keys of {host.name}", text(why))
