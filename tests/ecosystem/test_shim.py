# SPDX-License-Identifier: BSD-3-Clause
"""The path shim: what programs read of their device in /sys and /dev, and what they may not see."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

import pytest

from nupa.programs.pair import NUPA
from tests.programs.needs import needs

from .lab import Lab

SOURCES = Path(__file__).with_name("c")
PCI = "/sys/devices/pci4e55:00/4e55:00:00.0"
DEVICE = "/sys/class/infiniband/nupa_rdma0"
PORT = f"{DEVICE}/ports/1"


def read(fabric: Lab, *paths: str, host: str = "host0") -> list[str]:
    return fabric.must(fabric.on(host, "cat", *paths)).splitlines()


def ways(fabric: Lab, argv: list[str]) -> dict[str, str]:
    return dict(line.split() for line in fabric.must(argv).splitlines())


def test_every_call_of_libc_that_takes_a_path_finds_the_device(fabric: Lab) -> None:
    program = fabric.compile(SOURCES / "every_way.c")
    device = f"{PCI}/infiniband/nupa_rdma0"  # as in sysfs, the class has links
    found = ways(fabric, fabric.on(None, program, device, f"{device}/node_type"))
    assert len(found) > 40
    assert {way: how for way, how in found.items() if how != "yes"} == {}


def test_other_paths_are_what_they_are_without_the_shim(fabric: Lab, tmp_path: Path) -> None:
    program = fabric.compile(SOURCES / "every_way.c")
    there = tmp_path / "there"
    there.write_text("x")
    for folder, file in [
        (str(tmp_path), str(there)),
        (str(tmp_path), str(tmp_path / "missing")),
        ("/sys/class/infiniband-like", "/sys/class/infiniband-like/x"),
        ("/sys/class/net", "/sys/class/net/nupa_net00"),
        ("/dev", "/dev/infinibandit"),
    ]:
        without = ways(fabric, [program, folder, file])
        assert ways(fabric, fabric.on(None, program, folder, file)) == without, file


def test_it_works_before_main_in_signal_handlers_threads_and_children(fabric: Lab) -> None:
    program = fabric.compile(SOURCES / "odd_moments.c", "-pthread")
    assert fabric.must(fabric.on(None, program)).splitlines() == [
        "constructor 1: CA",
        "main 1: CA",
        "signals 0 misread",
        "threads 0 misread",
        "fork 4: ACTIVE",
        "exec 1: CA",
    ]


def test_shell_scripts_find_list_and_enter_the_folders(fabric: Lab) -> None:
    script = f"""
    set -e
    ls /sys/class/infiniband /dev/infiniband
    cat /sys/class/infiniband/*/ports/1/gids/[123]
    find /sys/class/infiniband -name link_layer  # the class has links, which it does not follow
    find /sys/class/infiniband/nupa_rdma0/ -name link_layer
    realpath {PORT}/../1/rate
    cd {PORT} && cat gid_attrs/types/[12] gid_attrs/ndevs/2 && pwd -P
    test -c /dev/infiniband/uverbs0
    """
    assert fabric.must(fabric.on("host1", "sh", "-c", script)).splitlines() == [
        "/dev/infiniband:",
        "umad0",
        "uverbs0",
        "",
        "/sys/class/infiniband:",
        "nupa_rdma0",
        "0000:0000:0000:0000:0000:ffff:0a00:0002",
        "fd4e:5550:4100:0000:0000:0000:0000:0002",
        "0000:0000:0000:0000:0000:0000:0000:0000",
        f"{PORT}/link_layer",
        f"{PCI}/infiniband/nupa_rdma0/ports/1/rate",
        "RoCE v2",
        "RoCE v2",
        "nupa_net0",
        f"{PCI}/infiniband/nupa_rdma0/ports/1",
    ]


def test_each_host_reads_its_own_address(fabric: Lab) -> None:
    guids = {
        host: read(fabric, f"{DEVICE}/node_guid", "/sys/class/net/nupa_net0/address", host=host)
        for host in ("host0", "host1", "host2")
    }
    assert len({guid for guid, _ in guids.values()}) == 3
    macs = {host["name"]: host["mac"] for host in fabric.show()["hosts"]}
    assert {host: mac for host, (_, mac) in guids.items()} == {host: macs[host] for host in guids}


@pytest.mark.parametrize("fabric", ["infiniband"], indirect=True)
def test_a_port_that_is_infiniband_has_a_lid_and_no_netdev(fabric: Lab) -> None:
    assert read(fabric, f"{PORT}/link_layer", f"{PORT}/lid", host="host2") == ["InfiniBand", "0x3"]
    missing = f"{PORT}/gid_attrs/ndevs/0"
    outcome = fabric.run(fabric.on(None, "cat", missing))
    assert (outcome.returncode, "No such file" in outcome.stderr) == (1, True)


@pytest.mark.parametrize("which", ["state", "phys_state"])
def test_the_state_of_the_port_is_that_of_now(fabric: Lab, which: str) -> None:
    # One program that stays: what it read before must not be what it reads after.
    nupa = " ".join(NUPA)
    path = f"{PORT}/{which}"
    script = f"cat {path}; {nupa} port host0 down; cat {path}; {nupa} port host0 up; cat {path}"
    up, down = {"state": ("4: ACTIVE", "1: DOWN"), "phys_state": ("5: LinkUp", "3: Disabled")}[
        which
    ]
    output = fabric.must(fabric.on("host0", "sh", "-c", script)).splitlines()
    assert [line for line in output if re.match(r"\d: ", line)] == [up, down, up]


def test_the_counters_are_those_of_nupa_show(fabric: Lab) -> None:
    needs("ibv_rc_pingpong", "ibverbs-utils")
    fabric.run_pair(["ibv_rc_pingpong", "-g", "1", "-n", "300"])
    shown = {port["name"]: port["counters"] for port in fabric.show()["ports"]}
    for host in fabric.show()["hosts"]:
        counters = shown[host["port"]]
        values = read(fabric, *(f"{PORT}/counters/{name}" for name in counters), host=host["name"])
        assert dict(zip(counters, map(int, values), strict=True)) == counters
    assert shown["host0/1"]["port_xmit_packets"] >= 300


# A datagram for which no receive is posted, from a host to itself.
LOST_DATAGRAM = """
from nupa.fabric import Fabric
from nupa.verbs import *
from nupa.verbs import enums as e
with Context(name="nupa_rdma0") as ctx, Fabric.open() as fabric:
    pd, cq = PD(ctx), CQ(ctx, 8)
    attr = QPAttr()
    attr.qkey = 1
    cap = QPCap(1, 1, 1, 1)
    qp = QP(pd, QPInitAttr(e.IBV_QPT_UD, scq=cq, rcq=cq, cap=cap, sq_sig_all=1), attr)
    route = GlobalRoute(dgid=ctx.query_gid(1, 1), sgid_index=1)
    wr = SendWR(1)
    wr.set_wr_ud(AH(pd, attr=AHAttr(is_global=1, port_num=1, gr=route)), qp.qp_num, 1)
    qp.post_send(wr)
    cq.wait(1, 10.0)
    while not fabric.hw_counters()[1]["rx_no_receive"]:
        pass
"""


def test_errors_and_faults_are_those_of_nupa_show(fabric: Lab) -> None:
    fabric.must(fabric.on("host1", sys.executable, "-c", LOST_DATAGRAM))
    for host in fabric.show()["hosts"]:
        wanted = host["hw_counters"]
        values = read(fabric, *(f"{PORT}/hw_counters/{name}" for name in wanted), host=host["name"])
        assert dict(zip(wanted, map(int, values), strict=True)) == wanted
        assert wanted["rx_no_receive"] == (host["name"] == "host1")


def test_a_folder_that_is_searched_has_the_counters_of_now(fabric: Lab) -> None:
    needs("ibv_rc_pingpong", "ibverbs-utils")
    search = fabric.on("host0", "grep", "-r", ".", f"{PORT}/counters")
    before = fabric.must(search)
    fabric.run_pair(["ibv_rc_pingpong", "-g", "1", "-n", "300"])
    after = fabric.must(search)
    wanted = re.search(r"port_xmit_packets:(\d+)", after)
    assert f"{PORT}/counters/port_xmit_packets:0" in before
    assert wanted
    assert int(wanted[1]) >= 300


def test_the_files_go_with_the_fabric(lab: Lab) -> None:
    lab.must(lab.on(None, "cat", f"{DEVICE}/node_type"))
    # The default fabric, made by `nupa run`, went with it.
    assert list(lab.folder.iterdir()) == []


def test_a_named_fabric_keeps_them_until_it_is_taken_down(fabric: Lab) -> None:
    read(fabric, f"{DEVICE}/node_type")
    trees = [entry for entry in fabric.folder.iterdir() if entry.is_dir()]
    assert [sorted(host.name for host in tree.iterdir()) for tree in trees] == [["host0"]]
    assert stat.S_IMODE(trees[0].stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")
def test_files_that_another_user_put_there_are_not_believed(fabric: Lab) -> None:
    planted = fabric.folder / f".nupa-{os.geteuid()}-default.files"
    file = planted / "host0" / PORT.lstrip("/") / "state"
    file.parent.mkdir(parents=True)
    file.write_text("7: PLANTED\n")
    for path in (planted, *planted.rglob("*")):
        os.chown(path, 65534, 65534)
    outcome = fabric.run(fabric.on("host0", "cat", f"{PORT}/state"))
    assert "PLANTED" not in outcome.stdout
    assert f"below {planted}, which belongs to user 65534" in outcome.stderr


def test_files_behind_a_link_are_not_believed(fabric: Lab, tmp_path: Path) -> None:
    file = tmp_path / "host0" / PORT.lstrip("/") / "state"
    file.parent.mkdir(parents=True)
    file.write_text("7: PLANTED\n")
    (tmp_path / "host0").chmod(0o700)
    planted = fabric.folder / f".nupa-{os.geteuid()}-default.files"
    planted.symlink_to(tmp_path)
    outcome = fabric.run(fabric.on("host0", "cat", f"{PORT}/state"))
    assert "PLANTED" not in outcome.stdout
    assert f"below {planted}, which belongs to user {os.geteuid()}" in outcome.stderr
    planted.unlink()


def test_without_a_fabric_nothing_is_rewritten(lab: Lab) -> None:
    shim = Path(sys.modules["nupa"].__path__[0], "lib", "libnupa_shim.so")
    env = {"LD_PRELOAD": str(shim), "NUPA_FABRIC": "", "NUPA_HOST": ""}
    outcome = lab.run(["cat", "/sys/class/infiniband/nupa_rdma0/node_type"], env=env)
    assert "No such file or directory" in outcome.stderr
    assert "nupa:" not in outcome.stderr
