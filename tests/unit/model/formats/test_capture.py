# SPDX-License-Identifier: BSD-3-Clause
"""Captures as work: two files of the kernel's rxe, and what is no capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from nupa.model.engine.replay import network_for, replay
from nupa.model.errors import ModelError
from nupa.model.formats.read import read

DATA = Path(__file__).parents[3] / "data"


@pytest.mark.parametrize(("name", "addresses"), [("rxe_any.pcap", 2), ("rxe_eth0.pcap", 4)])
def test_a_capture_of_another_implementation_is_replayed(name: str, addresses: int) -> None:
    schedule = read(str(DATA / name))
    assert schedule.ranks == addresses
    assert schedule.messages > 5
    assert {"send", "write", "read"} <= {step.operation for step in schedule.steps}
    found = replay(schedule, network_for(schedule, "ib-hdr"))
    assert 0 < found.answer.time_ns < schedule.recorded_ns


def test_what_is_no_capture_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    path.write_bytes(b"no capture at all, but long enough to have a header")
    with pytest.raises(ModelError, match=str(path)):
        read(str(path))
    with pytest.raises(ModelError, match="No such file"):
        read(str(tmp_path / "y.pcapng"))
    with pytest.raises(ModelError, match=r"\.et or \.goal, is read"):
        read(str(tmp_path / "y.txt"))
