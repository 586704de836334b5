# SPDX-License-Identifier: BSD-3-Clause
"""Hosts that join and leave a fabric that is up, and accelerators that its policy judges."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from nupa.accel.ualink import Pod
from nupa.base.errors import FabricError, LocalError, RemoteError
from nupa.fabric import Fabric
from nupa.fabric.tenants.onboarding import (
    add_host,
    admit,
    drain_host,
    fail_host,
    processes,
    remove_host,
)
from nupa.fabric.tenants.policy import policy_of, set_policy
from nupa.topology.admission import Admission, AdmissionRule
from nupa.topology.file import load
from nupa.topology.tenants import MemberConfig, PartitionConfig, TenantConfig
from nupa.topology.topology import HostConfig, SwitchConfig, Topology, star
from nupa.verbs import Context


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """Two tenants of two hosts; host4 and host5 are absent."""
    with Fabric(topology=load("tenants")) as fabric:
        yield fabric


def steps(fabric: Fabric, after: int) -> list[tuple[str, str]]:
    """The events since then without those of ports, whose order is the switch's."""
    events = fabric.events.read(after)
    return [(e.kind, e.text) for e in events if not e.kind.startswith("port.")]


def port_of(fabric: Fabric, host: str) -> str:
    return fabric.ports[fabric.host(host).port].state


def test_a_topology_makes_tenants_partitions_and_free_places(fabric: Fabric) -> None:
    assert [tenant.name for tenant in fabric.tenants] == ["red", "blue"]
    assert fabric.tenants.get("red").quotas.pool_bytes == 1 << 30
    hosts = [fabric.host(host.name) for host in fabric.hosts]
    assert [host.tenant for host in hosts] == ["red"] * 2 + ["blue"] * 2 + [None] * 2
    assert [host.pkeys for host in hosts[:4]] == [[0x8011]] * 2 + [[0x8012]] * 2
    assert [host.control_state for host in hosts] == ["ready"] * 4 + ["absent"] * 2
    assert [port_of(fabric, host.name) for host in hosts] == ["ACTIVE"] * 4 + ["DOWN"] * 2


def test_members_of_a_topology_have_what_it_says() -> None:
    members = (
        MemberConfig("host", "host0", "limited", 1000, keep_default=True),
        MemberConfig("accelerator", "7"),
        MemberConfig("device", "tag"),
    )
    topology = Topology(
        "t",
        (SwitchConfig("s", 2),),
        (HostConfig("host0", "s"), HostConfig("host1", "s")),
        tenants=(TenantConfig("empty", 5000),),
        partitions=(PartitionConfig("p", "", 0x21, members, 3, 9000, "vpod"),),
    )
    with Fabric(topology=topology) as fabric:
        found = fabric.partitions.get("p")
        assert (found.pkey, found.service_level, found.rate, found.kind) == (0x21, 3, 9000, "vpod")
        assert [(m.kind, m.name, m.membership) for m in found.members] == [
            ("host", "host0", "limited"),
            ("accelerator", "7", "full"),
            ("device", "tag", "full"),
        ]
        assert fabric.host("host0").pkeys == [0xFFFF, 0x0021]
        assert fabric.tenants.get("empty").rate == 5000


def test_a_fabric_that_cannot_be_declared_is_not_left_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LocalError("no")

    monkeypatch.setattr("nupa.fabric.tenants.declared.declare", fail)
    with pytest.raises(LocalError, match="no"):
        Fabric.create("lab", load("tenants"))
    assert list(folder.iterdir()) == []


def test_a_host_joins_by_the_policy_and_each_step_is_an_event(fabric: Fabric) -> None:
    before = fabric.events.last
    verdict = add_host(fabric, "host4", {"vendor": "acme"})
    assert (verdict.admitted, verdict.why) == (True, "rule wide-enough")
    host = fabric.host("host4")
    assert (host.control_state, host.tenant, host.pkeys) == ("ready", "blue", [0x8012])
    assert port_of(fabric, "host4") == "ACTIVE"
    assert steps(fabric, before) == [
        ("host.state", "host host4 is onboarding"),
        ("admission.granted", "host host4: rule wide-enough"),
        ("tenant.assigned", "host host4 is given to tenant blue"),
        ("member.added", "host host4 is a full member of partition blue-data"),
        ("host.state", "host host4 is ready"),
    ]
    with Context(fabric=fabric, host="host4"):
        assert processes(fabric, host) == 1


