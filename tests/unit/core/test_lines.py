# SPDX-License-Identifier: BSD-3-Clause
"""Requests of CXL.cache, derived from lines of rings, against those that a capture shows."""

from __future__ import annotations

import json
import tempfile
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.cli import main
from nupa.core.lines import NAMES, Lines, requests, written
from nupa.core.watch import Watch
from nupa.fabric import Fabric
from nupa.packet.tables import cxl_cache as cache_tables
from nupa.topology.topology import star
from tests.unit.capture.watched import rest, send
from tests.unit.conftest import Pair

counts = st.integers(0, 1 << 48)


def send_all(pair: Pair, times: int) -> None:
    for _ in range(times):
        send(pair, 20)


def shown(watch: Watch) -> dict[str, dict[int, Counter[str]]]:
    """Counts requests and snoops in a capture, by kind of line and by host."""
    found = {line: {0: Counter[str](), 1: Counter[str]()} for line in ("message", "head")}
    for packet in rest(watch):
        front = cache_tables.CXL_CACHE.decode(packet.data, 24)
        layout = cache_tables.MESSAGES[cache_tables.CacheChannel(front["channel"])]
        opcode = layout.decode(packet.data, 40).get("opcode", 0)
        name = cache_tables.name_of(front["channel"], opcode)
        found[cache_tables.LINES[front["line"]]][packet.host][name] += name in NAMES
    return found


def test_before_any_message_there_is_nothing() -> None:
    with Fabric(hosts=3) as fabric:
        assert list(written(fabric._segment)) == []
        assert fabric.cache_requests() == {host: dict.fromkeys(NAMES, 0) for host in range(3)}


def test_a_lap_is_counted_as_a_capture_shows_it(fabric: Fabric, pair: Pair) -> None:
    with Watch(fabric, ("cache",)) as watch:
        send_all(pair, 30)
        found = shown(watch)["message"]
    for host, by_name in fabric.cache_requests().items():
        assert by_name == {name: found[host][name] for name in NAMES}
    assert found[0]["RdOwn"] == 30


def test_later_laps_are_counted_as_a_capture_shows_them(fabric: Fabric, pair: Pair) -> None:
    lines = {0: Counter[str](), 1: Counter[str]()}
    heads = {0: Counter[str](), 1: Counter[str]()}
    with Watch(fabric, ("cache",)) as watch:
        for _ in range(6):
            send_all(pair, 400)
            found = shown(watch)
            for host in (0, 1):
                lines[host] += found["message"][host]
                heads[host] += found["head"][host]
        assert watch.counts.lost == 0
    [there] = [one for one in written(fabric._segment) if one.host == 0]
    # Lines more than that say that the ring grew; it does where the machine is fast.
    assert there.first <= 1024
    assert there.first + there.again >= 2400
    assert there.looks > 0
    assert (lines[0]["RdOwn"], lines[0]["RdOwnNoData"]) == (there.first, there.again)
    for host, derived in fabric.cache_requests().items():
        for name in NAMES:  # heads: at the least
            found_here = lines[host][name] + heads[host][name]
            assert lines[host][name] <= derived[name] <= found_here, (host, name)


@given(st.lists(st.builds(Lines, st.integers(0, 3), st.integers(0, 3), counts, counts, counts)))
def test_every_request_has_its_snoop(found: list[Lines]) -> None:
    by_host = requests(4, found)
    totals = {name: sum(one[name] for one in by_host) for name in NAMES}
    crossing = [one for one in found if one.host != one.peer]
    assert totals["RdShared"] == totals["SnpData"] == totals["RdOwn"] + totals["RdOwnNoData"]
    assert totals["SnpInv"] == totals["RdOwnNoData"]
    assert totals["RdShared"] == sum(one.first + one.again + one.looks for one in crossing)


def test_show_prints_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="nupa-test-", dir="/dev/shm") as folder:
        monkeypatch.setenv("NUPA_DIR", folder)
        with Fabric.create("default", star(2)) as fabric:
            assert main(["show", "--counters"]) == 0
            table = capsys.readouterr().out.split("\n\n")[-1].splitlines()
            assert table[0].split() == ["FAST", "CHANNEL", *NAMES]
            assert [line.split()[0] for line in table[1:]] == ["host0", "host1"]
            assert main(["show"]) == 0
            assert "FAST CHANNEL" not in capsys.readouterr().out
            assert main(["show", "--json"]) == 0
            hosts = json.loads(capsys.readouterr().out)["hosts"]
            assert hosts[1]["cache_requests"] == fabric.cache_requests()[1]
        Fabric.remove("default")
