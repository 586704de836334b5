# SPDX-License-Identifier: BSD-3-Clause
"""The profile that `nupa model calibrate` writes, read back by the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from nupa.measure.here import SIZES, Here, write
from nupa.model.engine.costs import Costs
from nupa.model.engine.replay import network_for
from nupa.model.engine.timeline import Timeline
from nupa.model.errors import ModelError
from nupa.model.network.text import parse
from nupa.model.profile.profile import load, own_folder
from nupa.model.study.question import predict
from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import Schedule

FIGURES = {
    "rate": 10e9,
    "mtu": 65536.0,
    "post": 20.0,
    "completion": 100.0,
    "polled": 110.0,
    "receive": 30.0,
    "respond": 15.0,
    "message_rate": 50e6,
}
#: A copy at 10 B/ns, by the poster; the target sees it 100 ns later, or takes it from a ring.
MOVES = {
    "write": [120 + size / 10 for size in SIZES],
    "write post": [20 + size / 10 for size in SIZES],
    "write back": [0.0 for _ in SIZES],
    "write stream": [20 + size / 10 for size in SIZES],
    "send": [150 + size / 5 for size in SIZES],
    "send post": [20 + size / 10 for size in SIZES],
    "send back": [130 + size / 10 for size in SIZES],
    "send stream": [40 + size / 5 for size in SIZES],
    "read": [35 + size / 10 for size in SIZES],
    "read post": [35 + size / 10 for size in SIZES],
    "read back": [0.0 for _ in SIZES],
    "read stream": [35 + size / 10 for size in SIZES],
}
HERE = Here("here-shared", "this machine", FIGURES, MOVES)
SCHEDULE = Schedule("s", 2, [RankOperation(0, 1, 8, "write")], mover="shared")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    load.cache_clear()
    return tmp_path


def test_figures_and_moves_have_their_units(home: Path) -> None:
    path = write(HERE, own_folder())
    assert path == home / "nupa" / "profiles" / "here-shared.toml"
    profile = load("here-shared")
    assert {name: profile[name] for name in FIGURES} == FIGURES
    assert profile.tables["moves"].rows["write"][0] == pytest.approx(120.8)


def test_the_netdev_is_a_network_of_sends(home: Path) -> None:
    figures = {"rate": 2e9, "mtu": 65240.0, "header": 54.0, "software": 25_000.0}
    write(Here("here-netdev", "TCP", figures, operations=("send",)), own_folder())
    assert home
    assert load("here-netdev").envelope.operations == ("send",)
    assert parse("here-netdev").levels[0].profile["software"] == 25_000


def test_here_is_the_mover_that_was_recorded(home: Path) -> None:
    write(HERE, own_folder())
    network = network_for(SCHEDULE, "here")
    costs = Costs(network)
    write_cost = costs.of(0, 1, "write", 1000)
    assert (write_cost.post, write_cost.flight) == pytest.approx((120, 220))
    # The post has completed it: 100 ns before the target sees it.
    assert write_cost.flight + write_cost.back == pytest.approx(write_cost.post)
    assert costs.of(0, 1, "read", 1000).post == pytest.approx(135)
    send_cost = costs.of(0, 1, "send", 2000)
    assert (send_cost.post, send_cost.flight) == pytest.approx((220, 550))
    assert send_cost.back == pytest.approx(0)
    assert home


def test_a_ping_pong_takes_what_was_measured_and_what_the_program_computes(home: Path) -> None:
    write(HERE, own_folder())
    steps: list[RankOperation] = []
    for index in range(20):
        rank = index % 2
        after = (2 * index - 1,) if index else ()
        steps.append(RankOperation(rank, rank, 0, "compute", after, 30))
        steps.append(RankOperation(rank, 1 - rank, 1000, "write", (2 * index,)))
    schedule = Schedule("s", 2, steps, mover="shared")
    timeline = Timeline(schedule, network_for(schedule, "here"))
    timeline.run()
    assert max(timeline.arrived) == pytest.approx(20 * (30 + 220))
    assert home


def test_a_stream_takes_what_many_messages_take(home: Path) -> None:
    write(HERE, own_folder())
    steps = [RankOperation(0, 1, 4096, "send") for _ in range(100)]
    schedule = Schedule("s", 2, steps, mover="shared")
    timeline = Timeline(schedule, network_for(schedule, "here"))
    timeline.run()
    assert timeline.end_ns == pytest.approx(99 * (40 + 4096 / 5) + 150 + 4096 / 5)
    assert home


def test_a_machine_that_is_not_calibrated_says_so(home: Path) -> None:
    assert home
    with pytest.raises(ModelError, match=r"here-shared.*`nupa model calibrate` measures"):
        network_for(SCHEDULE, "here")


def test_here_is_a_stated_mover_or_warns_that_it_was_not_measured(home: Path) -> None:
    assert home
    answer = predict("write:8", "here")
    assert any("`nupa model calibrate`" in warning for warning in answer.warnings)
    write(HERE, own_folder())
    answer = predict("write:8", "here")
    assert answer.network == "here-shared"
    assert answer.time_ns == pytest.approx(MOVES["write"][0])
    # The measured time of a message has its bytes.
    assert predict(f"send:{SIZES[4]}", "here").time_ns == pytest.approx(MOVES["send"][4])
    assert not any("`nupa model calibrate`" in warning for warning in answer.warnings)
