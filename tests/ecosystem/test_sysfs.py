# SPDX-License-Identifier: BSD-3-Clause
"""The device's place in sysfs, as hwloc, UCX, NCCL and monitors find it, and its nominal rate."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from nupa.programs.pair import NUPA
from tests.programs.needs import needs

from .lab import DEADLINE_S, Lab

PCI = "/sys/devices/pci4e55:00/4e55:00:00.0"
CLASS = "/sys/class/infiniband/nupa_rdma0"
PORT = f"{CLASS}/ports/1"


def read(fabric: Lab, *paths: str) -> list[str]:
    return fabric.must(fabric.on("host0", "cat", *paths)).splitlines()


def devinfo(fabric: Lab) -> tuple[str, dict[str, str]]:
    """Returns all that ibv_devinfo prints, and its lines `name: value`."""
    output = fabric.must(fabric.on("host0", needs("ibv_devinfo", "ibverbs-utils"), "-v"))
    return output, dict(re.findall(r"^\s*(\S.*?):\s+(\S.*?)\s*$", output, re.MULTILINE))


def test_the_pci_device_has_the_identity_that_ibv_devinfo_prints(fabric: Lab) -> None:
    _, said = devinfo(fabric)
    vendor, part = int(said["vendor_id"], 16), int(said["vendor_part_id"])
    device = f"{CLASS}/device"
    names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
    values = read(fabric, *(f"{device}/{name}" for name in names))
    assert [int(value, 16) for value in values] == [vendor, part, vendor, part]
    uevent = dict(line.split("=") for line in read(fabric, f"{device}/uevent"))
    assert uevent["PCI_ID"] == f"{vendor:04X}:{part:04X}"
    assert uevent["PCI_SLOT_NAME"] == PCI.rpartition("/")[2]
    (pci_class,) = read(fabric, f"{device}/class")
    assert int(uevent["PCI_CLASS"], 16) == int(pci_class, 16) == 0x020000  # Ethernet


@pytest.mark.parametrize("fabric", ["infiniband"], indirect=True)
def test_the_pci_device_of_an_infiniband_port_is_of_that_class(fabric: Lab) -> None:
    assert read(fabric, f"{CLASS}/device/class") == ["0x020700"]


def test_the_device_is_found_from_the_class_the_bus_and_the_driver(fabric: Lab) -> None:
    ways = {
        f"{CLASS}/device": PCI,
        "/sys/class/infiniband_verbs/uverbs0/device": PCI,
        "/sys/class/infiniband_mad/umad0/device": PCI,
        "/sys/class/net/nupa_net0/device": PCI,
        "/sys/bus/pci/devices/4e55:00:00.0": PCI,
        # The way of NCCL (src/graph/xml.cc): from a bus number to a path.
        "/sys/class/pci_bus/4e55:00/../../4e55:00:00.0": PCI,
        f"{CLASS}/device/driver": "/sys/bus/pci/drivers/nupa",
        # By its name NCCL tells a PCI device from a virtual one.
        f"{CLASS}/device/subsystem": "/sys/bus/pci",
        f"{CLASS}/subsystem": "/sys/class/infiniband",
        f"{CLASS}/device/net/nupa_net0": f"{PCI}/net/nupa_net0",
    }
    assert fabric.must(fabric.on(None, "realpath", *ways)).splitlines() == list(ways.values())
    # ibdev2netdev and others take the name of the device from the link itself.
    links = fabric.must(fabric.on(None, "readlink", CLASS, f"{CLASS}/device")).splitlines()
    assert links == [
        "../../devices/pci4e55:00/4e55:00:00.0/infiniband/nupa_rdma0",
        "../../../4e55:00:00.0",
    ]


def test_the_cpus_of_the_device_are_all_that_are_online(fabric: Lab) -> None:
    node, mask, cpus = read(
        fabric, *(f"{CLASS}/device/{name}" for name in ("numa_node", "local_cpus", "local_cpulist"))
    )
    assert int(node) == -1
    assert cpus == Path("/sys/devices/system/cpu/online").read_text().strip()
    assert int(mask.replace(",", ""), 16).bit_count() == os.sysconf("SC_NPROCESSORS_ONLN")


def test_hwloc_shows_the_device_with_its_guid_and_addresses(fabric: Lab) -> None:
    lstopo = needs("lstopo-no-graphics", "hwloc-nox")
    output = fabric.must(fabric.on("host1", lstopo, "-v", "--of", "console"))
    (line,) = (line for line in output.splitlines() if "nupa_rdma0" in line)
    assert "OpenFabrics" in line
    assert "NodeGUID=0000:0aff:fe00:0002" in line
    assert "Port1State=4" in line
    assert "Port1GID1=0000:0000:0000:0000:0000:ffff:0a00:0002" in line


def test_ucx_knows_where_in_the_system_the_device_is(fabric: Lab) -> None:
    output = fabric.must(fabric.on(None, needs("ucx_info", "ucx-utils"), "-d"))
    places = re.findall(r"Device: nupa_rdma0:1\n.*\n#\s+System device: (.*)", output)
    assert places
    assert set(places) == {"nupa_rdma0 (0)"}


def test_a_path_relative_to_the_root_folder_finds_the_device_and_others_do_not(
    fabric: Lab,
) -> None:
    program = f"""
