# SPDX-License-Identifier: BSD-3-Clause
"""uDAPL over verbs: Debian's dapltest and dtest, connected by sockets and by rdma_cm."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.ecosystem.lab import DEADLINE_S, Lab
from tests.programs.needs import needs


def address_of_this_machine() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # the address on the way there; sends nothing
        except OSError as error:
            pytest.skip(f"this machine has no address but loopback: {error}")
        return str(probe.getsockname()[0])


@pytest.fixture(params=["scm", "cma"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The registry of providers, with one: "nupa"."""
    cma = request.param == "cma"
    where = f"{address_of_this_machine()} 0" if cma else "nupa_rdma0 1"
    library = "libdaplofa.so.2" if cma else "libdaploscm.so.2"
    conf = tmp_path / "dat.conf"
    conf.write_text(f'nupa u2.0 nonthreadsafe default {library} dapl.2.0 "{where}" ""\n')
    return {"DAT_OVERRIDE": str(conf)}


def test_dapltest_moves_and_checks_data(fabric: Lab, env: dict[str, str]) -> None:
    dapltest = [needs("dapltest", "dapl2-utils"), "-T"]
    moves = "client SR 256 4 server SR 256 4 client RW 65536 2 server RR 65536 2 client SR 16 1"
    to = ["-s", address_of_this_machine(), "-D", "nupa"]
    client = [*dapltest, "T", *to, "-i", "50", "-t", "2", "-w", "2", "-V", *moves.split()]
    with fabric.start(fabric.on(None, *dapltest, "S", "-D", "nupa"), env) as server:
        server.wait_said("Service Point Ready", DEADLINE_S)
        said = fabric.must(fabric.on(None, *client), env=env)
        fabric.must(fabric.on(None, *dapltest, "Q", *to), env=env)
        server.wait(DEADLINE_S).check()
    assert re.search(r"Total RDMA Write : +\d", said)
    assert "2 threads" in said


def test_dtest_passes(fabric: Lab, env: dict[str, str]) -> None:
    dtest = [needs("dtest", "dapl2-utils"), "-P", "nupa", "-b", "4096", "-B", "100"]
    with fabric.start(fabric.on(None, *dtest), env) as server:
        server.wait_said("Server is waiting for client connection", DEADLINE_S)
        said = fabric.must(fabric.on(None, *dtest, "-h", "127.0.0.1"), env=env)
        server.wait(DEADLINE_S).check()
    assert "DAPL Test Complete. PASSED" in said
