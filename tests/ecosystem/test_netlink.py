# SPDX-License-Identifier: BSD-3-Clause
"""NETLINK_RDMA: iproute2's rdma, and plain sockets, below `nupa run`."""

from __future__ import annotations

import errno
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nupa.programs.pair import free_port
from tests.programs.needs import needs

from .lab import DEADLINE_S, Lab

ASKS = Path(__file__).with_name("netlink_asks.py")
LIBRARY = Path(__file__).parents[2] / "nupa" / "lib" / "libnupa_shim.so"
ROWS = list[dict[str, Any]]

# Writes what it has, as JSON, and keeps it until it is killed: pairs of QPs,
# connected if it is one pair.
HOLDS = """
import json, os, signal, sys
from nupa.verbs import *
from nupa.verbs import enums as e
pairs, said = int(sys.argv[1]), open(sys.argv[2], "w")
with Context(name="nupa_rdma0") as ctx:
    pd, cq = PD(ctx), CQ(ctx, 100)
    srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=8)))
    mr = MR(pd, 8192, e.IBV_ACCESS_LOCAL_WRITE)
    init = QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(1, 1, 1, 1))
    qps = [QP(pd, init, QPAttr()) for _ in range(2 * pairs)]
    shared = QP(pd, QPInitAttr(e.IBV_QPT_UC, scq=cq, rcq=cq, cap=QPCap(1, 0, 1, 0), srq=srq))
    for qp, peer in zip(qps, qps[1::2] + qps[::2]) if pairs == 1 else ():
        attr = QPAttr(port_num=1)
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = peer.qp_num, 11, 11
        attr.ah_attr = AHAttr(
            is_global=1, port_num=1, gr=GlobalRoute(dgid=ctx.query_gid(1, 1), sgid_index=1)
        )
        qp.to_rts(attr)
    json.dump({
        "pid": os.getpid(),
        "qps": [qp.qp_num for qp in qps] + [shared.qp_num],
        "states": [QP.query(qp, 0)[0].qp_state for qp in qps],
        "lkey": mr.lkey, "mrlen": mr.length, "cqe": cq.cqe,
    }, said)
    said.close()
    print("ready", flush=True)
    signal.pause()
"""


def rows(fabric: Lab, *arguments: str, host: str = "host0") -> ROWS:
    """Returns what `rdma -j ARGUMENTS` lists."""
    rdma = needs("rdma", "iproute2")
    found: ROWS = json.loads(fabric.must(fabric.on(host, rdma, "-j", *arguments)))
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s


def qps(fabric: Lab) -> ROWS:
    return sorted(rows(fabric, "res", "show", "qp"), key=lambda row: int(row["lqpn"]))


@contextmanager
def holding(fabric: Lab, pairs: int, host: str = "host0") -> Iterator[dict[str, Any]]:
    """Yields what a program on *host* says that it has, while it has it."""
    said = fabric.build / "held.json"
    with fabric.start(
        fabric.on(host, sys.executable, "-c", HOLDS, str(pairs), str(said))
    ) as program:
        program.wait_said("ready", 50.0)
        yield json.loads(said.read_text())


def test_rdma_link_dev_and_system_show_the_device(fabric: Lab) -> None:
    (link,) = rows(fabric, "link")
    assert (link["ifname"], link["port"], link["state"]) == ("nupa_rdma0", 1, "ACTIVE")
    assert link["physical_state"] == "LINK_UP"
    (device,) = rows(fabric, "dev", host="host1")
    path = "/sys/class/infiniband/nupa_rdma0"
    guid, firmware = fabric.must(
        fabric.on("host1", "cat", f"{path}/node_guid", f"{path}/fw_ver")
    ).split()
    assert (device["node_guid"], device["fw"], device["node_type"]) == (guid, firmware, "ca")
    system = fabric.must(fabric.on("host0", needs("rdma", "iproute2"), "system"))
    assert system.split() == ["netns", "shared", "copy-on-fork", "on"]


def test_a_port_that_is_down_is_down_for_rdma_link(fabric: Lab) -> None:
    fabric.nupa("port", "host1", "down")
    (link,) = rows(fabric, "link", host="host1")
    assert (link["state"], link["physical_state"]) == ("DOWN", "DISABLED")
    assert rows(fabric, "link")[0]["state"] == "ACTIVE"


@pytest.mark.parametrize("fabric", ["infiniband"], indirect=True)
def test_a_link_that_is_infiniband_has_a_lid(fabric: Lab) -> None:
    (link,) = rows(fabric, "-d", "link", host="host2")
    assert (link["lid"], link["sm_lid"], link["lmc"]) == (3, 1, 0)
    assert link["subnet_prefix"] == "fe80:0000:0000:0000"


def test_rdma_statistic_shows_the_counters_of_sysfs(fabric: Lab) -> None:
    (found,) = rows(fabric, "statistic")
    names = [name for name in found if name not in ("ifindex", "ifname", "port")]
    path = "/sys/class/infiniband/nupa_rdma0/ports/1/hw_counters/"
    values = fabric.must(fabric.on("host0", "cat", *(path + name for name in names))).split()
    assert [str(found[name]) for name in names] == values
    assert len(names) > 20
    assert rows(fabric, "statistic", "qp", "show") == []
    assert rows(fabric, "statistic", "qp", "mode")[0]["mode"] == "qp auto off"


