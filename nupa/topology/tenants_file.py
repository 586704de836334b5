# SPDX-License-Identifier: BSD-3-Clause
"""The tables of a topology file that declare tenants, partitions and the admission policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nupa.base.errors import LocalError
from nupa.base.quantity import byte_count, bytes_per_s
from nupa.topology import toml_table
from nupa.topology.admission import Admission, AdmissionRule
from nupa.topology.error import TopologyError
from nupa.topology.tenants import (
    MEMBER_KINDS,
    PKEY_MAX,
    SERVICE_LEVEL_MAX,
    MemberConfig,
    PartitionConfig,
    QuotasConfig,
    TenantConfig,
)
from nupa.topology.toml_table import Table
from nupa.topology.topology import SPEEDS_MTPS

_U32_MAX = (1 << 32) - 1


def tenant(table: Table) -> TenantConfig:
    """Reads a [[tenant]]."""
    quotas = table.table("quotas")
    found = TenantConfig(
        table.text("name", required=True),
        rate(table, "rate"),
        QuotasConfig(
            qps=quotas.number("qps", 0, _U32_MAX),
            mrs=quotas.number("mrs", 0, _U32_MAX),
            registered_bytes=_size(quotas, "registered_bytes"),
            pool_bytes=_size(quotas, "pool_bytes"),
            attachments=quotas.number("attachments", 0, _U32_MAX),
        ),
        tuple(_texts(table, "hosts")),
    )
    quotas.done()
    table.done()
    return found


def partition(table: Table) -> PartitionConfig:
    """Reads a [[partition]]."""
    found = PartitionConfig(
        table.text("name", required=True),
        table.text("tenant"),
        table.number("pkey", 1, PKEY_MAX),
        tuple(_member(table, each) for each in table.get("members", list, [])),
        table.number("service_level", 0, SERVICE_LEVEL_MAX),
        rate(table, "rate"),
        table.text("kind", "partition"),
    )
    table.done()
    return found


def _member(table: Table, value: Any) -> MemberConfig:
    if isinstance(value, str):
        return MemberConfig("host", value)
    if not isinstance(value, dict):
        raise TopologyError(
            f"{table.title}: `members` has {value!r}: write the name of a host, or a table as "
            f'{{ host = "host1", membership = "limited" }}'
        )
    member = Table(value, f"{table.title}: members")
    named = [kind for kind in MEMBER_KINDS if member.any(kind, None) is not None]
    if len(named) != 1:
        raise TopologyError(f"{member.title}: name one of {', '.join(MEMBER_KINDS)} in {value!r}")
    (kind,) = named
    name = member.get(kind, int if kind == "accelerator" else str)
    found = MemberConfig(
        kind,
        str(name),
        member.text("membership", "full"),
        rate(member, "rate"),
        member.get("keep_default", bool, False),
    )
    member.done()
    return found


def admission(table: Table) -> Admission:
    """Reads [admission] and its rules."""
    rules = tuple(_rule(each) for each in table.tables("rule"))
    found = Admission(rules, table.text("default", "refuse" if rules else "admit"))
    table.done()
    return found


def load_admission(path: Path) -> Admission:
    """Reads the [admission] of a file; its other tables are left alone.

    TopologyError: it is unreadable, or has no such table.
    """
    top = toml_table.document(toml_table.read(path), str(path))
    if top.any("admission", None) is None:
        raise TopologyError(f"{path}: it has no table [admission]")
    try:
        return admission(top.table("admission"))
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from error


def _rule(table: Table) -> AdmissionRule:
    kind = table.text("kind")
    found = AdmissionRule(
        table.text("name", required=True),
        (kind,) if kind else (),
        tuple(_texts(table, "allow")) or ("*",),
        tuple(_required(table).items()),
        tuple(_texts(table, "vendor")),
        tuple(_texts(table, "serial")),
        table.text("tenant"),
        tuple(_texts(table, "partitions")),
    )
    table.done()
    return found


def _required(table: Table) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in table.get("require", dict, {}).items():
        if type(value) not in (str, int):
            raise TopologyError(
                f"{table.title}: require.{key} is {value!r}: write a string or a whole number"
            )
        speed = key.endswith("speed") and isinstance(value, str)
        value = SPEEDS_MTPS.get(value.lower(), value) if speed else value
        if key.startswith(("min_", "max_")) and not str(value).isdecimal():
            raise TopologyError(f"{table.title}: require.{key} is {value!r}: write a whole number")
        found[key] = str(value)
    return found


def _texts(table: Table, key: str) -> list[str]:
    found = table.get(key, list, [])
    for value in found:
        if not isinstance(value, str):
            raise TopologyError(f"{table.title}: `{key}` has {value!r}: write strings")
    return [str(value) for value in found]


def rate(table: Table, key: str) -> int:
    """Reads bytes a second: a number, or text as "10MB/s"; 0 where the key is missing."""
    return _quantity(table, key, bytes_per_s)


def _size(table: Table, key: str) -> int:
    return _quantity(table, key, byte_count)


def _quantity(table: Table, key: str, parse: Any) -> int:
    value = table.any(key, 0)
    if value == 0 and value is not False:
        return 0
    if type(value) not in (str, int):
        raise TopologyError(f"{table.title}: `{key}` is {value!r}: write a number, or text")
    try:
        return int(parse(value))
    except LocalError as error:
        raise TopologyError(f"{table.title}: `{key}`: {error}") from error
