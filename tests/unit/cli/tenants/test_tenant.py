# SPDX-License-Identifier: BSD-3-Clause
"""`nupa tenant`: what it adds, changes, shows and refuses."""

from __future__ import annotations

import json

import pytest

from nupa.fabric import Fabric, Quotas
from tests.unit.cli.command import Nupa

WORDS = ("tenant",)


def test_a_tenant_is_added_changed_listed_and_removed(nupa: Nupa, fabric: Fabric) -> None:
    assert nupa("add", "green", "--rate", "10Gb/s", "--qps", 5, "--pool", "1G") == ""
    green = fabric.tenants.get("green")
    assert green.rate == 1_250_000_000
    assert (green.quotas.qps, green.quotas.pool_bytes) == (5, 1 << 30)
    nupa("set", "green", "--rate", "none", "--mrs", 7, "--pool", "none")
    assert green.rate == 0
    assert (green.quotas.qps, green.quotas.mrs, green.quotas.pool_bytes) == (5, 7, 0)
    assert nupa("ls").splitlines() == [
        "TENANT  RATE  HOSTS        PARTITIONS",
        "red     none  host0,host1  red-data",
        "blue    none  host2,host3  blue-data",
        "green   none  -            -",
    ]
    nupa("rm", "green")
    assert "green" not in fabric.tenants


@pytest.mark.parametrize(
    ("rate", "bytes_per_s"), [("10MB/s", 10**7), ("1GiB/s", 1 << 30), ("10Gb/s", 125 * 10**7)]
)
def test_rates_have_units(nupa: Nupa, fabric: Fabric, rate: str, bytes_per_s: int) -> None:
    nupa("set", "red", "--rate", rate)
    assert fabric.tenants.get("red").rate == bytes_per_s


def test_json_has_what_python_has(nupa: Nupa, fabric: Fabric) -> None:
    added = json.loads(nupa("add", "green", "--attachments", 3, "--json"))
    assert added == fabric.tenants.get("green").as_dict()
    assert added["quotas"] == Quotas(attachments=3)._asdict()
    assert json.loads(nupa("show", "green", "--json")) == added
    assert json.loads(nupa("ls", "--json")) == [each.as_dict() for each in fabric.tenants]


def test_show_says_what_is_used(nupa: Nupa) -> None:
    lines = nupa("show", "red").splitlines()
    assert lines[:3] == [
        "tenant red: rate none",
        "hosts: host0, host1",
        "partitions: red-data",
    ]
    assert "qps               0     1024" in lines
    assert "pool bytes        0B    1GiB" in lines


def test_hosts_are_given_and_taken(nupa: Nupa, fabric: Fabric) -> None:
    nupa("release", "red", "host0", "1")
    assert [fabric.host(n).tenant for n in (0, 1)] == [None, None]
    nupa("assign", "blue", "host0", "host1")
    assert [fabric.host(n).tenant for n in (0, 1)] == ["blue", "blue"]


def test_a_wrong_host_changes_nothing(nupa: Nupa, fabric: Fabric) -> None:
    assert "has no host 'host9'" in nupa.fails("release", "red", "host0", "host9")
    assert fabric.host("host0").tenant == "red"


def test_a_tenant_with_hosts_is_removed_by_force(nupa: Nupa, fabric: Fabric) -> None:
    assert "has 3 hosts and partitions" in nupa.fails("rm", "red")
    nupa("rm", "red", "--force")
    assert [tenant.name for tenant in fabric.tenants] == ["blue"]
    assert fabric.host("host0").pkeys == [0xFFFF]


def test_no_tenants_is_said(nupa: Nupa) -> None:
    for name in ("red", "blue"):
        nupa("rm", name, "--force")
    assert nupa("ls") == "default has no tenants: `nupa tenant add NAME` makes one\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "x"], "'default' has no tenant 'x': its tenants are red, blue"),
        (["add", "red"], "has a tenant red already"),
        (["add", "a/b"], "is no name of a tenant: use 1 to 31 letters"),
        (["add", "x" * 32], "give 1 to 31 letters"),
        (["assign", "red", "host2"], "host2 is of tenant blue: release it there first"),
        (["release", "red", "host2"], "host2 is not of tenant red"),
        (["ls", "--fabric", "lab"], "no fabric is named 'lab'"),
    ],
)
def test_a_refusal_is_one_line_that_says_why(nupa: Nupa, words: list[str], said: str) -> None:
    assert said in nupa.fails(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["add"], "the following arguments are required: TENANT"),
        (["add", "x", "--rate", "fast"], "'fast' is not a rate"),
        (["add", "x", "--rate", "10"], "'10' is not a rate: write its unit"),
        (["add", "x", "--rate", "0B/s"], "'0B/s' is not a rate"),
        (["add", "x", "--pool", "1Q"], "'1Q' is not a size"),
        (["add", "x", "--qps", "-1"], "'-1' is not a number from 1"),
        (["add", "x", "--qps", "4294967296"], "'4294967296' is not a number from 1"),
        (["set", "red"], "name what to change: --rate, --qps"),
        (["assign", "red"], "the following arguments are required: HOST"),
    ],
)
def test_a_wrong_command_line_is_one_line(nupa: Nupa, words: list[str], said: str) -> None:
    assert said in nupa.fails(*words, code=2)
