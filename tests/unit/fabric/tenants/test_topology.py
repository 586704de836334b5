# SPDX-License-Identifier: BSD-3-Clause
"""Tenants, partitions and admission in topology files: values, and messages that name the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from nupa.topology.admission import Admission, AdmissionRule, Fact
from nupa.topology.file import load, parse
from nupa.topology.tenants import MemberConfig, PartitionConfig, QuotasConfig, TenantConfig
from nupa.topology.tenants_file import load_admission
from nupa.topology.topology import Topology, TopologyError, star

HEAD = """
[[switch]]
name = "s"
ports = 4
[[host]]
name = "host"
count = 3
switch = "s"
[[host]]
name = "late"
switch = "s"
state = "absent"
"""
RED = '[[tenant]]\nname = "red"\nhosts = ["host0"]\n'


def read(text: str) -> Topology:
    return parse((HEAD + text).encode(), "lab.toml", "lab")


def test_every_key_is_understood() -> None:
    topology = read(
        """
[[tenant]]
name = "red"
rate = "10MB/s"
hosts = ["host0", "host1"]
quotas = { qps = 5, mrs = 6, registered_bytes = "1G", pool_bytes = 4096, attachments = 7 }
[[tenant]]
name = "blue"
[[partition]]
name = "red-data"
tenant = "red"
pkey = 0x12
service_level = 15
rate = 1000
members = [
  "host0",
  { host = "host1", membership = "limited", rate = "8Mb/s", keep_default = true },
]
[[partition]]
name = "pod"
kind = "vpod"
members = [{ accelerator = 7 }, { device = "tag-1" }]
[admission]
default = "admit"
[[admission.rule]]
name = "first"
kind = "host"
allow = ["late*"]
require = { link_layer = "ethernet", min_speed = "Gen5" }
vendor = ["acme"]
serial = ["SN*"]
tenant = "red"
partitions = ["red-data"]
"""
    )
    assert [host.state for host in topology.hosts] == ["ready"] * 3 + ["absent"]
    assert topology.tenants == (
        TenantConfig("red", 10**7, QuotasConfig(5, 6, 1 << 30, 4096, 7), ("host0", "host1")),
        TenantConfig("blue"),
    )
    red = (
        MemberConfig("host", "host0"),
        MemberConfig("host", "host1", "limited", 10**6, keep_default=True),
    )
    pod = (MemberConfig("accelerator", "7"), MemberConfig("device", "tag-1"))
    assert topology.partitions == (
        PartitionConfig("red-data", "red", 0x12, red, 15, 1000),
        PartitionConfig("pod", members=pod, kind="vpod"),
    )
    rule = AdmissionRule(
        "first",
        ("host",),
        ("late*",),
        (("link_layer", "ethernet"), ("min_speed", "32000")),
        ("acme",),
        ("SN*",),
        "red",
        ("red-data",),
    )
    assert topology.admission == Admission((rule,), "admit")
    assert topology.declares


def test_a_topology_without_tenants_declares_nothing() -> None:
    assert not star(2).declares
    assert star(2, spare=1).declares
    assert [host.state for host in star(2, spare=1).hosts] == ["ready", "ready", "absent"]


def test_a_policy_with_rules_refuses_by_default_and_one_without_admits() -> None:
    assert read("[admission]").admission == Admission()
    found = read('[[admission.rule]]\nname = "x"').admission
    assert found == Admission((AdmissionRule("x"),), "refuse")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[tenant]]\nname = "a b"', "the tenant name 'a b' has a blank"),
        (f'[[tenant]]\nname = "{"x" * 32}"', "has 32 bytes: names have 1 to 31"),
        ('[[partition]]\nname = "-p"', "the partition name '-p': use letters, digits"),
        (RED + RED, "the tenant name 'red' is used twice"),
        (RED + '[[tenant]]\nname = "b"\nhosts = ["host0"]', "host0 is a host of tenant 'red'"),
        ('[[tenant]]\nname = "a"\nhosts = ["host9"]', "tenant 'a': there is no host 'host9'"),
        ('[[tenant]]\nname = "a"\nrate = "fast"', "[[tenant]] 1 ('a'): `rate`: 'fast' is not"),
        ('[[tenant]]\nname = "a"\nrate = true', "`rate` is True: write a number, or text"),
        ('[[tenant]]\nname = "a"\nhosts = [1]', "`hosts` has 1: write strings"),
        ('[[tenant]]\nname = "a"\nquotas = { cqs = 1 }', "[quotas]: there is no key `cqs`"),
        ('[[tenant]]\nname = "a"\nquotas = { pool_bytes = "1Q" }', "`pool_bytes`: '1Q' is not"),
        ('[[partition]]\nname = "default"', "each fabric has it, with P_Key 0x7fff"),
        ('[[partition]]\nname = "p"\npkey = 0x7fff', "`pkey` is 32767: choose 1 to 32766"),
        ('[[partition]]\nname = "p"\npkey = 0', "`pkey` is 0: choose 1 to 32766"),
        ('[[partition]]\nname = "p"\nservice_level = 16', "`service_level` is 16: choose 0 to 15"),
        ('[[partition]]\nname = "p"\nkind = "pod"', "`kind` is 'pod': choose partition or vpod"),
        ('[[partition]]\nname = "p"\ntenant = "red"', "no tenant 'red'; the tenants are: none"),
        (
            '[[partition]]\nname = "p"\npkey = 5\n[[partition]]\nname = "q"\npkey = 5',
            "partition 'q': P_Key 0x0005 is that of 'p'",
        ),
        ('[[partition]]\nname = "p"\nmembers = [1]', "`members` has 1: write the name of a host"),
        ('[[partition]]\nname = "p"\nmembers = [{}]', "name one of host, accelerator, device"),
        (
            '[[partition]]\nname = "p"\nmembers = [{ host = "host0", device = "d" }]',
            "name one of host, accelerator, device",
        ),
        ('[[partition]]\nname = "p"\nmembers = ["host9"]', "there is no host 'host9'"),
        (
            '[[partition]]\nname = "p"\nmembers = ["host0", "host0"]',
            "the host host0 is a member twice",
        ),
        (
            '[[partition]]\nname = "p"\nmembers = [{ host = "host0", membership = "half" }]',
            "the membership of host0 is 'half': choose full or limited",
        ),
        (
            '[[partition]]\nname = "p"\nmembers = [{ accelerator = 1024 }]',
            "accelerator 1024: ids are 0 to 1023",
        ),
        (
            f'[[partition]]\nname = "p"\nmembers = [{{ device = "{"d" * 32}" }}]',
            "names have 1 to 31 bytes",
        ),
        (
            RED + '[[partition]]\nname = "p"\ntenant = "red"\nmembers = ["host1"]',
            "host1 is a host of no tenant, its members are of tenant 'red'",
        ),
        ('[admission]\ndefault = "maybe"', "`default` is 'maybe': choose admit or refuse"),
        ('[[admission.rule]]\nname = "x"\nkind = "switch"', "`kind` is 'switch': choose host, "),
        ('[[admission.rule]]\nname = "x"\nrequire = { a = 1.5 }', "require.a is 1.5: write"),
        ('[[admission.rule]]\nname = "x"\nrequire = { min_a = "b" }', "write a whole number"),
        ('[[admission.rule]]\nname = "x"\ntenant = "t"', "rule 'x': there is no tenant 't'"),
        ('[[admission.rule]]\nname = "x"\npartitions = ["p"]', "'p' is no partition of the fabric"),
    ],
)
def test_messages_name_the_place(text: str, said: str) -> None:
    with pytest.raises(TopologyError) as caught:
        read(text)
    assert str(caught.value).startswith("lab.toml: ")
    assert said in str(caught.value)


def test_a_place_is_ready_or_absent() -> None:
    with pytest.raises(TopologyError, match="the state of late is 'failed': choose ready or abs"):
        parse(HEAD.replace('"absent"', '"failed"').encode(), "lab.toml", "lab")


def test_memory_that_is_not_coherent_has_no_tenants() -> None:
    segment = '[segment]\nsegment_bytes = 1073741824\ncoherence = "software"\n'
    with pytest.raises(TopologyError, match="need memory that is coherent"):
        read(segment)


POLICY = Admission(
    (
        AdmissionRule("wide", ("host",), ("host*",), (("min_width", "4"), ("max_width", "8"))),
        AdmissionRule("known", (), ("x", "y*"), (("link_layer", "ethernet"),), ("a*", "b")),
    ),
    "refuse",
)


@pytest.mark.parametrize(
    ("kind", "name", "facts", "why"),
    [
        ("host", "host1", {"width": 4}, ""),
        ("host", "host1", {"width": 8}, ""),
        ("host", "host1", {"width": 3}, "rule wide: width is 3, min_width = 4 is required"),
        ("host", "host1", {"width": 9}, "rule wide: width is 9, max_width = 8 is required"),
        ("host", "host1", {"width": "5"}, ""),
        ("host", "host1", {"width": "x4"}, "rule wide: width is x4, min_width = 4 is required"),
        ("host", "host1", {}, "rule wide: width is not known, min_width = 4 is required"),
        ("device", "host1", {}, "no rule is about the device host1"),
        ("device", "yes", {"link_layer": "ethernet", "vendor": "b"}, ""),
        ("device", "x", {"link_layer": "ethernet", "vendor": "acme"}, ""),
        ("device", "x", {"link_layer": "ethernet"}, "rule known: vendor is not known, one of a*"),
        (
            "device",
            "x",
            {"link_layer": "ethernet", "vendor": "c"},
            "rule known: vendor is c, one of a*, b is required",
        ),
        (
            "host",
            "x",
            {"link_layer": "infiniband"},
            "rule known: link_layer is infiniband, link_layer = ethernet is required",
        ),
    ],
)
def test_the_first_rule_that_is_about_a_newcomer_judges_it(
    kind: str, name: str, facts: dict[str, Fact], why: str
) -> None:
    verdict = POLICY.judge(kind, name, facts)
    assert verdict.admitted is not bool(why)
    assert verdict.why.startswith(why)


def test_a_policy_is_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[[admission.rule]]\nname = "all"\n')
    assert load_admission(path) == Admission((AdmissionRule("all"),), "refuse")
    path.write_text('name = "lab"\n')
    with pytest.raises(TopologyError, match="has no table"):
        load_admission(path)
    path.write_text(f"admission = {'[' * 9999}")
    with pytest.raises(TopologyError, match="nested too deeply"):
        load_admission(path)
    path.write_text('[admission]\ndefault = "refuse"\nmore = 1\n')
    with pytest.raises(TopologyError, match=r"policy.toml: .*there is no key `more`"):
        load_admission(path)


def test_the_preset_has_two_tenants_and_two_free_places() -> None:
    topology = load("tenants")
    assert [tenant.name for tenant in topology.tenants] == ["red", "blue"]
    assert [partition.pkey for partition in topology.partitions] == [0x11, 0x12]
    assert [host.state for host in topology.hosts] == ["ready"] * 4 + ["absent"] * 2
    assert topology.admission is not None
    facts: dict[str, Fact] = {"link_layer": "ethernet", "width": 4, "speed": 32000}
    assert topology.admission.judge("host", "host4", facts).tenant == "blue"