import json
import os
for folder in ("/", "/usr"):
    fd = os.open(folder, os.O_RDONLY)
    try:
        print(len(os.readlink("{CLASS[1:]}", dir_fd=fd)), os.stat("{PORT[1:]}/state", dir_fd=fd))
    except FileNotFoundError as error:
        print("not", folder)
"""
    first, second = fabric.must(fabric.on(None, sys.executable, "-c", program)).splitlines()
    assert "st_size=10" in first
    assert second == "not /usr"


@pytest.mark.parametrize(
    "path",
    [
        f"{PORT}/state",
        f"{PCI}/infiniband/nupa_rdma0/ports/1/state",
        f"{CLASS}/device/infiniband/nupa_rdma0/device/infiniband/nupa_rdma0/ports/1/state",
        f"{PORT}/../1//state",
    ],
)
def test_the_state_of_now_is_read_by_each_path_that_leads_to_it(fabric: Lab, path: str) -> None:
    script = f"cat {PORT}/state; {' '.join(NUPA)} port host0 down; cat {path}"
    output = fabric.must(fabric.on("host0", "sh", "-c", script)).splitlines()
    assert [line for line in output if re.match(r"\d: ", line)] == ["4: ACTIVE", "1: DOWN"]


# --- rate ---------------------------------------------------------------------------------

RATES = {  # speed and lanes of the link: the file `rate`, and its Gb/s
    ("Gen5", 4): ("100 Gb/sec (4X EDR)", 100),
    ("Gen6", 8): ("400 Gb/sec (8X HDR)", 400),
    (2500, 1): ("2.5 Gb/sec (1X SDR)", 2.5),
    ("Gen4", 16): ("168 Gb/sec (12X FDR)", 168),
}


@pytest.mark.parametrize(("link", "said"), RATES.items(), ids=str)
def test_the_nominal_rate_is_the_same_wherever_it_is_shown(
    lab: Lab, link: tuple[str | int, int], said: tuple[str, float]
) -> None:
    topology = lab.build / "topology.toml"
    topology.write_text(
        f"[link]\nspeed = {link[0]!r}\nwidth = {link[1]}\n"
        '[[switch]]\nname = "s"\nports = 8\n[[host]]\nname = "host"\ncount = 2\nswitch = "s"\n'
    )
    text, gbps = said
    lab.nupa("up", "--topology", str(topology))
    try:
        rate, speed = read(lab, f"{PORT}/rate", "/sys/class/net/nupa_net0/speed")
        assert (rate, int(speed)) == (text, gbps * 1000)
        ibstat = lab.must(lab.on("host0", needs("ibstat", "infiniband-diags")))
        assert f"Rate: {int(gbps)}" in ibstat
        _, info = devinfo(lab)
        lanes, lane = info["active_width"].split("X")[0], info["active_speed"].split()[0]
        assert int(lanes) * float(lane) == gbps
        assert {port["nominal_gbps"] for port in lab.show()["ports"]} == {gbps}
        assert f" x{link[1]}, {gbps:g} Gb/s" in lab.nupa("show")
    finally:
        lab.nupa("down")


# --- ibv_devinfo --------------------------------------------------------------------------


@pytest.mark.parametrize("fabric", ["ethernet", "infiniband"], indirect=True)
def test_ibv_devinfo_prints_nothing_that_an_adapter_would_not(fabric: Lab) -> None:
    output, said = devinfo(fabric)
    assert not re.search(r"invalid|unknown \(|UNKNOWN|\(null\)", output)
    # Flags newer than the tool: FLUSH and ATOMIC_WRITE, which soft-RoCE has, too.
    assert set(re.findall(r"Unknown flags: (\w+)", output)) <= {"0xC0", "0x14000000000"}
    assert int(said["local_ca_ack_delay"]) > 0
    infiniband = said["link_layer"] == "InfiniBand"
    for name in ("sm_lid", "port_lid", "subnet_timeout"):
        assert (int(said[name]) > 0) == infiniband, name


# --- counters -----------------------------------------------------------------------------

# A member of a group, which waits for five datagrams, and their sender.
MEMBER = """
import os, sys
from nupa.verbs import *
from nupa.verbs import enums as e
group = GID("ff0e:0000:0000:0000:0000:0000:0000:4e55")
with Context(name="nupa_rdma0") as ctx:
    pd, cq = PD(ctx), CQ(ctx, 32)
    mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
    attr = QPAttr()
    attr.qkey = 1
    cap = QPCap(16, 16, 1, 1)
    qp = QP(pd, QPInitAttr(e.IBV_QPT_UD, scq=cq, rcq=cq, cap=cap, sq_sig_all=1), attr)
    if sys.argv[1] == "receive":
        for _ in range(5):
            qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf, 1024, mr.lkey)]))
        qp.attach_mcast(group, 0)
        print("ready", flush=True)
    else:
        route = GlobalRoute(dgid=group, sgid_index=1, hop_limit=1)
        for _ in range(5):
            wr = SendWR(num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)])
            wr.set_wr_ud(AH(pd, attr=AHAttr(is_global=1, port_num=1, gr=route)), 0xffffff, 1)
            qp.post_send(wr)
    cq.wait(5, 20.0)
