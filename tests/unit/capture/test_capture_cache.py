# SPDX-License-Identifier: BSD-3-Clause
"""Level cache in files: lines, objects, filters, traces; replays take no notice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nupa.capture.filter import Filter
from nupa.capture.lines import lines, objects
from nupa.capture.live import Live
from nupa.capture.loop import Capture
from nupa.capture.sinks import FileSink
from nupa.capture.view import View
from nupa.diagram.draw.diagram import read_diagram
from nupa.diagram.find.index import read_index
from nupa.fabric import Fabric
from nupa.packet.pcapng.reader import Reader
from nupa.packet.tables.record import Level
from nupa.replay import replay
from tests.unit.capture.watched import send
from tests.unit.conftest import Pair

FIELDS = (
    *("kind", "cache_opcode", "line", "qid", "peer_index", "direction", "host"),
    *("before", "after", "peer_before", "peer_after"),
)


@pytest.fixture
def file(fabric: Fabric, pair: Pair, tmp_path: Path) -> Path:
    """A capture of one SEND, as `nupa capture --level cache,transport -w` makes it."""
    path = tmp_path / "x.pcapng"
    read_fd, write_fd = os.pipe()
    with Live(fabric, ["any"], ["cache", "transport"]) as live:
        capture = Capture(FileSink(str(path), interfaces=live.interfaces))
        send(pair, 20)
        os.write(write_fd, b"\0")
        capture.from_fabric(live, read_fd)
        capture.close()
    os.close(read_fd)
    os.close(write_fd)
    return path


def views(file: Path) -> View:
    with Reader(file) as reader:
        [batch] = reader.batches()
    return View(batch)


def test_a_line_says_the_states_of_both_caches(file: Path) -> None:
    told = [line.split(" ", 1)[1] for line in lines(views(file)) if " message " in line]
    at = told[0].split()[4]
    number = told[0].split(" transfer ")[1]
    assert told[0] == (f"host0/1 Out RdOwn message {at} id 0x0 I>I, host 1 I>I transfer {number}")
    assert told[5] == (
        f"host0/1 Out RspSFwdM message {at} id 0x0 M>S, host 1 I>I transfer {number}"
    )
    assert told[8] == f"host1/1 In  H2D Data message {at} id 0x0 S>S, host 0 S>S transfer {number}"


def test_an_object_has_every_field_and_filters_find_them(file: Path) -> None:
    view = views(file)
    found = [entry for entry in objects(view) if entry["level"] == "cache"]
    assert len(found) == 18
    assert {name: found[5][name] for name in FIELDS} == {
        "kind": "cxl_cache",
        "cache_opcode": "RspSFwdM",
        "line": "message",
        "qid": 0,
        "peer_index": 1,
        "before": "M",
        "after": "S",
        "peer_before": "I",
        "peer_after": "I",
        "direction": "outbound",
        "host": "host0",
    }
    assert found[6]["length"] == 64
    assert found[0]["address"] == found[8]["address"]
    for text, hits in (
        ("level == cache", 18),
        ("cache_opcode == rdown", 2),
        ("kind == cxl_cache and before == m and after == s", 2),
        ("cache_opcode in (h2d_data, d2h_data) and host == host0", 3),
        ("line == head", 0),
    ):
        assert len(Filter(text).matches(view)) == hits, text


def test_a_trace_draws_the_line_between_the_hosts_and_the_pool(file: Path) -> None:
    index = read_index(file)
    [transfer] = index.transfers
    assert (transfer.what, transfer.counts[Level.CACHE]) == ("SEND 20 B", 18)
    diagram = read_diagram(index, transfer, everything=True)
    assert [actor.kind for actor in diagram.actors] == ["port", "pool", "port"]
    assert diagram.actors[1].lines == ("pool", "CXL.cache")
    rows = [(row.source, row.target, row.label) for row in diagram.rows if row.level == "cache"]
    assert rows[:9] == [
        (0, 1, "RdOwn"),
        (1, 0, "GO"),
        (1, 0, "H2D Data 64 B"),
        (2, 1, "RdShared"),
        (1, 0, "SnpData"),
        (0, 1, "RspSFwdM"),
        (0, 1, "D2H Data 64 B"),
        (1, 2, "GO"),
        (1, 2, "H2D Data 64 B"),
    ]
    detail = next(row.detail for row in diagram.rows if row.label == "RspSFwdM")
    assert detail.endswith(", message, M to S")


def test_a_replay_takes_no_notice(file: Path) -> None:
    report = replay(file)
    assert report.packets == 18 + 2
    assert report.left_out == {"of NUPA's link type: TLPs, CXL messages, queue entries": 18}
    report.raise_for_differences()