def test_a_host_that_is_refused_is_failed_until_it_is_added_again(fabric: Fabric) -> None:
    strict = Admission((AdmissionRule("gen6", require=(("min_speed", "64000"),)),))
    before = fabric.events.last
    with pytest.raises(LocalError, match="rule gen6: speed is 32000, min_speed = 64000 is re") as e:
        add_host(fabric, "host4", policy=strict)
    assert e.value.errno == errno.EACCES
    assert [kind for kind, _ in steps(fabric, before)] == [
        "host.state",
        "admission.refused",
        "host.state",
    ]
    assert fabric.host("host4").control_state == "failed"
    assert port_of(fabric, "host4") == "DOWN"
    with pytest.raises(LocalError, match="was not admitted: `nupa events` says why") as refused:
        Context(fabric=fabric, host="host4")
    assert refused.value.errno == errno.EHOSTDOWN
    add_host(fabric, "host4")
    Context(fabric=fabric, host="host4").close()


def test_a_host_that_says_other_things_than_its_port_is_refused(fabric: Fabric) -> None:
    with pytest.raises(LocalError, match="says that its width is 16, and its port has 4"):
        add_host(fabric, "host4", {"width": "16"})
    assert add_host(fabric, "host4", {"width": "4", "link_layer": "ethernet"}).admitted


def test_an_absent_host_takes_no_process_and_the_message_names_the_remedy(fabric: Fabric) -> None:
    with pytest.raises(LocalError, match="host4 of fabric tenants is absent: `nupa host add host4"):
        Context(fabric=fabric, host="host4")


def test_a_host_of_no_tenant_is_in_the_default_partition_when_it_is_back() -> None:
    with Fabric(topology=star(2, spare=1)) as fabric:
        add_host(fabric, "host2")
        assert fabric.host("host2").pkeys == [0xFFFF]
        remove_host(fabric, "host2")
        assert fabric.host("host2").pkeys == []
        add_host(fabric, 2)
        assert fabric.host("host2").pkeys == [0xFFFF]


def test_removal_leaves_tenant_and_partitions_and_takes_the_port_down(fabric: Fabric) -> None:
    remove_host(fabric, "host0")
    host = fabric.host("host0")
    assert (host.control_state, host.tenant, host.pkeys) == ("absent", None, [])
    assert port_of(fabric, "host0") == "DOWN"
    assert [member.name for member in fabric.partitions.get("red-data").members] == ["host1"]
    with pytest.raises(LocalError, match="host0 of fabric tenants is absent") as e:
        remove_host(fabric, "host0")
    assert e.value.errno == errno.EALREADY


def test_a_host_that_is_given_up_is_failed_with_the_reason(fabric: Fabric) -> None:
    before = fabric.events.last
    fail_host(fabric, "host1", "two memory errors a minute")
    assert fabric.host("host1").control_state == "failed"
    assert fabric.host("host1").pkeys == []
    assert ("host.failed", "two memory errors a minute") in steps(fabric, before)


def test_a_ready_host_is_not_added_and_an_absent_one_does_not_drain(fabric: Fabric) -> None:
    with pytest.raises(LocalError, match="host0 of fabric tenants is ready") as e:
        add_host(fabric, "host0")
    assert e.value.errno == errno.EALREADY
    with pytest.raises(LocalError, match="host4 of fabric tenants is absent: only a host that is"):
        drain_host(fabric, "host4")
    with pytest.raises(LocalError, match="has no host 'host9'"):
        add_host(fabric, "host9")


def test_a_draining_host_keeps_its_processes_and_takes_no_new_one(fabric: Fabric) -> None:
    with Context(fabric=fabric, host="host0") as there:
        assert drain_host(fabric, "host0") == 1
        assert there.query_port(1).state == 4
        with pytest.raises(RemoteError, match="still has 1 process after 0 s") as e:
            drain_host(fabric, "host0", wait=True, timeout=0)
        assert e.value.errno == errno.ETIMEDOUT
        waiting = Thread(target=drain_host, args=(fabric, "host0"), kwargs={"wait": True})
        waiting.start()
    waiting.join(30)
    assert not waiting.is_alive()
    with pytest.raises(LocalError, match="is draining and takes no new process"):
        Context(fabric=fabric, host="host0")
    assert add_host(fabric, "host0").why == "it was draining"
    assert fabric.host("host0").pkeys == [0x8011]


