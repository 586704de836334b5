# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified programs in pairs, each on a host of a machine: in a guest, or on the machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path

from nupa.programs.pair import NUPA
from tests.programs.needs import needs

from .machine import Machine, new_port

ECHO = Path(__file__).with_name("echo.py")
DMABUF = Path(__file__).with_name("dmabuf.py")
#: Python starts twice for it, and Python is slow in a guest.
NET_UP_S = 180.0
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+[\d.]+\s", re.MULTILINE)


def address(host: str) -> str:
    """Returns the address of nupa_rdma0, which is that of nupa_net0, too."""
    return f"10.0.0.{int(host.removeprefix('host')) + 1}"


def perftest(machine: Machine, server: str, client: str, name: str, *options: str) -> None:
    """Runs perftest's *name*: the client shows as many rounds as it was asked for.

    With this machine at an end they meet by the RDMA CM: it has no address on the guests' network.
    """
    port, rounds = new_port(), 100
    by_cm = machine.here in (server, client)
    command = [needs(name, "perftest"), "-F", "-n", str(rounds), "-p", str(port), *options]
    command += ["-R"] * by_cm
    listens = machine.cm(port) if by_cm else machine.tcp(server, port)
    peer = address(server) if by_cm else server
    _, told = machine.talk((server, command), (client, [*command, peer]), listens)
    rows = [int(row[1]) for row in _ROW.findall(told.stdout)]
    assert rows == [rounds], told.describe()


def pingpong(machine: Machine, server: str, client: str, name: str) -> None:
    """Runs libibverbs' example *name*, which checks what it receives (-c)."""
    port, rounds = new_port(), 100
    command = [needs(name, "ibverbs-utils"), "-g", "1", "-n", str(rounds), "-c", "-p", str(port)]
    for told in machine.talk(
        (server, command), (client, [*command, server]), machine.tcp(server, port)
    ):
        assert f"{rounds} iters in" in told.stdout, told.describe()


def register_dmabuf(machine: Machine, host: str) -> None:
    """Registers memory of /dev/udmabuf, which the guests' kernel has, by the drop-in library."""
    told = machine.run(host, [sys.executable, "-P", "-S", str(DMABUF)])
    assert told.stdout == "registered\n", told.describe()


def rping(machine: Machine, server: str, client: str) -> None:
    """Runs READs and WRITEs of strings that both ends check (-V)."""
    port = new_port()
    command = [needs("rping", "rdmacm-utils"), "-a", address(server), "-p", str(port)]
    command += ["-C", "10", "-v", "-V"]
    _, told = machine.talk((server, [*command, "-s"]), (client, [*command, "-c"]), machine.cm(port))
    assert "ping data: rdma-ping-9:" in told.stdout, told.describe()


def copy_file(machine: Machine, server: str, client: str, size_bytes: int, folder: Path) -> None:
    """Runs rcopy over rsockets: the file that arrives has the hash of the one sent."""
    port = new_port()
    data = os.urandom(size_bytes)
    source, copy = folder / "sent", Path("/dev/shm") / f"nupa-received-{port}"
    source.write_bytes(data)
    rcopy = needs("rcopy", "rdmacm-utils")
    serving = machine.start(server, [rcopy, "-p", str(port)])
    machine.until(machine.cm(port), serving)
    # With an option first it would be a server.
    machine.run(client, [rcopy, str(source), f"{address(server)}:{copy}", "-p", str(port)])
    found = machine.run(server, ["sh", "-c", 'sha256sum "$0"; rm "$0"', str(copy)])
    machine.end(serving)  # it would serve for ever
    assert found.stdout.split()[0] == hashlib.sha256(data).hexdigest()


def net_up(machine: Machine, *hosts: str) -> None:
    """Makes nupa_net0 on these hosts, all started before any is awaited."""
    starting = []
    for host in hosts:
        # On this machine it must be said which of the hosts is meant: the others are guests.
        which = ["--fabric", machine.name, "--host", host] if host == machine.here else []
        starting.append(machine.start(host, [*NUPA, "net", "up", *which]))
    for program in starting:
        machine.wait(program, NET_UP_S).check()


def iperf3(machine: Machine, server: str, client: str, *options: str) -> None:
    """Runs TCP over the netdev, in both directions."""
    port = new_port()
    command = [needs("iperf3", "iperf3"), "-J", "-p", str(port)]
    first = machine.on_net(server, [*command, "-s", "-1"])
    second = [*command, "-c", address(server), "--bidir", "-n", "4M", *options]
    _, told = machine.talk(
        (server, first), (client, machine.on_net(client, second)), machine.tcp(server, port)
    )
    end = json.loads(told.stdout)["end"]
    for direction in ("sum_received", "sum_received_bidir_reverse"):
        assert end[direction]["bytes"] > 0, told.describe()
