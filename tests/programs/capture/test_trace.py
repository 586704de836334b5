# SPDX-License-Identifier: BSD-3-Clause
"""`nupa trace` of what real programs did, captured at all levels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from nupa.programs.pair import ProgramPair, free_port
from tests.programs.stage import DEADLINE_S, Stage

HOSTS = [("host0", "host1"), ("host0", "host0")]


def captured(stage: Stage, file: Path, command: list[str], hosts: tuple[str, str]) -> None:
    """Runs both ends of *command*, and captures all that the fabric does meanwhile."""
    port = free_port()
    server = [*command, "-p", str(port)]
    options = ("--capture", str(file), "--capture-level", "tlp,queue,transport,net")
    pair = ProgramPair(
        stage.nupa("run", "--host", hosts[0], *options, "--", *server),
        stage.nupa_run([*server, "localhost"], hosts[1]),
        env=stage.env,
        port=port,
        deadline_s=DEADLINE_S,
    )
    pair.run().check()


def traced(stage: Stage, *options: str) -> Any:
    outcome = stage.run(stage.nupa("trace", *options, "--json")).check()
    return json.loads(outcome.stdout)


@pytest.mark.parametrize("hosts", HOSTS, ids=["apart", "loopback"])
def test_a_ping_pong_goes_from_wqe_to_doorbell_to_packets_to_ack_to_cqe(
    stage: Stage, tmp_path: Path, hosts: tuple[str, str]
) -> None:
    file = tmp_path / "x.pcapng"
    captured(stage, file, ["ibv_rc_pingpong", "-g", "1", "-n", "5"], hosts)
    transfers = traced(stage, str(file))["transfers"]
    assert [one["what"] for one in transfers] == ["SEND 4 KiB"] * 10
    assert {one["source"]["host"] for one in transfers} == set(hosts)
    # The third: its end is not cut off by the end of the program.
    drawn = traced(stage, str(file), "--number", "3")
    labels = [row["label"] for row in drawn["rows"]]
    packets = [label for label in labels if label.startswith("RC SEND")]
    assert [label.split(" PSN")[0] for label in packets] == [
        "RC SEND First",
        "RC SEND Middle × 2",
        "RC SEND Last",
    ]
    order = ["WQE SEND 4 KiB", "doorbell SQ 2", packets[0], packets[2]]
    order.append(next(label for label in labels if label.startswith("ACK PSN")))
    places = [labels.index(label) for label in order]
    places.append(max(i for i, label in enumerate(labels) if label == "CQE SUCCESS"))
    assert places == sorted(places)
    assert {row["level"] for row in drawn["rows"]} == {"queue", "tlp", "transport"}
    kinds = [actor["kind"] for actor in drawn["actors"]]
    assert kinds == ["program", "port", "port", "program"]


def test_a_lost_packet_shows_as_lost_and_sent_again(stage: Stage, tmp_path: Path) -> None:
    file, picture = tmp_path / "x.pcapng", tmp_path / "x.svg"
    assert stage.run(stage.nupa("up")).ok
    try:
        fault = stage.nupa("fault", "host0", "add", "drop", "--after", "4", "--count", "1")
        assert stage.run(fault).ok
        captured(stage, file, ["ibv_rc_pingpong", "-g", "1", "-n", "20"], HOSTS[0])
    finally:
        assert stage.run(stage.nupa("down")).ok
    # An acknowledgement that rides along is lost with what carries it: two transfers then.
    hit = traced(stage, str(file), "--only", "dropped")["transfers"]
    numbers = [str(one["number"]) for one in hit if {"retry", "dropped"} <= set(one["flags"])]
    assert numbers, hit
    number = numbers[0]
    rows = traced(stage, str(file), "--number", number)["rows"]
    lost = next(i for i, row in enumerate(rows) if row["dropped"])
    again = [i for i, row in enumerate(rows) if row["retry"]]
    assert again
    assert lost < again[0]
    assert any(row["gap_ns"] for row in rows)
    stage.ok("trace", str(file), "--number", number, "--svg", str(picture))
    shown = [text.text for text in ElementTree.parse(picture).iter() if text.tag.endswith("text")]
    assert rows[lost]["label"] in shown