def test_rdma_res_shows_what_a_program_on_the_host_has(fabric: Lab) -> None:
    with holding(fabric, 1) as held:
        (counts,) = rows(fabric, "res")
        assert {name: counts[name] for name in ("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq")} == {
            "pd": 1, "cq": 1, "qp": 3, "cm_id": 0, "mr": 1, "ctx": 1, "srq": 1,
        }  # fmt: skip
        one, other, shared = qps(fabric)
        assert [one["lqpn"], other["lqpn"], shared["lqpn"]] == held["qps"]
        assert [one["rqpn"], other["rqpn"]] == held["qps"][1::-1]
        assert (one["state"], one["type"], shared["state"]) == ("RTS", "RC", "RESET")
        assert (one["rq-psn"], one["sq-psn"], one["path-mig-state"]) == (11, 11, "MIGRATED")
        comm = Path(f"/proc/{held['pid']}/comm").read_text().strip()
        assert (one["pid"], one["comm"]) == (held["pid"], comm)
        (pd,) = rows(fabric, "res", "show", "pd")
        assert (pd["pdn"], pd["users"]) == (one["pdn"], 5)
        (mr,) = rows(fabric, "res", "show", "mr")
        assert (int(mr["lkey"], 16), mr["mrlen"], mr["pdn"]) == (
            held["lkey"], held["mrlen"], pd["pdn"],
        )  # fmt: skip
        (cq,) = rows(fabric, "res", "show", "cq")
        assert (cq["cqe"], cq["users"], cq["ctxn"]) == (held["cqe"], 6, pd["ctxn"])
        (context,) = rows(fabric, "res", "show", "ctx")
        assert (context["ctxn"], context["pid"]) == (pd["ctxn"], held["pid"])
        (srq,) = rows(fabric, "res", "show", "srq")
        assert (srq["type"], srq["pdn"], srq["lqpn"]) == ("BASIC", pd["pdn"], [str(held["qps"][2])])
        assert rows(fabric, "res", "show", "qp", host="host1") == []
    assert rows(fabric, "res", "show", "qp") == []


def test_rdma_res_shows_a_listener_and_both_ends_of_a_connection(fabric: Lab) -> None:
    rping, port = needs("rping", "rdmacm-utils"), str(free_port())
    with fabric.start(fabric.on("host0", rping, "-s", "-p", port, "-C", "1000000000")):
        wait_for(lambda: rows(fabric, "res", "show", "cm_id") != [])
        (listener,) = rows(fabric, "res", "show", "cm_id")
        assert (listener["state"], listener["ps"]) == ("LISTEN", "TCP")
        assert listener["src-addr"] == f"0.0.0.0:{port}"
        client = fabric.on("host1", rping, "-c", "-a", "10.0.0.1", "-p", port, "-C", "1000000000")
        with fabric.start(client):
            wait_for(lambda: len(qps(fabric)) == 1 and qps(fabric)[0]["state"] == "RTS")
            (qp,) = qps(fabric)
            (end,) = rows(fabric, "res", "show", "cm_id", host="host1")
            assert end["dst-addr"] == f"10.0.0.1:{port}"
            assert (end["state"], end["lqpn"], end["qp-type"]) == ("CONNECT", qp["rqpn"], "RC")
            both = rows(fabric, "res", "show", "cm_id")
            assert {each.get("lqpn") for each in both} == {None, qp["lqpn"]}
            assert {each["pid"] for each in both} == {listener["pid"]}


def test_filters_find_one_of_many_qps(fabric: Lab) -> None:
    with holding(fabric, 300) as held:
        assert [row["lqpn"] for row in qps(fabric)] == held["qps"]
        (one,) = rows(fabric, "res", "show", "qp", "lqpn", str(held["qps"][431]))
        assert (one["lqpn"], one["state"]) == (held["qps"][431], "INIT")
        assert len(rows(fabric, "res", "show", "qp", "pid", str(held["pid"]))) == 601
        # The last one is in RESET, so it has no port.
        assert len(rows(fabric, "res", "show", "qp", "link", "nupa_rdma0/1")) == 600


def test_what_would_change_the_device_is_refused(fabric: Lab) -> None:
    for arguments in (
        ("dev", "set", "nupa_rdma0", "name", "other"),
        ("link", "add", "rxe0", "type", "rxe", "netdev", "lo"),
        ("system", "set", "netns", "exclusive"),
    ):
        outcome = fabric.run(fabric.on("host0", needs("rdma", "iproute2"), *arguments))
        assert outcome.returncode != 0
        assert "Operation not supported" in outcome.stderr


@pytest.mark.parametrize(
    "way",
    [
        "names", "options", "waiting", "lengths", "errors", "descriptors", "threads", "overrun",
        "nonsense", "others",
    ],
)  # fmt: skip
def test_plain_sockets_ask_in_all_ways_of_netlink(fabric: Lab, way: str) -> None:
    fabric.must(fabric.on("host0", sys.executable, str(ASKS), way))


def test_a_fabric_that_is_gone_is_no_device(lab: Lab) -> None:
    script = f"import sys; sys.path.insert(0, {str(ASKS.parent)!r}); import netlink_asks as n; " + (
        "print(n.asked(n.rdma(), n.SYS_GET, 0))"
    )
    gone = {
        "LD_PRELOAD": str(LIBRARY),
        "NUPA_FABRIC": str(lab.folder / "gone"),
        "NUPA_HOST": "host0",
    }
    outcome = lab.run([sys.executable, "-c", script], env=gone).check()
    assert int(outcome.stdout) == errno.ENODEV
    assert f"no fabric at {lab.folder}/gone" in outcome.stderr


def test_without_a_fabric_the_socket_is_the_kernels(lab: Lab) -> None:
    script = "import socket; socket.socket(16, 3, 20)"
    bare = lab.run([sys.executable, "-c", script])
    preloaded = lab.run([sys.executable, "-c", script], env={"LD_PRELOAD": str(LIBRARY)})
    assert (preloaded.returncode, preloaded.stderr) == (bare.returncode, bare.stderr)
