# SPDX-License-Identifier: BSD-3-Clause
"""opensm: a subnet set up, partitions, its queries, and a standby that takes over."""

from __future__ import annotations

import re
import signal

from nupa.programs.pair import free_port
from tests.ecosystem.lab import Lab
from tests.programs.needs import needs

from .subnet import TOPOLOGY, UP_S, Subnet, guid

PARTITIONS = (
    "Default=0x7fff, defmember=full : ALL, SELF=full;",
    f"Blue=0x12, defmember=full : {guid(0)}, {guid(2)};",
    f"Red=0x13, defmember=full : {guid(1)}=limited, {guid(3)};",
)
BLUE, RED, RED_LIMITED = 0x8012, 0x8013, 0x0013
#: Standbys ask the master every 200 ms, and give it up after two questions.
IMPATIENT = "sminfo_polling_timeout 200\npolling_retry_number 2\n"


def test_opensm_brings_the_subnet_up_and_sets_its_partitions(subnet: Subnet) -> None:
    with subnet.opensm(1, "-o", partitions=PARTITIONS) as manager:
        outcome = manager.wait(UP_S).check()
    assert "SUBNET UP" in outcome.stdout
    assert "ERR" not in outcome.stdout
    tables = {host["name"]: host["pkeys"] for host in subnet.lab.show()["hosts"]}
    assert tables == {
        "host0": [0xFFFF, BLUE],
        "host1": [0xFFFF, RED_LIMITED],
        "host2": [0xFFFF, BLUE],
        "host3": [0xFFFF, RED],
    }
    read = subnet.diag(0, "smpquery", "pkeys", "4")
    assert read.splitlines()[0].split()[1:4] == ["0xffff", "0x8013", "0x0000"]
    assert "128 pkeys capacity" in read
    # All that a program can ask says who the manager is, and which LIDs there are.
    asked = subnet.lab.must(subnet.on(3, needs("ibv_devinfo", "ibverbs-utils"), "-v"))
    assert re.search(r"sm_lid:\s+2$", asked, re.MULTILINE)
    assert re.search(r"port_lid:\s+4$", asked, re.MULTILINE)
    file = "/sys/class/infiniband/nupa_rdma0/ports/1/sm_lid"
    assert subnet.lab.must(subnet.on(3, "cat", file)) == "0x2\n"


def write_bw(subnet: Subnet, hosts: tuple[str, str], index: int) -> bool:
    """Runs perftest with that index of the P_Key tables of both hosts; whether it succeeded."""
    port = free_port()
    command = [needs("ib_write_bw", "perftest"), "-n", "5", "-p", str(port)]
    command += [f"--pkey_index={index}", "-u", "8"]
    pair = subnet.lab.pair(command, [*command, "localhost"], port=port, hosts=hosts)
    result = pair.run()
    return result.server.ok and result.client.ok


def test_perftest_works_inside_a_partition_and_fails_across(subnet: Subnet) -> None:
    subnet.settle(PARTITIONS)
    assert write_bw(subnet, ("host0", "host2"), 1)
    assert write_bw(subnet, ("host1", "host3"), 1)
    assert write_bw(subnet, ("host0", "host1"), 0)
    assert not write_bw(subnet, ("host0", "host1"), 1)


def test_records_of_a_running_manager_are_read(subnet: Subnet) -> None:
    with subnet.opensm(0) as manager:
        manager.wait_said("SUBNET UP", UP_S)
        assert "SMINFO_MASTER" in subnet.diag(3, "sminfo")
        nodes = subnet.diag(3, "saquery", "-N")
        assert nodes.count("NodeRecord dump") == 6
        assert "host2 nupa_rdma0" in nodes
        assert subnet.diag(2, "saquery", "-p").count("PathRecord dump") >= 16
        errors = subnet.try_diag(0, "ibqueryerrors")  # asks for paths
        assert "10 ports checked, 0 ports have errors" in errors.stdout + errors.stderr
        assert "IsSM" in subnet.diag(1, "smpquery", "portinfo", "1")
        manager.signal(signal.SIGTERM)
        manager.wait(UP_S)
    # issm0 is closed with its process: the host has no manager.
    assert "IsSM" not in subnet.diag(1, "smpquery", "portinfo", "1")


def test_answers_longer_than_a_queue_of_sockets_arrive_whole(lab: Lab) -> None:
    """23 KiB and more by RMPP; the reader's first buffer is too short for them."""
    topology = lab.build / "large.toml"
    topology.write_text(
        TOPOLOGY.replace("ports = 4", "ports = 16")
        .replace("count = 2", "count = 10")
        .replace("first = 2", "first = 10")
        .replace("ports = [3, 3]", "ports = [16, 16]")
    )
    lab.nupa("up", "--topology", str(topology))
    subnet = Subnet(lab)
    with subnet.opensm(0) as manager:
        manager.wait_said("SUBNET UP", UP_S)
        assert subnet.diag(19, "saquery", "-p").count("PathRecord dump") >= 400
    lab.nupa("down")


def test_a_standby_takes_over_from_a_manager_that_was_killed(subnet: Subnet) -> None:
    with subnet.opensm(0, "-p", "9", config=IMPATIENT) as master:
        master.wait_said("SUBNET UP", UP_S)
        with subnet.opensm(3, "-p", "3", config=IMPATIENT) as standby:
            standby.wait_said("Entering STANDBY state", UP_S)
            master.kill("is to be missed")
            standby.wait_said("Entering MASTER state", UP_S)
            standby.wait_said("SUBNET UP", UP_S)
            assert "sm lid 4" in subnet.diag(1, "sminfo")


def test_one_host_has_one_manager(subnet: Subnet) -> None:
    with subnet.opensm(0) as first:
        first.wait_said("SUBNET UP", UP_S)
        opened = subnet.lab.run(
            subnet.on(0, "sh", "-c", "exec 3<>/dev/infiniband/issm0"),
        )
        assert not opened.ok
        assert "busy" in opened.stderr.lower()
