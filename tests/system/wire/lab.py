# SPDX-License-Identifier: BSD-3-Clause
"""A guest with rdma_rxe, and a wire to it, by either medium.

frames   the guest's Ethernet frames at a Unix socket of the keeper; TCP goes by QEMU's user
         network
tap      the plain UDP medium, in a network namespace whose bridge has the guest's tap
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nupa.programs.pair import run
from nupa.vm.files.nic import mac_of
from tests.common.namespaces import ETHERNET_MTU_BYTES, Namespace, machines
from tests.programs.needs import needs
from tests.programs.users import ourselves
from tests.system.machine import Machine

from .ends import DEADLINE_S, FABRIC, FAR, End, Guest, Here, Inside, forwarded, free_ports

_TAP = "tap9"
_TAPS = ("tap1", "tap2")
_GUEST_ON_TAP = "192.0.2.9"
_GUEST6_ON_TAP = "2001:db8::9"
_ON_FRAMES = ("10.1.0.2", "10.1.0.1")  # of the guest, and here
_ON_FRAMES6 = ("2001:db8:1::2", "2001:db8:1::1")
_SLIRP = "10.0.2.2"
#: Room for RoCE's MTU of 4096.
MTU_BYTES = 4200


@dataclass(frozen=True)
class Lab:
    machine: Machine
    guest: Guest
    here: Here
    left: Namespace | None = None  #: of the tap

    def ends(self, server: str) -> tuple[End, End]:
        """Returns server and client; *server* is "guest" or "here"."""
        return (self.guest, self.here) if server == "guest" else (self.here, self.guest)


@contextmanager
def _booted(machine: Machine) -> Iterator[Machine]:
    with closing(machine):
        machine.up()
        yield machine


@contextmanager
def _near(here: Here, *options: str) -> Iterator[None]:
    """Makes the fabric of this end, and its wire."""
    here.must("up")
    try:
        here.must("wire", "add", FAR, *options)
        yield
    finally:
        here.must("down", "--force", FABRIC)


def _guest(machine: Machine, address: str, tcp: str, mac: str, first_port: int = 0) -> Guest:
    """Returns the guest as an end, whose GID is that of *address*."""
    guest = Guest(machine, "host0", address, tcp, 0, first_port, mac=mac)
    return replace(guest, gid=guest.gid_index())


@contextmanager
def by_frames(mtu: int = 1500, *, ipv6: bool = False) -> Iterator[Lab]:
    """Makes the lab; no root is needed for it."""
    guest_at, here_at = _ON_FRAMES6 if ipv6 else _ON_FRAMES
    prefix = 64 if ipv6 else 24
    first = free_ports()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nupa-test-")))
        socket = folder / "far"
        nics = [
            "--nic", f"user:{forwarded(first)}",
            "--nic", f"stream:{socket},address={guest_at}/{prefix},mtu={mtu},rxe",
        ]  # fmt: skip
        machine = Machine(1, "ivshmem", "--mem", "64M", *nics)
        here = Here(machine, here_at, _SLIRP)
        booted = stack.enter_context(_booted(machine))
        stack.enter_context(
            _near(
                here, "--address", guest_at, "--listen", here_at, "--frames", f"{socket},mtu={mtu}"
            )
        )
        yield Lab(booted, _guest(booted, guest_at, "127.0.0.1", mac_of(0, 1), first), here)


@contextmanager
def by_tap(mtu: int = 1500, *, ipv6: bool = False) -> Iterator[Lab]:
    """Makes the lab: the NUPA end is a namespace of its own, QEMU is in that of the bridge."""
    with ExitStack() as stack:
        (left,) = stack.enter_context(machines(1, mtu_bytes=mtu))
        _tap(left, _TAP, mtu)
        user = replace(ourselves(), prefix=tuple(left.hub_argv()))
        addresses = f"address={_GUEST_ON_TAP}/24,address={_GUEST6_ON_TAP}/64"
        nic = ["--nic", f"tap:{_TAP},{addresses},mtu={mtu},rxe"]
        machine = Machine(1, "ivshmem", "--mem", "64M", *nic, user=user)
        guest_at, here_at = (_GUEST6_ON_TAP, left.ipv6) if ipv6 else (_GUEST_ON_TAP, left.ipv4)
        here = Here(machine, here_at, left.ipv4, tuple(left.argv()))
        booted = stack.enter_context(_booted(machine))
        stack.enter_context(_near(here, "--address", guest_at))
        yield Lab(booted, _guest(booted, guest_at, _GUEST_ON_TAP, mac_of(0, 0)), here, left)


def _tap(bridge: Namespace, name: str, mtu: int) -> None:
    for command in (
        ["tuntap", "add", name, "mode", "tap"],
        ["link", "set", name, "mtu", str(mtu), "master", "bridge0", "up"],
    ):
        run(bridge.hub_argv(needs("ip", "iproute2"), *command), deadline_s=DEADLINE_S).check()


MEDIA = {"frames": by_frames, "tap": by_tap}


# Where the kernel's RoCE is loaded, it has UDP port 4791: one of both at a time.
_LOAD = (
    "modprobe rdma_rxe && modprobe ib_uverbs && modprobe rdma_ucm && "
    'for at in /sys/class/net/*; do [ "$(cat "$at/address")" = "$0" ] && nic=${at##*/}; done; '
    "rdma link add rxe0 type rxe netdev $nic"
)
_UNLOAD = """\
import ctypes, os, sys
kernel = ctypes.CDLL(None, use_errno=True)
if kernel.syscall(176, b"rdma_rxe", os.O_NONBLOCK):  # delete_module
    sys.exit(os.strerror(ctypes.get_errno()))
