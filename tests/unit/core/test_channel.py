# SPDX-License-Identifier: BSD-3-Clause
"""nupa.core.channel: open channels, as the segment has them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from nupa.core.channel import Channel, channels
from nupa.core.mover import Mover
from nupa.fabric import Fabric
from nupa.verbs import Context


def test_there_is_no_channel_before_the_first_contact(fabric: Fabric) -> None:
    with Context(fabric=fabric, host=0), Context(fabric=fabric, host=1):
        assert len(fabric.processes()) == 2
        assert channels(fabric) == []


@pytest.mark.parametrize("forced", [None, Mover.LOCAL, Mover.RELAY], ids=str)
def test_each_direction_has_a_channel_with_its_mover(
    fabric: Fabric, make_pair: Callable[..., Any], forced: Mover | None
) -> None:
    pair = make_pair(mover=forced)
    a, b = pair.a.ctx.slot, pair.b.ctx.slot
    mover = forced or Mover.LOCAL
    pid = os.getpid()
    assert sorted(channels(fabric)) == sorted(
        [
            Channel(a, b, mover, "host0", pid, "host1", pid),
            Channel(b, a, mover, "host1", pid, "host0", pid),
        ]
    )


def test_show_has_the_same_channels(fabric: Fabric, make_pair: Callable[..., Any]) -> None:
    make_pair()
    assert fabric.show()["movers"] == [
        {
            "from": {"host": channel.from_host, "pid": channel.from_pid},
            "to": {"host": channel.to_host, "pid": channel.to_pid},
            "mover": str(channel.mover),
        }
        for channel in channels(fabric)
    ]
    assert len(fabric.show()["movers"]) == 2


def test_a_channel_goes_with_its_end(fabric: Fabric, make_pair: Callable[..., Any]) -> None:
    pair = make_pair()
    pair.b.ctx.close()
    assert channels(fabric) == []
