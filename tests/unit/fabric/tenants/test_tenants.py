# SPDX-License-Identifier: BSD-3-Clause
"""Tenants, partitions, members and states of hosts: what each change does to P_Key tables."""

from __future__ import annotations

import doctest
import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

import pytest

from nupa._engine import ffi, lib
from nupa.base.errors import FabricError, NupaError
from nupa.fabric import Fabric, LocalError, Member, Quotas
from nupa.topology.topology import SegmentConfig, Topology, star


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(hosts=4) as fabric:
        yield fabric


def refused(code: int, said: str, call: Callable[[], object], kind: type = LocalError) -> None:
    with pytest.raises(kind, match=said) as caught:
        call()
    assert isinstance(caught.value, NupaError)
    assert caught.value.errno == code


def shared(size: SegmentConfig) -> Topology:
    """Two hosts in memory that several kernels share."""
    return Topology("shared", star(2).switches, star(2).hosts, segment=size)


def write_pkeys(fabric: Fabric, host: int, first: int, *pkeys: int) -> None:
    """As a subnet manager does (SMA Set P_KeyTable)."""
    why = ffi.new("char[]", 256)
    assert lib.nupa_pkey_table_set(fabric.handle, host, first, pkeys, len(pkeys), why, 256) == 0


@pytest.mark.parametrize("name", ["event", "partition", "tenant"])
def test_examples_work(name: str) -> None:
    failed, tried = doctest.testmod(import_module(f"nupa.fabric.tenants.{name}"))
    assert (failed, tried > 0) == (0, True)


def test_nupa_run_does_not_import_them() -> None:
    program = "import sys, nupa.fabric, nupa.cli.run; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert b"nupa.fabric.tenants" not in run.stdout


def test_tenants_by_name_and_host(fabric: Fabric) -> None:
    red = fabric.tenants.add("red", rate="1GB/s", quotas=Quotas(qps=3))
    blue = fabric.tenants.add("blue")
    assert (red.id, blue.id, len(fabric.tenants)) == (1, 2, 2)
    assert (red.rate, red.quotas) == (10**9, Quotas(qps=3))
    red.set(quotas=Quotas(mrs=1))
    assert (red.rate, red.quotas) == (10**9, Quotas(mrs=1))
    red.set(rate=0)
    assert (red.rate, red.quotas) == (0, Quotas(mrs=1))
    red.assign("host1")
    red.assign(fabric.hosts[1])
    assert [host.name for host in red.hosts] == ["host1"]
    assert fabric.host("host1").tenant == "red"
    assert fabric.tenants.of_host(1) == red
    assert fabric.tenants.of_host(0) is None
    refused(errno.EBUSY, "host1 is of tenant red", lambda: blue.assign("host1"))
    refused(errno.ENOENT, "not of tenant blue", lambda: blue.release("host1"))
    refused(errno.EEXIST, "red already", lambda: fabric.tenants.add("red"))
    refused(errno.ENOENT, "its tenants are red, blue", lambda: fabric.tenants.get("green"))
    refused(errno.EINVAL, "31 letters", lambda: fabric.tenants.add("x" * 32))
    refused(errno.EINVAL, "no name of a tenant", lambda: fabric.tenants.add("a b"))
    refused(errno.EINVAL, "quota qps", lambda: red.set(quotas=Quotas(qps=-1)))
    refused(errno.EINVAL, "quota mrs", lambda: red.set(quotas=Quotas(mrs=2**64)))
    refused(errno.EINVAL, "no quota is named qp", lambda: Quotas.of(qp=1))
    refused(errno.EBUSY, "1 hosts and partitions", lambda: fabric.tenants.remove("red"))
    fabric.tenants.remove("red", force=True)
    assert fabric.host(1).tenant is None
    refused(errno.ENOENT, "no tenant 'red'", lambda: red.rate)
    # Another with its id is not it.
    assert fabric.tenants.add("green").id == 1
    refused(errno.ENOENT, "no tenant 'red'", lambda: red.assign(0))


