# SPDX-License-Identifier: BSD-3-Clause
"""Tenants and partitions that a topology declares, as plain values.

Fabric.create makes them once the hosts are there.  docs/tenants.md has the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nupa.topology.error import TopologyError
from nupa.topology.names import NAME_BYTES_MAX, check_control_names

#: Partitions that can be declared; 0x7fff is the default partition (IBTA 10.9.1.1).
PKEY_MIN, PKEY_MAX = 0x0001, 0x7FFE
DEFAULT_PARTITION = "default"
SERVICE_LEVEL_MAX = 15
ACCELERATORS_MAX = 1024  # UALink 200G: ids have 10 bits
MEMBERSHIPS = ("full", "limited")
PARTITION_KINDS = ("partition", "vpod")
MEMBER_KINDS = ("host", "accelerator", "device")
#: States of a place when the fabric is made.
HOST_STATES = ("ready", "absent")


class QuotasConfig(NamedTuple):
    """Limits of a tenant, as `nupa.fabric.tenants.Quotas`; 0: none."""

    qps: int = 0
    mrs: int = 0
    registered_bytes: int = 0
    pool_bytes: int = 0
    attachments: int = 0


class TenantConfig(NamedTuple):
    """*rate*: bytes a second, 0: none; *hosts*: names."""

    name: str
    rate: int = 0
    quotas: QuotasConfig = QuotasConfig()
    hosts: tuple[str, ...] = ()


class MemberConfig(NamedTuple):
    """A member of a partition; *name* is a host's, an accelerator's id, or a device's."""

    kind: str
    name: str
    membership: str = "full"
    rate: int = 0
    keep_default: bool = False


class PartitionConfig(NamedTuple):
    """*tenant*: its name, "" for the fabric itself; *pkey*: 0 for the lowest free one."""

    name: str
    tenant: str = ""
    pkey: int = 0
    members: tuple[MemberConfig, ...] = ()
    service_level: int = 0
    rate: int = 0
    kind: str = "partition"


def check_tenants(
    hosts: Iterable[str], tenants: Iterable[TenantConfig], partitions: Iterable[PartitionConfig]
) -> None:
    """Raises TopologyError where tenants and partitions contradict hosts or each other."""
    tenants, partitions = tuple(tenants), tuple(partitions)
    check_control_names("tenant", (tenant.name for tenant in tenants))
    check_control_names("partition", (partition.name for partition in partitions))
    tenant_of = _tenant_of(tuple(hosts), tenants)
    pkeys: dict[int, str] = {}
    for partition in partitions:
        _check_partition(partition, pkeys)
        if partition.tenant and partition.tenant not in [tenant.name for tenant in tenants]:
            known = ", ".join(tenant.name for tenant in tenants) or "none"
            raise TopologyError(
                f"partition {partition.name!r}: there is no tenant {partition.tenant!r}; "
                f"the tenants are: {known}"
            )
        _check_members(partition, tenant_of)


def _tenant_of(hosts: tuple[str, ...], tenants: tuple[TenantConfig, ...]) -> dict[str, str]:
    """Returns the tenant of each host; "": the fabric itself."""
    found = dict.fromkeys(hosts, "")
    for tenant in tenants:
        for host in tenant.hosts:
            if host not in found:
                raise TopologyError(f"tenant {tenant.name!r}: there is no host {host!r}")
            if found[host]:
                raise TopologyError(
                    f"tenant {tenant.name!r}: {host} is a host of tenant {found[host]!r}: "
                    f"a host has one tenant"
                )
            found[host] = tenant.name
    return found


def _check_partition(partition: PartitionConfig, pkeys: dict[int, str]) -> None:
    what = f"partition {partition.name!r}"
    if partition.name == DEFAULT_PARTITION:
        raise TopologyError(f"{what}: each fabric has it, with P_Key 0x7fff: choose another name")
    if partition.pkey:
        if not PKEY_MIN <= partition.pkey <= PKEY_MAX:
            raise TopologyError(
                f"{what}: `pkey` is {partition.pkey:#06x}: choose {PKEY_MIN:#06x} to {PKEY_MAX:#x}"
            )
        if partition.pkey in pkeys:
            raise TopologyError(
                f"{what}: P_Key {partition.pkey:#06x} is that of {pkeys[partition.pkey]!r}"
            )
        pkeys[partition.pkey] = partition.name
    if partition.kind not in PARTITION_KINDS:
        raise TopologyError(
            f"{what}: `kind` is {partition.kind!r}: choose {' or '.join(PARTITION_KINDS)}"
        )
    if not 0 <= partition.service_level <= SERVICE_LEVEL_MAX:
        raise TopologyError(
            f"{what}: `service_level` is {partition.service_level}: choose 0 to {SERVICE_LEVEL_MAX}"
        )


def _check_members(partition: PartitionConfig, tenant_of: dict[str, str]) -> None:
    what = f"partition {partition.name!r}"
    seen: set[tuple[str, str]] = set()
    for member in partition.members:
        if member.membership not in MEMBERSHIPS:
            raise TopologyError(
                f"{what}: the membership of {member.name} is {member.membership!r}: "
                f"choose {' or '.join(MEMBERSHIPS)}"
            )
        if (member.kind, member.name) in seen:
            raise TopologyError(f"{what}: the {member.kind} {member.name} is a member twice")
        seen.add((member.kind, member.name))
        if member.kind == "host":
            _check_host(what, partition.tenant, member.name, tenant_of)
        elif member.kind == "accelerator":
            if not member.name.isdecimal() or int(member.name) >= ACCELERATORS_MAX:
                raise TopologyError(
                    f"{what}: accelerator {member.name}: ids are 0 to {ACCELERATORS_MAX - 1}"
                )
        elif not 1 <= len(member.name.encode()) <= NAME_BYTES_MAX:
            raise TopologyError(
                f"{what}: the device {member.name!r}: names have 1 to {NAME_BYTES_MAX} bytes"
            )


def _check_host(what: str, tenant: str, host: str, tenant_of: dict[str, str]) -> None:
    if host not in tenant_of:
        raise TopologyError(f"{what}: there is no host {host!r}")
    if tenant and tenant_of[host] != tenant:
        owner = f"tenant {tenant_of[host]!r}" if tenant_of[host] else "no tenant"
        raise TopologyError(
            f"{what}: {host} is a host of {owner}, its members are of tenant {tenant!r}"
        )
