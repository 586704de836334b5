# SPDX-License-Identifier: BSD-3-Clause
"""Drops, repetitions and refusals of programs: counted per host, shown by `nupa show`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nupa.cli import main
from nupa.fabric import Fabric, LocalError
from nupa.fabric.counters import HW_NAMES
from nupa.topology.topology import star
from nupa.verbs import AH, AHAttr, GlobalRoute, SendWR
from nupa.verbs import enums as e

WAIT_S = 10.0


@pytest.fixture
def fabric(folder: Path) -> Iterator[Fabric]:  # noqa: ARG001
    """A fabric, `lab`, of two hosts, in a folder of its own."""
    with Fabric.create("lab", star(2)) as fabric:
        yield fabric
    Fabric.remove("lab")


def send_datagram(a: Any, b: Any, qkey: int | None = None) -> None:
    """Sends from end to end."""
    route = GlobalRoute(dgid=b.ctx.query_gid(1, 1), sgid_index=1)
    wr = SendWR(1, sg=[a.mr.sge(0, 8)])
    handle = AH(a.pd, attr=AHAttr(is_global=1, port_num=1, gr=route))
    wr.set_wr_ud(handle, b.qp.qp_num, b.QKEY if qkey is None else qkey)
    a.qp.post_send(wr)


def await_counter(fabric: Fabric, host: int, name: str, wanted: int) -> dict[str, int]:
    """Returns the counters of *host* that are not 0, once *name* is as *wanted*."""
    deadline = time.monotonic() + WAIT_S
    while (found := fabric.hw_counters()[host])[name] != wanted:
        assert time.monotonic() < deadline, found
    return {key: n for key, n in found.items() if n}


def test_each_counter_has_a_name_that_is_explained() -> None:
    with Fabric(hosts=2) as fabric:
        assert fabric.hw_counters() == {host: dict.fromkeys(HW_NAMES, 0) for host in (0, 1)}


def test_there_is_none_of_a_host_that_does_not_exist() -> None:
    with Fabric(hosts=2) as fabric, pytest.raises(LocalError, match="faults of host 2"):
        fabric._segment.hw_counters(2)


def test_datagrams_that_are_dropped_are_counted_at_the_receiver(
    fabric: Fabric, make_pair: Callable[..., Any]
) -> None:
    pair = make_pair(e.IBV_QPT_UD)
    send_datagram(pair.a, pair.b)
    assert await_counter(fabric, 1, "rx_no_receive", 1) == {"rx_no_receive": 1}
    send_datagram(pair.a, pair.b, qkey=1)
    both = {"rx_no_receive": 1, "qkey_violations": 1}
    assert await_counter(fabric, 1, "qkey_violations", 1) == both
    assert not any(fabric.hw_counters()[0].values())


def test_they_are_kept_when_nobody_is_attached_and_go_on_with_the_next(
    fabric: Fabric, make_pair: Callable[..., Any]
) -> None:
    for count in (1, 2):
        pair = make_pair(e.IBV_QPT_UD)
        send_datagram(pair.a, pair.b)
        await_counter(fabric, 1, "rx_no_receive", count)
        pair.a.ctx.close()
        pair.b.ctx.close()
        assert not fabric.processes()
        assert fabric.hw_counters()[1]["rx_no_receive"] == count


def test_show_lists_them_where_there_are_any(
    make_pair: Callable[..., Any], fabric: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "lab"]) == 0
    assert "ERRORS AND FAULTS" not in capsys.readouterr().out
    pair = make_pair(e.IBV_QPT_UD)
    send_datagram(pair.a, pair.b)
    await_counter(fabric, 1, "rx_no_receive", 1)
    assert main(["show", "lab"]) == 0
    rows = capsys.readouterr().out.split("ERRORS AND FAULTS")[1].splitlines()[1:]
    assert [row.split()[:3] for row in rows] == [["rx_no_receive", "host1", "1"]]
    assert rows[0].endswith(HW_NAMES["rx_no_receive"])
    assert main(["show", "lab", "--json"]) == 0
    hosts = json.loads(capsys.readouterr().out)["hosts"]
    assert [host["hw_counters"]["rx_no_receive"] for host in hosts] == [0, 1]
    assert set(hosts[0]["hw_counters"]) == set(HW_NAMES)