def test_the_first_partition_takes_the_place_of_the_default_one(fabric: Fabric) -> None:
    one = fabric.partitions.add("one", pkey=0x10)
    two = fabric.partitions.add("two", pkey=0x11)
    host = fabric.host("host0")
    assert host.pkeys == [0xFFFF]
    one.join("host0")
    assert host.pkeys == [0x8010]
    two.join("host0", "limited")
    assert host.pkeys == [0x8010, 0x0011]
    one.leave("host0")
    assert host.pkeys == [0, 0x0011]
    one.join("host0")
    assert host.pkeys == [0x8010, 0x0011]
    two.join("host0", "full")  # again: another membership
    assert host.pkeys == [0x8010, 0x8011]
    one.leave("host0")
    two.leave("host0")
    assert host.pkeys == [0xFFFF]
    one.join("host0", keep_default=True)
    assert host.pkeys == [0xFFFF, 0x8010]
    one.leave("host0")
    assert host.pkeys == [0xFFFF]
    refused(errno.ENOENT, "no member", lambda: one.leave("host0"))


def test_hosts_of_different_tenants_share_nothing(fabric: Fabric) -> None:
    red, blue = fabric.tenants.add("red"), fabric.tenants.add("blue")
    shared = fabric.partitions.add("shared")
    shared.join("host0")
    red.assign("host0")
    red.assign("host1")
    blue.assign("host2")
    assert [fabric.host(i).pkeys for i in range(4)] == [[], [], [], [0xFFFF]]
    lan = fabric.partitions.add("lan", tenant=red)
    lan.join(0)
    lan.join(1)
    refused(errno.EPERM, "assign it first", lambda: lan.join(2))
    refused(errno.EPERM, "assign it first", lambda: lan.join(3))
    assert lib.nupa_pkey_shared(fabric.handle, 0, 1) == 0
    assert lib.nupa_pkey_shared(fabric.handle, 0, 2) == -1
    assert lib.nupa_pkey_shared(fabric.handle, 2, 3) == -1
    lan.leave(0)
    assert fabric.host(0).pkeys == []
    red.release(1)
    assert fabric.host(1).pkeys == [0xFFFF]
    assert [each.name for each in red.partitions] == ["lan"]
    assert lan.tenant == red


def test_members_of_all_kinds(fabric: Fabric) -> None:
    pod = fabric.partitions.add("pod", kind="vpod", service_level=15, rate="2GB/s")
    pod.join("accelerator:1023", rate="1GB/s")
    pod.join("device:sld0", "limited")
    pod.join(2, service_level=3)
    assert pod.members == [
        Member("host", "host2", service_level=3),
        Member("accelerator", "1023", rate=10**9),
        Member("device", "sld0", "limited"),
    ]
    assert (pod.kind, pod.service_level, pod.rate) == ("vpod", 15, 2 * 10**9)
    other = fabric.partitions.add("other", kind="vpod")
    refused(errno.EBUSY, "one only", lambda: other.join("accelerator:1023"))
    refused(errno.EINVAL, "0 to 1023", lambda: other.join("accelerator:1024"))
    refused(errno.EINVAL, "0 to 1023", lambda: other.join("accelerator:x"))
    refused(errno.EINVAL, "31 bytes", lambda: other.join("device:" + "x" * 32))
    refused(errno.EINVAL, "kind of member", lambda: other.join("gpu:1"))
    refused(errno.EINVAL, "membership", lambda: other.join(0, "half"))
    refused(errno.EINVAL, "service level 16", lambda: other.join(0, service_level=16))
    refused(errno.ENOENT, "no host", lambda: other.join("host9"))
    for member in pod.members:
        pod.leave(member)
    other.join("accelerator:1023")
    assert (pod.members, [str(member) for member in other.members]) == ([], ["accelerator:1023"])


def test_a_subnet_manager_writes_the_tables(fabric: Fabric) -> None:
    blue = fabric.partitions.add("blue", pkey=0x20)
    blue.join("host0", rate="1GB/s")
    write_pkeys(fabric, 1, 0, 0xFFFF, 0x8012, 0x0020)
    write_pkeys(fabric, 0, 1, 0x0012)
    found = fabric.partitions.get("pkey-0x0012")
    assert (found.pkey, found.managed, found.tenant) == (0x12, True, None)
    assert found.members == [Member("host", "host0", "limited"), Member("host", "host1")]
    assert blue.members == [
        Member("host", "host0", rate=10**9),
        Member("host", "host1", "limited"),
    ]
    assert [each.name for each in fabric.partitions] == ["pkey-0x0012", "blue", "default"]
    write_pkeys(fabric, 0, 0, 0)  # out of blue
    assert [member.name for member in blue.members] == ["host1"]
    # A tenant's partition takes no hosts of others over.
    red = fabric.tenants.add("red")
    refused(errno.EBUSY, "0x0012", lambda: fabric.partitions.add("a", pkey=0x12, tenant=red))
    taken = fabric.partitions.add("taken", pkey=0x12)
    assert [member.name for member in taken.members] == ["host0", "host1"]
    fabric.partitions.remove(0x8012)
    assert [fabric.host(i).pkeys for i in (0, 1)] == [[0xFFFF], [0xFFFF, 0, 0x0020]]


