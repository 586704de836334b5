# SPDX-License-Identifier: BSD-3-Clause
"""This machine's netdev as a profile of the performance model: TCP between two hosts."""

from __future__ import annotations

import json
from collections.abc import Callable

from nupa.fabric import Fabric
from nupa.measure import raw
from nupa.measure.here import Here
from nupa.measure.versus import host_pair, network
from nupa.programs.cpus import pick_two
from nupa.programs.pair import NUPA, ProgramPair, free_port

NAME = "netdev"
_SIZES = (1, 65_507)  # bytes: the least, and the most of the program
_SECONDS = 1.0
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
    pair = host_pair(fabric, hosts, None)
    where = ["--address", pair.address, "--port", str(free_port())]
    program = raw.path("net_probe")
    client = [program, "--tcp", "--bytes", str(size_bytes), "--seconds", f"{_SECONDS:g}", "--json"]
    enter = [*NUPA, "net", "exec", "--fabric", fabric]
    ends = ProgramPair(
        [*enter, hosts[0], "--", program, "--serve", *where],
        [*enter, hosts[1], "--", *client, *where],
        cpus=pick_two(),
        port=int(where[-1]),
    )
    return float(json.loads(ends.run().check().client.stdout)["round_trip_ns"])