"""


def counters_of(fabric: Lab, host: str, folder: str) -> dict[str, int]:
    lines = fabric.must(fabric.on(host, "grep", "-r", ".", f"{PORT}/{folder}")).splitlines()
    return {name.rpartition("/")[2]: int(n) for name, n in (line.split(":") for line in lines)}


def test_multicast_and_unicast_are_counted_apart_and_add_up(fabric: Lab) -> None:
    with fabric.start(fabric.on("host1", sys.executable, "-c", MEMBER, "receive")) as member:
        member.wait_said("ready", DEADLINE_S)
        fabric.must(fabric.on("host0", sys.executable, "-c", MEMBER, "send"))
        member.wait(DEADLINE_S).check()
    for host, way in [("host0", "xmit"), ("host1", "rcv")]:
        counters = counters_of(fabric, host, "counters")
        multicast = counters[f"multicast_{way}_packets"]
        assert multicast == 5
        assert counters[f"unicast_{way}_packets"] + multicast == counters[f"port_{way}_packets"]
    assert "multicast" not in fabric.nupa("show")  # it is no error


#: Names of soft-RoCE's counters, but for those of each single call.
SOFT_ROCE = {
    *("sent_pkts", "rcvd_pkts", "duplicate_request", "out_of_seq_request", "rcvd_rnr_err"),
    *("send_rnr_err", "rcvd_seq_err", "retry_exceeded_err", "retry_rnr_exceeded_err"),
    *("completer_retry_err", "send_err", "link_downed"),
}

#: Those that wires count, by names of mlx5, bnxt_re and efa: tests/wire/test_shown.py.
OF_WIRES = {
    *("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rx_icrc_encapsulated"),
    *("rx_roce_errors", "rx_roce_discards", "tx_roce_errors", "retrans_pkts"),
}


def test_the_counters_of_soft_roce_are_there_by_their_names(fabric: Lab) -> None:
    needs("ibv_rc_pingpong", "ibverbs-utils")
    fabric.run_pair(["ibv_rc_pingpong", "-g", "1", "-n", "300"])
    hw = counters_of(fabric, "host0", "hw_counters")
    assert set(hw) >= SOFT_ROCE | OF_WIRES
    assert {hw[name] for name in OF_WIRES} == {0}
    port = counters_of(fabric, "host0", "counters")
    assert hw["sent_pkts"] == port["port_xmit_packets"] >= 300
    assert hw["rcvd_pkts"] == port["port_rcv_packets"] >= 300


# --- resources ----------------------------------------------------------------------------

HOLDER = """
import time
from nupa.verbs import *
from nupa.verbs import enums as e
with Context(name="nupa_rdma0") as ctx:
    pd, cq = PD(ctx), CQ(ctx, 32)
    mr = MR(pd, 5000, e.IBV_ACCESS_LOCAL_WRITE)
    cap = QPCap(16, 16, 1, 1)
    rc = QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))
    ud = QP(pd, QPInitAttr(e.IBV_QPT_UD, scq=cq, rcq=cq, cap=cap))
    print("ready", flush=True)
    time.sleep(60)
"""


def test_nupa_show_lists_what_rdma_res_lists(fabric: Lab) -> None:
    rdma = needs("rdma", "iproute2")
    with fabric.start(fabric.on("host0", sys.executable, "-c", HOLDER)) as holder:
        holder.wait_said("ready", DEADLINE_S)
        found = {
            kind: json.loads(fabric.must(fabric.on("host0", rdma, "-j", "res", "show", kind)))
            for kind in ("qp", "mr", "pd", "cq")
        }
        shown = fabric.show()
    assert len(found["qp"]) == 2
    for name, ours, theirs in [
        ("qp", "number", "lqpn"),
        ("qp", "type", "type"),
        ("qp", "state", "state"),
        ("qp", "pid", "pid"),
        ("mr", "number", "mrn"),
        ("mr", "length", "mrlen"),
        ("mr", "pd", "pdn"),
        ("pd", "number", "pdn"),
        ("pd", "users", "users"),
        ("cq", "number", "cqn"),
        ("cq", "entries", "cqe"),
    ]:
        assert [row[ours] for row in shown[f"{name}s"]] == [row[theirs] for row in found[name]]