def test_partitions_by_name_and_pkey(fabric: Fabric) -> None:
    one = fabric.partitions.add("one")
    assert (one.pkey, fabric.partitions.get(0x8001)) == (1, one)
    assert fabric.partitions.add("two", pkey=0x7FFE).pkey == 0x7FFE
    assert fabric.partitions.get(0xFFFF).name == "default"
    one.set(rate="1MB/s", service_level=2)
    assert (one.rate, one.service_level) == (10**6, 2)
    assert "one" in fabric.partitions
    assert 2 not in fabric.partitions
    for pkey in (-1, 0, 0x7FFF, 0x8001):
        refused(errno.EINVAL, "choose", partial(fabric.partitions.add, "x", pkey=pkey))
    refused(errno.EEXIST, "one", lambda: fabric.partitions.add("one"))
    refused(errno.EEXIST, "one", lambda: fabric.partitions.add("x", pkey=1))
    refused(errno.EINVAL, "kept", lambda: fabric.partitions.add("default"))
    refused(errno.EINVAL, "kind", lambda: fabric.partitions.add("x", kind="zone"))
    refused(errno.EINVAL, "level", lambda: fabric.partitions.add("x", service_level=16))
    refused(errno.ENOENT, "no tenant", lambda: fabric.partitions.add("x", tenant="red"))
    refused(errno.EINVAL, "stays", lambda: fabric.partitions.remove("default"))
    refused(errno.ENOENT, "no partition 0x0003", lambda: fabric.partitions.remove(3))
    fabric.partitions.remove("one")
    refused(errno.ENOENT, "no partition 'one'", lambda: one.join(0))


def test_states_of_hosts(fabric: Fabric) -> None:
    host = fabric.host("host0")
    for state in ("draining", "absent", "onboarding", "failed", "ready"):
        fabric.set_host_state("host0", state)
        assert host.control_state == state
    fabric.set_host_state("host0", "ready")  # no news
    events = [event for event in fabric.events.read() if event.kind == "host.state"]
    assert [event.text.split()[-1] for event in events] == [
        "draining",
        "absent",
        "onboarding",
        "failed",
        "ready",
    ]
    assert [event.severity for event in events] == ["ok", "ok", "ok", "critical", "ok"]
    refused(errno.EINVAL, "no state", lambda: fabric.set_host_state("host0", "up"))


def test_show_has_them(fabric: Fabric) -> None:
    red = fabric.tenants.add("red", rate=7)
    red.assign("host1")
    fabric.partitions.add("lan", tenant="red").join(1)
    shown = fabric.show()
    assert shown["tenants"] == [red.as_dict()]
    assert [each["name"] for each in shown["partitions"]] == ["lan", "default"]
    host = shown["hosts"][1]
    assert (host["tenant"], host["control_state"], host["pkeys"]) == ("red", "ready", [0x8001])


def test_memory_of_several_kernels_has_smaller_tables() -> None:
    size = SegmentConfig(segment_bytes=256 << 20)
    with Fabric(topology=shared(size)) as fabric:
        for i in range(64):
            fabric.tenants.add(f"tenant{i}")
        refused(errno.ENOSPC, "64", lambda: fabric.tenants.add("more"), FabricError)
        for i in range(128):
            fabric.partitions.add(f"partition{i}")
        refused(errno.ENOSPC, "128", lambda: fabric.partitions.add("more"), FabricError)
        assert fabric.events.room == 512


def test_memory_that_is_not_coherent_has_none() -> None:
    size = SegmentConfig(segment_bytes=256 << 20, coherence="software")
    with Fabric(topology=shared(size)) as fabric:
        for call in (
            lambda: fabric.tenants.add("red"),
            lambda: fabric.partitions.add("blue"),
            lambda: fabric.set_host_state(0, "draining"),
        ):
            refused(errno.EOPNOTSUPP, "not coherent", call, FabricError)
        assert list(fabric.tenants) == []
        assert [each.name for each in fabric.partitions] == ["default"]
        assert fabric.events.read() == []
