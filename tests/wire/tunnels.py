# SPDX-License-Identifier: BSD-3-Clause
"""Tunnels between two machines, for wires that run inside them: WireGuard, IPsec.

docs/wire.md has the same commands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.common.namespaces import DEADLINE_S, Namespace
from tests.programs.needs import needs

_UDP, _ESP = 17, 50  # IP's protocols
WIREGUARD_PORT = 51820
_PREFIX = 24


@dataclass(frozen=True)
class Tunnel:
    """A tunnel that is up.  *addresses*: of its ends, where a wire runs."""

    addresses: tuple[str, str]
    protocol: int  #: that the network sees
    port: int = 0

    def hides(self, packet: bytes) -> bool:
        """Tells whether an IPv4 packet is the tunnel's own."""
        head = 4 * (packet[0] & 15)
        ports = {int.from_bytes(packet[at : at + 2], "big") for at in (head, head + 2)}
        return packet[9] == self.protocol and (not self.port or ports == {self.port})


Make = Callable[[Sequence[Namespace], Path], AbstractContextManager[Tunnel]]


# --- WireGuard ----------------------------------------------------------------------------


@contextmanager
def wireguard_go(pair: Sequence[Namespace], folder: Path) -> Iterator[Tunnel]:
    """By the program wireguard-go, where the kernel has no WireGuard."""
    program = needs("wireguard-go", "wireguard-go")
    if not Path("/dev/net/tun").exists():
        pytest.skip("there is no /dev/net/tun here")
    with ExitStack() as stack:
        for machine in pair:
            name = _interface(machine)
            running = machine.start("env", "LOG_LEVEL=verbose", program, "-f", name)
            stack.enter_context(running).wait_said("UAPI listener started", DEADLINE_S)
        yield _wireguard(pair, folder)


@contextmanager
def wireguard_of_the_kernel(pair: Sequence[Namespace], folder: Path) -> Iterator[Tunnel]:
    for machine in pair:
        made = machine.run("ip", "link", "add", _interface(machine), "type", "wireguard")
        if "Unknown device type" in made.stderr or "not supported" in made.stderr:
            pytest.skip(f"this kernel has no WireGuard: {made.stderr.strip()}")
        made.check()
    yield _wireguard(pair, folder)
    for machine in pair:
        machine.must("ip", "link", "del", _interface(machine))


def _interface(machine: Namespace) -> str:
    # wireguard-go has a socket of this name, which all machines of tests see.
    return f"wg{os.getpid() % 100_000_000}-{machine.number}"


def _wireguard(pair: Sequence[Namespace], folder: Path) -> Tunnel:
    """Gives both ends keys, each other's address, and addresses of their own."""
    wg = needs("wg", "wireguard-tools")
    addresses = ("10.9.0.1", "10.9.0.2")
    keys = [folder / machine.link for machine in pair]
    for machine, key in zip(pair, keys, strict=True):
        machine.must("sh", "-c", f"umask 077; {wg} genkey > {key}; {wg} pubkey < {key} > {key}.pub")
    for end, (machine, other) in enumerate(zip(pair, reversed(pair), strict=True)):
        name = _interface(machine)
        peer = [
            *("peer", Path(f"{keys[1 - end]}.pub").read_text().strip()),
            *("endpoint", f"{other.ipv4}:{WIREGUARD_PORT}"),
            *("allowed-ips", f"{addresses[1 - end]}/32"),
        ]
        own = ["listen-port", str(WIREGUARD_PORT), "private-key", str(keys[end])]
        machine.must(wg, "set", name, *own, *peer)
        machine.must("ip", "addr", "add", f"{addresses[end]}/{_PREFIX}", "dev", name)
        machine.must("ip", "link", "set", name, "up")
    return Tunnel(addresses, _UDP, WIREGUARD_PORT)


# --- IPsec --------------------------------------------------------------------------------

_KEYS = ("0x" + "4a" * 20, "0x" + "5b" * 20)  # AES-128 and a salt; each for one direction
_AEAD = "rfc4106(gcm(aes))"
_NO_IPSEC = ("Protocol not supported", "AEAD algorithm not found")


@contextmanager
def ipsec(pair: Sequence[Namespace], folder: Path) -> Iterator[Tunnel]:  # noqa: ARG001
    """ESP in transport mode between the machines' own addresses, with keys set by hand."""
    addresses = (pair[0].ipv4, pair[1].ipv4)
    for end, machine in enumerate(pair):
        for source, key in enumerate(_KEYS):
            way = ["src", addresses[source], "dst", addresses[1 - source]]
            mode = ["reqid", "1", "mode", "transport"]
            state = ["proto", "esp", "spi", hex(0x1000 + source), *mode]
            algorithm = ["aead", _AEAD, key, "128"]
            made = machine.run("ip", "xfrm", "state", "add", *way, *state, *algorithm)
            if any(text in made.stderr for text in _NO_IPSEC):
                pytest.skip(f"this kernel has no IPsec: {made.stderr.strip()}")
            made.check()
            direction = "out" if end == source else "in"
            machine.must(
                *("ip", "xfrm", "policy", "add", *way, "dir", direction),
                *("tmpl", *way, "proto", "esp", *mode),
            )
    yield Tunnel(addresses, _ESP)
    for machine in pair:
        machine.must("ip", "xfrm", "policy", "flush")
        machine.must("ip", "xfrm", "state", "flush")


TUNNELS: dict[str, Make] = {
    "wireguard-go": wireguard_go,
    "WireGuard of the kernel": wireguard_of_the_kernel,
    "IPsec": ipsec,
}
