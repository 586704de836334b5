# SPDX-License-Identifier: BSD-3-Clause
"""RDMA resources of a fabric: all of them in JSON, queue pairs and regions as tables on request."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nupa.cli import main
from nupa.fabric import Fabric
from nupa.topology.topology import star
from nupa.verbs import CQ, PD, SRQ, Context, SrqAttr, SrqInitAttr
from nupa.verbs import cm_enums as ce
from nupa.verbs import enums as e
from nupa.verbs.cmid import CMID, AddrInfo, CMEventChannel

OURS = {"pid": os.getpid(), "comm": Path("/proc/self/comm").read_text().strip()}


@pytest.fixture
def fabric(folder: Path) -> Iterator[Fabric]:  # noqa: ARG001
    """A fabric, `lab`, of two hosts, in a folder of its own."""
    with Fabric.create("lab", star(2)) as fabric:
        yield fabric
    Fabric.remove("lab")


def subset(row: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def test_a_queue_pair_is_listed_with_its_type_state_partner_and_mover(
    fabric: Fabric, make_pair: Callable[..., Any]
) -> None:
    pair = make_pair(e.IBV_QPT_RC)
    found = {row["number"]: row for row in fabric.show()["qps"]}
    assert found.keys() == {pair.a.qp.qp_num, pair.b.qp.qp_num}
    for end, peer, host in [(pair.a, pair.b, "host0"), (pair.b, pair.a, "host1")]:
        partner = {"host": {"host0": "host1", "host1": "host0"}[host], "qpn": peer.qp.qp_num}
        wanted = {"host": host, "type": "RC", "state": "RTS", "partner": partner | OURS, **OURS}
        assert subset(found[end.qp.qp_num], wanted) == wanted


def test_a_queue_pair_without_a_partner_has_none(
    fabric: Fabric, make_end: Callable[..., Any]
) -> None:
    end = make_end(0, e.IBV_QPT_UD)
    (row,) = fabric.show()["qps"]
    wanted = {"number": end.qp.qp_num, "type": "UD", "state": "RTS", "partner": None, "mover": None}
    assert subset(row, wanted) == wanted


def test_a_region_is_listed_with_its_size_rights_and_movers(
    fabric: Fabric, make_end: Callable[..., Any]
) -> None:
    end = make_end(1, e.IBV_QPT_RC)
    (row,) = fabric.show()["mrs"]
    wanted = {
        "host": "host1",
        "key": end.mr.lkey,
        "iova": end.mr.buf,
        "length": end.mr.length,
        "window": False,
        **OURS,
    }
    assert subset(row, wanted) == wanted
    assert {"LOCAL_WRITE", "REMOTE_WRITE"} <= set(row["access"])
    assert row["movers"] in (("shared",), ("cma", "relay"))
    assert row["pd"] == fabric.show()["qps"][0]["pd"]


def test_all_other_resources_are_in_json_until_they_are_destroyed(
    fabric: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> dict[str, Any]:
        assert main(["show", "lab", "--json"]) == 0
        parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return parsed

    kinds = ("contexts", "pds", "cqs", "srqs", "cm_ids", "qps", "mrs")
    with Context(fabric=fabric, host=0) as ctx:
        pd, cq = PD(ctx), CQ(ctx, 77)
        srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=5)))
        channel = CMEventChannel()
        cm_id = CMID(channel, port_space=ce.RDMA_PS_TCP, context=ctx)
        cm_id.bind_addr(AddrInfo("10.0.0.1", None, "7471", None, ce.RDMA_PS_TCP, ce.RAI_PASSIVE))
        cm_id.listen()
        found = shown()
        assert {kind: len(found[kind]) for kind in kinds} == {
            **dict.fromkeys(kinds, 1),
            "pds": 2,  # the id has one of its own
            "qps": 0,
            "mrs": 0,
        }
        context = found["contexts"][0]["number"]
        (srq_row,) = found["srqs"]
        (pd_row,) = (row for row in found["pds"] if row["number"] == srq_row["pd"])
        wanted = {"context": context, "host": "host0", "users": 1, **OURS}
        assert subset(pd_row, wanted) == wanted
        assert srq_row["type"] == "BASIC"
        assert found["cqs"][0]["entries"] >= 77
        wanted = {"space": "TCP", "state": "LISTEN", "source": "10.0.0.1:7471"}
        assert subset(found["cm_ids"][0], {**wanted, "destination": None}) == {
            **wanted,
            "destination": None,
        }
        for made in (cm_id, channel, srq, cq, pd):
            made.close()
    assert not any(shown()[kind] for kind in kinds)


def test_tables_of_queue_pairs_and_regions_are_printed_on_request(
    fabric: Fabric,  # noqa: ARG001
    make_pair: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = make_pair(e.IBV_QPT_RC)
    program = f"{OURS['comm']} (pid {OURS['pid']})"

    def lines(*options: str) -> list[str]:
        assert main(["show", "lab", *options]) == 0
        return capsys.readouterr().out.splitlines()

    qps = [line for line in lines("--qps") if line.startswith(f"{pair.a.qp.qp_num:#08x}  host0")]
    assert len(qps) == 1
    assert qps[0].count(program) == 2
    assert f"RC    RTS    {pair.b.qp.qp_num:#08x} on host1, {program}" in qps[0]
    mrs = [line for line in lines("--mrs") if line.startswith(f"{pair.b.mr.lkey:#010x}  host")]
    assert mrs
    assert any(f"host1  {program}" in line and "remote_write" in line for line in mrs)
    assert not any("PARTNER" in line or "KEY" in line for line in lines())


def test_a_program_by_a_name_with_control_characters_does_not_reach_the_terminal(
    fabric: Fabric, make_end: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    comm = Path("/proc/self/comm")
    before = comm.read_bytes()
    comm.write_bytes(b"bad\x1b[2J")
    try:
        make_end(0, e.IBV_QPT_RC)
        assert main(["show", fabric.name, "--qps", "--mrs"]) == 0
        assert main(["down", fabric.name]) == 1
    finally:
        comm.write_bytes(before.rstrip())
    said = capsys.readouterr()
    assert "bad?[2J (pid " in said.out
    assert "bad?[2J (pid " in said.err
    assert "\x1b" not in said.out + said.err


def test_without_any_the_tables_say_so(
    fabric: Fabric,  # noqa: ARG001
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["show", "lab", "--qps", "--mrs"]) == 0
    output = capsys.readouterr().out
    assert "no queue pairs\n\nno memory regions" in output