def test_a_program_is_put_on_a_host_that_is_ready(folder: Path) -> None:
    assert folder.exists()
    with Fabric.create("default", star(2)) as fabric:
        fabric.set_host_state("host0", "draining")
        leased, host = Fabric.lease(None, None, lambda: star(2))
        leased.close()
        assert host.name == "host1"
        with pytest.raises(LocalError, match="host0 of fabric default is draining") as e:
            Fabric.lease(None, "host0", lambda: star(2))
        assert e.value.errno == errno.EHOSTDOWN
        fabric.set_host_state("host1", "absent")
        with pytest.raises(LocalError, match="host0 of fabric default is draining"):
            Fabric.lease(None, None, lambda: star(2))
    Fabric.remove("default")


def test_the_policy_is_kept_beside_a_named_fabric_and_goes_with_it(folder: Path) -> None:
    Fabric.create("lab", load("tenants")).close()
    with Fabric.open("lab") as fabric:
        assert policy_of(fabric) == load("tenants").admission
        other = Admission((AdmissionRule("x", vendor=("a", "b")),), "refuse")
        set_policy(fabric, other)
        assert policy_of(fabric) == other
        (path,) = folder.glob(".nupa-*-lab.admission")
        assert os.stat(path).st_mode & 0o777 == 0o600  # noqa: PTH116
        path.write_text('{"version": 1, "policy": {"rules": 7}}')
        with pytest.raises(FabricError, match=r"`rm .*` removes the policy"):
            policy_of(fabric)
    Fabric.remove("lab")
    assert list(folder.iterdir()) == []


def test_a_fabric_without_a_policy_admits_all(folder: Path) -> None:
    assert folder.exists()
    with Fabric.create("lab", star(1, spare=1)) as fabric:
        assert policy_of(fabric) == Admission()
        assert add_host(fabric, "host1").admitted
    Fabric.remove("lab")


def test_accelerators_are_judged_and_their_virtual_pods_are_partitions() -> None:
    policy = Admission(
        (
            AdmissionRule(
                "generation",
                ("accelerator",),
                require=(("generation", "UALink200G"),),
                partitions=("training",),
            ),
        ),
        "refuse",
    )
    with Fabric(hosts=1) as fabric:
        training = fabric.partitions.add("training", kind="vpod")
        set_policy(fabric, policy)
        pod = Pod(controller=fabric.accelerators)
        new, old = {"generation": "UALink200G"}, {"generation": "UALink128G"}
        memories = [bytearray(64) for _ in range(3)]
        one, two = (pod.attach(n, memories[n], identity=new) for n in (0, 1))
        with pytest.raises(LocalError, match="accelerator 2 is refused: rule generation"):
            pod.attach(2, memories[2], identity=old)
        window = one.window(two)
        window.write(0, b"inside")
        training.leave("accelerator:1")
        with pytest.raises(RemoteError, match="no such accelerator"):
            window.write(0, b"outside")
        assert memories[1][:7] == b"inside\0"
        other = fabric.partitions.add("inference", kind="vpod")
        other.join("accelerator:1")
        assert [fabric.accelerators.vpod(n) for n in range(3)] == ["training", "inference", None]
        pod.detach(1)
        texts = [e.text for e in fabric.events.read() if e.kind == "accelerator.state"]
        assert texts == [
            *("accelerator 0 is onboarding", "accelerator 0 is ready"),
            *("accelerator 1 is onboarding", "accelerator 1 is ready"),
            *("accelerator 2 is onboarding", "accelerator 2 is failed"),
            "accelerator 1 is absent",
        ]


def test_limited_accelerators_reach_full_ones_only() -> None:
    with Fabric(hosts=1) as fabric:
        pod = fabric.partitions.add("pod", kind="vpod")
        for number in range(1, 6):
            fabric.accelerators.admit(number, {})
        for number, membership in ((1, "full"), (2, "limited"), (3, "limited")):
            pod.join(f"accelerator:{number}", membership)
        reaches = fabric.accelerators.reaches
        assert reaches(1, 2)
        assert reaches(2, 1)
        assert not reaches(2, 3)
        assert reaches(2, 2)
        assert not reaches(1, 4)
        assert reaches(4, 5)


def test_a_device_joins_the_partitions_of_its_rule(fabric: Fabric) -> None:
    rule = AdmissionRule("drives", ("device",), ("pool-*",), tenant="red", partitions=("red-data",))
    assert admit(fabric, "device", "pool-1", {}, Admission((rule,), "refuse")).admitted
    members = fabric.partitions.get("red-data").members
    assert ("device", "pool-1") in [(member.kind, member.name) for member in members]
    with pytest.raises(LocalError, match="device other is refused: no rule is about"):
        admit(fabric, "device", "other", {}, Admission((rule,), "refuse"))
