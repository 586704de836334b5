# SPDX-License-Identifier: BSD-3-Clause
"""This machine's netdev as a profile of the performance model: TCP between two hosts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from nupa.fabric import Fabric
from nupa.measure import raw
from nupa.measure.here import Here
from nupa.measure.versus import host_pair, network
from nupa.programs.cpus import pick_two
from nupa.programs.pair import (
    NUPA,
    Program,
    ProgramError,
    ProgramPair,
    free_port,
    is_listening,
)

NAME = "netdev"
_SIZES = (1, 65_507)  # bytes: the least, and the most of the program
_SECONDS = 1.0
_DEADLINE_S = 20.0
_LISTEN_S = 5.0
_LISTEN_POLL_S = 0.01
_HEADER_BYTES = 54  # Ethernet 14, IPv4 20, TCP 20


def measure(fabric: Fabric, tick: Callable[[str], None] = lambda _what: None) -> Here:
    """Returns the figures of TCP over nupa_net0, both ends asleep until data comes.

    NetworkError: the hosts cannot have a network here.  ProgramError: an end failed.
    """
    hosts = [host.name for host in fabric.hosts[:2]]
    with network(fabric.name):
        mtu = _mtu(fabric.name)
        one_way = []
        for size in _SIZES:
            tick(f"tcp lat {size} B")
            one_way.append(_round_trip_ns(fabric.name, (hosts[0], hosts[1]), size) / 2)
    per_byte = max((one_way[1] - one_way[0]) / (_SIZES[1] - _SIZES[0]), 1e-3)
    rate = 1e9 / per_byte
    figures = {
        "rate": rate * (mtu + _HEADER_BYTES) / mtu,  # with headers
        "mtu": float(mtu),
        "header": float(_HEADER_BYTES),
        "software": one_way[0],
    }
    return Here(f"here-{NAME}", "this machine, TCP over nupa_net0", figures, operations=("send",))


def _mtu(fabric: str) -> int:
    """Returns the payload of a full segment, in bytes."""
    from nupa.netdev import state

    frame = min(host.mtu_bytes for host in state.load_up(fabric).hosts.values())
    return frame - (_HEADER_BYTES - 14)


def _round_trip_ns(fabric: str, hosts: tuple[str, str], size_bytes: int) -> float:
    pair, port = host_pair(fabric, hosts, None), free_port()
    where = ["--address", pair.address, "--port", str(port)]
    program = raw.path("net_probe")
    client = [program, "--tcp", "--bytes", str(size_bytes), "--seconds", f"{_SECONDS:g}", "--json"]
    enter = [*NUPA, "net", "exec", "--fabric", fabric]
    ends = ProgramPair(
        [*enter, hosts[0], "--", program, "--serve", *where],
        [*enter, hosts[1], "--", *client, *where],
        cpus=pick_two(),
        deadline_s=_DEADLINE_S,
    )
    with ends:
        ends.start_server()
        _await_listener(ends.server, port)
        ends.start_client()
        result = ends.wait().check()
    return float(json.loads(result.client.stdout)["round_trip_ns"])


def _await_listener(server: Program, port: int) -> None:
    """Waits for net_probe, which is a child of `nupa net exec`.

    ProgramError: it does not listen.
    """
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    until_s = time.monotonic() + _LISTEN_S
    while server.running and time.monotonic() < until_s:
        if any(is_listening(port, int(pid)) for pid in children.read_text().split()):
            return
        time.sleep(_LISTEN_POLL_S)
    raise ProgramError(f"did not listen on port {port}: {server.outcome().describe()}")
