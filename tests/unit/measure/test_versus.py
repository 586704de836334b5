# SPDX-License-Identifier: BSD-3-Clause
"""RDMA against TCP: where the jobs run, and what is said where they cannot."""

from __future__ import annotations

import sys

import pytest

from nupa.base.errors import LocalError
from nupa.measure import versus
from nupa.measure.versus import HostPair, NetworkError
from nupa.netdev import down as netdev_down
from nupa.netdev import up as netdev_up
from nupa.programs import fio
from nupa.programs.pair import NUPA, ProgramError

PLACE = HostPair("f", ("host0", "host1"), "10.0.0.1", mover="cma")
RDMA = fio.Job("rdma", 4096, 1, PLACE.address, ramp_s=0.1, seconds=0.1)
TCP = fio.Job("tcp", 4096, 1, PLACE.address, ramp_s=0.1, seconds=0.1)


class Netdev:
    """Stands in for `nupa.netdev`: what it was asked, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.missing = ""
        self.left: dict[str, str] = {}
        monkeypatch.setattr(netdev_up, "up", self._up)
        monkeypatch.setattr(netdev_down, "down", self._down)

    def _up(self, name: str, wish: netdev_up.Wish) -> None:
        assert wish == netdev_up.Wish()
        self.calls.append(f"up {name}")
        if self.missing:
            raise LocalError(self.missing)

    def _down(self, name: str) -> netdev_down.DownReport:
        self.calls.append(f"down {name}")
        return netdev_down.DownReport(name, ["host0"], "kept", self.left)


@pytest.fixture
def netdev(monkeypatch: pytest.MonkeyPatch) -> Netdev:
    return Netdev(monkeypatch)


def test_rdma_runs_on_the_hosts_and_tcp_in_their_namespaces() -> None:
    server, client = PLACE.command(RDMA, "server"), PLACE.command(TCP, "client")
    assert server[: len(NUPA) + 7] == [
        *NUPA,
        *("run", "--fabric", "f", "--host", "host0", "--mover", "cma"),
    ]
    assert client[: len(NUPA) + 6] == [*NUPA, "net", "exec", "--fabric", "f", "host1", "--"]
    assert (server[-4:], client[-4:]) == (RDMA.command("server"), TCP.command("client"))


def test_the_network_is_up_for_the_block_and_down_after_it_however_it_ends(netdev: Netdev) -> None:
    def interrupted() -> None:
        with versus.network("f"):
            assert netdev.calls == ["up f"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert netdev.calls == ["up f", "down f"]


def test_a_network_that_cannot_be_is_said_in_one_line(netdev: Netdev) -> None:
    netdev.missing = "/dev/net/tun is missing:\n  `modprobe tun`"
    with pytest.raises(NetworkError) as caught, versus.network("f"):
        raise AssertionError("there is no network")
    assert str(caught.value) == "/dev/net/tun is missing: `modprobe tun`"
    assert netdev.calls == ["up f"]


def test_interfaces_that_stay_are_an_error(netdev: Netdev) -> None:
    netdev.left = {"host0": "busy"}
    with pytest.raises(NetworkError, match="interfaces stay: host0: busy"), versus.network("f"):
        pass


def test_a_server_that_ends_before_it_is_ready_is_named_with_what_it_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        HostPair, "command", lambda *_: [sys.executable, "-c", "raise SystemExit('no device')"]
    )
    with pytest.raises(ProgramError, match=r"(?s)did not say 'fio: waiting.*no device"):
        versus.run(RDMA, PLACE)


def test_the_client_comes_when_the_server_is_ready_and_has_the_jobs_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = f"import sys; print({fio.READY!r}, flush=True)"
    client = "import os; print('block', os.environ['BLOCK'])"
    monkeypatch.setattr(
        HostPair,
        "command",
        lambda _self, _job, role: [sys.executable, "-c", server if role == "server" else client],
    )
    with pytest.raises(fio.FioError, match="fio wrote:\n  \\| block 4096"):
        versus.run(RDMA, PLACE)
