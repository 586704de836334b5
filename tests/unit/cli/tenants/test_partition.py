# SPDX-License-Identifier: BSD-3-Clause
"""`nupa partition`: what it adds, changes, lists and refuses."""

from __future__ import annotations

import json

import pytest

from nupa.fabric import Fabric
from tests.unit.cli.command import Nupa

WORDS = ("partition",)


def test_a_partition_is_added_changed_listed_and_removed(nupa: Nupa, fabric: Fabric) -> None:
    assert nupa("add", "shared", "--pkey", "0x30") == "shared: P_Key 0x0030\n"
    nupa("join", "shared", "host0", "host2", "--limited", "--rate", "10MB/s")
    nupa("join", "shared", "accelerator:7", "device:weights")
    nupa("set", "0x0030", "--rate", "1GB/s", "--service-level", 3)
    assert nupa("ls").splitlines() == [
        "PARTITION  P_KEY   KIND       TENANT  SL  RATE   MEMBERS",
        "red-data   0x0011  partition  red     0   none   host0,host1",
        "blue-data  0x0012  partition  blue    0   none   host2,host3",
        "shared     0x0030  partition  -       3   1GB/s  "
        "(host0),(host2),accelerator:7,device:weights",
        "default    0x7fff  partition  -       0   none   host4,host5",
    ]
    members = fabric.partitions.get("shared").members
    assert [member.rate for member in members] == [10**7, 10**7, 0, 0]
    assert fabric.host("host0").pkeys == [0x8011, 0x0030]
    nupa("leave", "shared", "host0", "accelerator:7")
    assert fabric.host("host0").pkeys == [0x8011]
    nupa("rm", "0x30")
    assert "shared" not in fabric.partitions


def test_the_lowest_free_p_key_is_taken(nupa: Nupa) -> None:
    assert nupa("add", "first") == "first: P_Key 0x0001\n"
    found = json.loads(nupa("add", "second", "--kind", "vpod", "--tenant", "red", "--json"))
    assert found == {
        "name": "second",
        "pkey": 2,
        "kind": "vpod",
        "tenant": "red",
        "service_level": 0,
        "rate": 0,
        "managed": False,
        "members": [],
    }


def test_json_has_what_python_has(nupa: Nupa, fabric: Fabric) -> None:
    assert json.loads(nupa("ls", "--json")) == [each.as_dict() for each in fabric.partitions]
    found = json.loads(nupa("set", "red-data", "--rate", "8Mb/s", "--json"))
    assert found["rate"] == 10**6


def test_a_member_may_stay_in_the_default_partition(nupa: Nupa, fabric: Fabric) -> None:
    nupa("add", "shared")
    nupa("join", "shared", "host4", "--keep-default")
    nupa("join", "shared", "host5")
    assert fabric.host("host4").pkeys == [0xFFFF, 0x8001]
    assert fabric.host("host5").pkeys == [0x8001]


def test_what_a_subnet_manager_wrote_is_listed(nupa: Nupa, fabric: Fabric) -> None:
    from nupa._engine import ffi, lib

    entries = ffi.new("uint16_t[]", [0x8077])
    with fabric.control_lock():
        assert lib.nupa_pkey_table_set(fabric.handle, 4, 1, entries, 1, ffi.NULL, 0) == 0
    (line,) = (line for line in nupa("ls").splitlines() if "0x0077" in line)
    assert line.split()[0] == "pkey-0x0077"
    assert "managed by the subnet manager" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rm", "x"], "has no partition 'x': its partitions are red-data, blue-data, default"),
        (["rm", "0x99"], "has no partition 0x0099"),
        (["rm", "0xzz"], "has no partition '0xzz'"),
        (["rm", "default"], "default"),
        (["add", "x", "--pkey", "0x11"], "partition red-data of fabric default has that"),
        (["add", "red-data"], "partition red-data of fabric default has that"),
        (["add", "x", "--tenant", "y"], "has no tenant 'y': its tenants are red, blue"),
        (["join", "red-data", "host2"], "host2 is not of the tenant of partition red-data"),
        (["join", "red-data", "host9"], "has no host 'host9'"),
        (["join", "red-data", "switch:1"], "no kind of member is 'switch'"),
        (["join", "red-data", "accelerator:1024"], "there is no accelerator 1024"),
        (["leave", "red-data", "host2"], "no member of partition red-data"),
    ],
)
def test_a_refusal_is_one_line_that_says_why(nupa: Nupa, words: list[str], said: str) -> None:
    assert said in nupa.fails(*words)


def test_a_tag_of_dynamic_capacity_is_a_uuid(nupa: Nupa) -> None:
    tag = "tag:6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    nupa("join", "red-data", tag)
    assert f"host0,host1,{tag}\n" in nupa("ls")
    nupa("leave", "red-data", tag)
    assert "tag:" not in nupa("ls")
    assert "'tag:7': write 32 hexadecimal digits" in nupa.fails("join", "red-data", "tag:7")


def test_an_accelerator_is_in_one_virtual_pod(nupa: Nupa) -> None:
    nupa("add", "a", "--kind", "vpod")
    nupa("add", "b", "--kind", "vpod")
    nupa("join", "a", "accelerator:1023")
    assert "accelerator 1023 is in the partition of P_Key 0x0001" in nupa.fails(
        "join", "b", "accelerator:1023"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "x", "--pkey", "0"], "'0' is not a P_Key from 0x0001 to 0x7ffe"),
        (["add", "x", "--pkey", "0x7fff"], "'0x7fff' is not a P_Key"),
        (["add", "x", "--pkey", "y"], "'y' is not a P_Key"),
        (["add", "x", "--service-level", "16"], "'16' is not a service level from 0 to 15"),
        (["add", "x", "--kind", "pod"], "invalid choice: 'pod'"),
        (["set", "red-data"], "name what to change: --rate, --service-level"),
        (["join", "red-data"], "the following arguments are required: MEMBER"),
    ],
)
def test_a_wrong_command_line_is_one_line(nupa: Nupa, words: list[str], said: str) -> None:
    assert said in nupa.fails(*words, code=2)