"""


@dataclass(frozen=True)
class GuestPair:
    """Two guests on a network: with rdma_rxe, or with a fabric each and a wire between."""

    machine: Machine
    rxe: tuple[Guest, Guest]
    wire: tuple[Inside, Inside]

    @contextmanager
    def with_rxe(self) -> Iterator[tuple[Guest, Guest]]:
        for end in self.rxe:
            end.run("sh", "-c", _LOAD, end.mac)
        try:
            yield self.rxe
        finally:
            for end in self.rxe:
                end.run("rdma", "link", "del", end.device)
                end.run(sys.executable, "-c", _UNLOAD)

    @contextmanager
    def with_wire(self) -> Iterator[tuple[Inside, Inside]]:
        try:
            for end, other in zip(self.wire, reversed(self.wire), strict=True):
                end.must("up")
                end.must("wire", "add", FAR, "--address", other.address)
            yield self.wire
        finally:
            for end in self.wire:
                end.must("down", "--force", FABRIC)


@contextmanager
def _pair(machine: Machine, addresses: Sequence[str], macs: Sequence[str]) -> Iterator[GuestPair]:
    with _booted(machine):
        at = list(zip(machine.hosts, addresses, macs, strict=True))
        rxe = [Guest(machine, host, ip, ip, gid=1, mac=mac) for host, ip, mac in at]
        wire = [Inside(machine, host, ip, ip, mac=mac) for host, ip, mac in at]
        yield GuestPair(machine, (rxe[0], rxe[1]), (wire[0], wire[1]))


@contextmanager
def pair_by_sockets() -> Iterator[GuestPair]:
    """Two guests on their own network, which QEMU's sockets are: without offloads."""
    addresses = ["192.168.77.1", "192.168.77.2"]
    macs = ["52:54:00:77:00:01", "52:54:00:77:00:02"]
    with _pair(Machine(2, "ivshmem", "--mem", "64M"), addresses, macs) as pair:
        yield pair


@contextmanager
def pair_by_taps() -> Iterator[GuestPair]:
    """Two guests at a bridge, by taps, whose interfaces leave segmentation to the receiver."""
    addresses = ["192.0.2.11", "192.0.2.12"]
    with machines(1) as (left,):
        nics: list[str] = []
        for number, (tap, address) in enumerate(zip(_TAPS, addresses, strict=True)):
            _tap(left, tap, ETHERNET_MTU_BYTES)
            nics += ["--nic", f"tap:{tap},guest=host{number},address={address}/24"]
        user = replace(ourselves(), prefix=tuple(left.hub_argv()))
        machine = Machine(2, "ivshmem", "--mem", "64M", *nics, user=user)
        with _pair(machine, addresses, [mac_of(host, 0) for host in range(2)]) as pair:
            for guest in pair.rxe:
                guest.run(needs("ethtool", "ethtool"), "-K", "eth1", "tx-udp-segmentation", "on")
            yield pair
