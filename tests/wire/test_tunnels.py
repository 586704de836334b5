# SPDX-License-Identifier: BSD-3-Clause
"""Wires inside WireGuard and IPsec: the network between sees neither RoCE nor its data.

tests/system/wire/test_tunnels.py runs this in a guest whose kernel has both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.common.namespaces import Namespace, machines
from tests.programs import users
from tests.wire import capture, talk
from tests.wire.lab import Wired, wired
from tests.wire.operations import TEXT
from tests.wire.test_connections import meet
from tests.wire.tunnels import TUNNELS, Tunnel

#: Seconds until the first probe is answered, on a busy machine.
_UP_S = 30.0
#: 1 s each: the two of a guest share its one processor, which is emulated.
_TIMEOUT = ("-u", "18")
PROGRAMS = (
    ["ib_write_bw", "-s", "65536", "-n", "5", "-t", "5", "-b", *_TIMEOUT],
    ["ib_send_lat", "-s", "5000", "-n", "5", *_TIMEOUT],
    ["ibv_rc_pingpong", "-c", "-s", "3000", "-n", "5", "-g", "0"],
)


@dataclass(frozen=True)
class Inside(Namespace):
    """A machine whose address is that of its end of the tunnel."""

    address: str

    @property
    def ipv4(self) -> str:
        return self.address


@dataclass(frozen=True)
class Tunnelled:
    pair: tuple[Namespace, ...]
    wire: Wired
    tunnel: Tunnel
    folder: Path


def _params() -> Iterator[object]:
    """Yields the kinds; those of the kernel run in the guest, and where they are asked for."""
    for name in TUNNELS:
        marks = () if name == "wireguard-go" else (pytest.mark.vm, pytest.mark.long)
        yield pytest.param(name, marks=marks)


@pytest.fixture(scope="module", params=_params())
def tunnelled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tunnelled]:
    folder = tmp_path_factory.mktemp("tunnel")
    with ExitStack() as stack:
        pair = stack.enter_context(machines(2))
        tunnel = stack.enter_context(TUNNELS[request.param](pair, folder))
        inside = [
            Inside(**vars(machine), address=address)
            for machine, address in zip(pair, tunnel.addresses, strict=True)
        ]
        wire = stack.enter_context(wired(inside, users.ourselves()))
        yield Tunnelled(pair, wire, tunnel, folder)


def test_programs_run_and_the_network_sees_the_tunnel_alone(tunnelled: Tunnelled) -> None:
    wire, files = tunnelled.wire, [tunnelled.folder / f"{end}.pcap" for end in (0, 1)]
    with ExitStack() as stack:
        for end, file in enumerate(files):
            pair = tunnelled.pair if end == 0 else tunnelled.pair[::-1]
            stack.enter_context(capture.at_cable(*pair, file, "ip"))
        for command in PROGRAMS:
            talk.perftest(wire, command, wire.addresses[0])
        talk.operations(wire, wire.addresses[0])
        meet(wire, "rping")
    for file in files:
        packets = [frame[14:] for frame in capture.frames(file)]
        assert len(packets) > 200
        assert [packet for packet in packets if not tunnelled.tunnel.hides(packet)] == []
        assert not any(TEXT in packet for packet in packets)


def test_the_wire_is_well(tunnelled: Tunnelled) -> None:
    """RoCE's MTU is the largest that the tunnel carries: of 1420 bytes, and of 1500 less ESP."""
    deadline = time.monotonic() + _UP_S
    for end in (0, 1):
        while (wire := tunnelled.wire.side(end).wire())["state"] == "STARTING":
            assert time.monotonic() < deadline, wire
        assert (wire["state"], wire["mtu_bytes"]) == ("UP", 1024), wire
        assert (wire["malformed"], wire["icrc_errors"]) == (0, 0), wire
