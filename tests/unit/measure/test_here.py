# SPDX-License-Identifier: BSD-3-Clause
"""The profile that `nupa model calibrate` writes, read back by the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from nupa.measure.here import Here, write
from nupa.model.engine.costs import Costs
from nupa.model.engine.replay import network_for
from nupa.model.errors import ModelError
from nupa.model.profile.profile import load, own_folder
from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import Schedule

FIGURES = {
    "rate": 10e9,
    "mtu": 65536.0,
    "packet_copy": 0.0,
    "post": 20.0,
    "completion": 100.0,
    "polled": 110.0,
    "receive": 30.0,
    "respond": 15.0,
    "message_rate": 50e6,
    "copied": 1.0,
}
SCHEDULE = Schedule("s", 2, [RankOperation(0, 1, 8, "write")], mover="shared")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    load.cache_clear()
    return tmp_path


def test_figures_have_their_units(home: Path) -> None:
    path = write(Here("shared", FIGURES), own_folder())
    assert path == home / "nupa" / "profiles" / "here-shared.toml"
    profile = load("here-shared")
    assert {name: profile[name] for name in FIGURES} == FIGURES


def test_here_is_the_mover_that_was_recorded(home: Path) -> None:
    write(Here("shared", FIGURES), own_folder())
    network = network_for(SCHEDULE, "here")
    costs = Costs(network)
    write_cost = costs.of(0, 1, "write", 1000)
    # The program copies: 20 ns and 1,000 B at 10 GB/s; the target sees it 100 ns later.
    assert (write_cost.post, write_cost.tail) == pytest.approx((120, 100))
    assert costs.of(0, 1, "read", 1000).post == pytest.approx(20 + 15 + 100)
    assert home


def test_a_machine_that_is_not_calibrated_says_so(home: Path) -> None:
    assert home
    with pytest.raises(ModelError, match=r"here-shared.*`nupa model calibrate` measures"):
        network_for(SCHEDULE, "here")
