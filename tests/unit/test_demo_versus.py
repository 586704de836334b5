# SPDX-License-Identifier: BSD-3-Clause
"""RDMA against TCP: where the jobs run, and what is said where they cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nupa.demo import fio, versus
from nupa.demo.programs import NUPA, ProgramError
from nupa.demo.versus import NetworkError, Place

PLACE = Place("f", ("host0", "host1"), "10.0.0.1", mover="cma")
RDMA = fio.Job("rdma", 4096, 1, PLACE.address, ramp_s=0.1, seconds=0.1)
TCP = fio.Job("tcp", 4096, 1, PLACE.address, ramp_s=0.1, seconds=0.1)

#: Stands in for nupa: says what it was asked, one line each time.
NUPA_STUB = """
import sys
print(*sys.argv[2:], file=open(sys.argv[1], "a"))
if "up" in sys.argv:
    sys.exit({failure!r})
"""


def stub(monkeypatch: pytest.MonkeyPatch, log: Path, failure: str | int = 0) -> None:
    text = NUPA_STUB.format(failure=failure)
    monkeypatch.setattr(versus, "NUPA", (sys.executable, "-c", text, str(log)))


def test_rdma_runs_on_the_hosts_and_tcp_in_their_namespaces() -> None:
    server, client = PLACE.command(RDMA, "server"), PLACE.command(TCP, "client")
    assert server[: len(NUPA) + 7] == [
        *NUPA,
        *("run", "--fabric", "f", "--host", "host0", "--mover", "cma"),
    ]
    assert client[: len(NUPA) + 6] == [*NUPA, "net", "exec", "--fabric", "f", "host1", "--"]
    assert (server[-4:], client[-4:]) == (RDMA.command("server"), TCP.command("client"))


def test_the_network_is_up_for_the_block_and_down_after_it_however_it_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    stub(monkeypatch, log)

    def interrupted() -> None:
        with versus.network("f"):
            assert log.read_text() == "net up --fabric f\n"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert log.read_text().splitlines() == ["net up --fabric f", "net down --fabric f"]


def test_a_network_that_cannot_be_is_one_line_and_what_was_made_of_it_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    stub(monkeypatch, log, "nupa: /dev/net/tun is missing:\n  `modprobe tun`")
    with pytest.raises(NetworkError) as caught, versus.network("f"):
        raise AssertionError("there is no network")
    assert str(caught.value) == "/dev/net/tun is missing: `modprobe tun`"
    assert log.read_text().splitlines()[-1] == "net down --fabric f"


def test_a_server_that_ends_before_it_is_ready_is_named_with_what_it_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        Place, "command", lambda *_: [sys.executable, "-c", "raise SystemExit('no device')"]
    )
    with pytest.raises(ProgramError, match=r"(?s)did not say 'fio: waiting.*no device"):
        versus.run(RDMA, PLACE)


def test_the_client_comes_when_the_server_is_ready_and_has_the_jobs_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = f"import sys; print({fio.READY!r}, flush=True)"
    client = "import os; print('block', os.environ['BLOCK'])"
    monkeypatch.setattr(
        Place,
        "command",
        lambda _self, _job, role: [sys.executable, "-c", server if role == "server" else client],
    )
    with pytest.raises(fio.FioError, match="fio wrote:\n  \\| block 4096"):
        versus.run(RDMA, PLACE)
