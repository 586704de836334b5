# SPDX-License-Identifier: BSD-3-Clause
"""Both ends of a conversation: rdma_rxe in a guest, and NUPA on this machine or in a namespace."""

from __future__ import annotations

import json
import re
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

from nupa.programs.pair import ProgramOutcome, is_listening
from tests.programs.needs import needs
from tests.system.machine import Machine, StallError, new_port

#: Under emulation, on a busy machine: perftest -a moves 160 MB at some MB/s.
DEADLINE_S = 600.0
# netem impairs what leaves an interface; what arrives leaves by ifb0 first.
_IMPAIR = """\
for at in /sys/class/net/*; do [ "$(cat "$at/address")" = "$0" ] && nic=${at##*/}; done
modprobe ifb && ip link set ifb0 up && # it makes ifb0
tc qdisc add dev "$nic" root netem $1 &&
tc qdisc add dev "$nic" ingress &&
tc filter add dev "$nic" parent ffff: matchall action mirred egress redirect dev ifb0 &&
tc qdisc add dev ifb0 root netem $1
"""
_REPAIR = """\
for at in /sys/class/net/*; do [ "$(cat "$at/address")" = "$0" ] && nic=${at##*/}; done
tc -s qdisc show dev "$nic" root; tc -s qdisc show dev ifb0 root
tc qdisc del dev "$nic" root; tc qdisc del dev "$nic" ingress; tc qdisc del dev ifb0 root
"""
_NETEM = re.compile(r"\bSent \d+ bytes (\d+) pkt \(dropped (\d+)")
FABRIC = "near"
NEAR, FAR = "host0", "host1"
_KERNELS_OWN = ("env", "-u", "LD_PRELOAD", "-u", "LD_LIBRARY_PATH")
_FORWARDED = 8
_TRIES = 200


class End(ABC):
    """One end.  *address* is that of RoCE; *tcp* is where the other end reaches its TCP."""

    name: str
    machine: Machine
    address: str
    tcp: str
    gid: int
    device: str

    @abstractmethod
    def argv(self, command: Sequence[str]) -> list[str]:
        """Returns the command line that runs *command* there."""

    @abstractmethod
    def port(self) -> int:
        """Returns a TCP port for a server there."""

    @abstractmethod
    def listens(self, port: int, pid: int) -> bool:
        """Returns whether a program there, started as *pid*, listens on that TCP port."""

    @abstractmethod
    def listens_cm(self, port: int) -> bool:
        """Returns whether a program there listens at that port by the RDMA CM."""


@dataclass
class Guest(End):
    """rxe0 of a guest.  *first_port*: TCP ports that lead to the guest; 0: any does."""

    machine: Machine
    host: str
    address: str
    tcp: str
    gid: int
    first_port: int = 0
    device: str = "rxe0"
    mac: str = ""  #: of the interface that has rxe0
    _next: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        return "guest"

    def argv(self, command: Sequence[str]) -> list[str]:
        return self.machine.argv(self.host, [*_KERNELS_OWN, *command])

    def run(self, *command: str) -> str:
        """Runs a command of the guest that must succeed; returns its standard output."""
        argv = self.machine.argv(self.host, [*_KERNELS_OWN, *command])
        return succeed(self.machine, argv).stdout

    def gid_index(self) -> int:
        """Returns the index of the GID that is its address."""
        folder = f"/sys/class/infiniband/{self.device}/ports/1/gids"
        gids = self.run("sh", "-c", f"cd {folder} && grep -H . *").split()
        at = ip_address(self.address)
        gid = at if at.version == 6 else IPv6Address(f"::ffff:{at}")
        rows = (row.split(":", 1) for row in gids)
        return {IPv6Address(found): int(index) for index, found in rows}[gid]

    @contextmanager
    def impaired(self, *how: str) -> Iterator[list[tuple[int, int]]]:
        """Makes netem(8) impair what this guest sends and receives, meanwhile.

        Afterwards the list has the packets that each direction passed on and dropped.
        """
        passed: list[tuple[int, int]] = []
        self.run("sh", "-c", _IMPAIR, self.mac, " ".join(how))
        try:
            yield passed
        finally:
            said = self.run("sh", "-c", _REPAIR, self.mac)
            passed += [(int(sent), int(dropped)) for sent, dropped in _NETEM.findall(said)]

    def port(self) -> int:
        if not self.first_port:
            return new_port()
        self._next += 1
        return self.first_port + self._next % _FORWARDED

    def listens(self, port: int, pid: int) -> bool:  # noqa: ARG002
        return bool(self.run("ss", "-Hnlt", f"sport = :{port}").strip())

    def listens_cm(self, port: int) -> bool:
        return f":{port} " in self.run("sh", "-c", "rdma resource show cm_id | grep LISTEN || :")


@dataclass
class Here(End):
    """NUPA's host0, whose fabric has a wire to the guest as host1."""

    machine: Machine
    address: str
    tcp: str
    prefix: tuple[str, ...] = ()
    gid: int = 3
    device: str = "nupa_rdma0"
    fabric: list[str] = field(default_factory=lambda: ["env", f"NUPA_FABRIC={FABRIC}"])

    @property
    def name(self) -> str:  # type: ignore[override]
        return "here"

    def nupa(self, *arguments: str) -> list[str]:
        return [*self.prefix, *self.fabric, *self.machine.nupa_words(), *arguments]

    def argv(self, command: Sequence[str]) -> list[str]:
        return self.nupa("run", "--host", NEAR, "--", *command)

    def must(self, *arguments: str) -> ProgramOutcome:
        return succeed(self.machine, self.nupa(*arguments))

    def port(self) -> int:
        return new_port()

    def listens(self, port: int, pid: int) -> bool:
        return is_listening(port, pid)

    def listens_cm(self, port: int) -> bool:
        found = json.loads(self.must("show", "--json").stdout)["listeners"]
        return any(at["port"] == port for at in found)

    def wire(self) -> dict[str, object]:
        """Returns the wire's entry of `nupa show --json`."""
        return wire_of(self.must("show", "--json").stdout)


@dataclass
class Inside(Guest):
    """A fabric of a guest's own, whose wire leads to another guest."""

    gid: int = 3
    device: str = "nupa_rdma0"

    def nupa(self, *arguments: str) -> list[str]:
        own = ["env", "-u", "NUPA_HOST", "-u", "NUPA_BELL", f"NUPA_FABRIC={FABRIC}"]
        # Not the folder of this machine's fabrics, which a guest sees, too.
        own += ["NUPA_DIR=/dev/shm", "XDG_RUNTIME_DIR=/run"]
        return self.machine.argv(self.host, [*own, *self.machine.nupa_words(), *arguments])

    def argv(self, command: Sequence[str]) -> list[str]:
        return self.nupa("run", "--host", NEAR, "--", *command)

    def must(self, *arguments: str) -> str:
        return succeed(self.machine, self.nupa(*arguments)).stdout

    def listens_cm(self, port: int) -> bool:
        found = json.loads(self.must("show", "--json"))["listeners"]
        return any(at["port"] == port for at in found)

    def wire(self) -> dict[str, object]:
        """Returns the wire's entry of `nupa show --json`."""
        return wire_of(self.must("show", "--json"))


def succeed(machine: Machine, argv: Sequence[str]) -> ProgramOutcome:
    """Runs a command line that must succeed."""
    with machine.program(argv) as program:
        outcome = machine.wait(program, DEADLINE_S)
    assert outcome.ok, outcome.describe()
    return outcome


def wire_of(shown: str) -> dict[str, object]:
    """Returns the only wire that `nupa show --json` has printed."""
    (found,) = json.loads(shown)["wires"]
    assert isinstance(found, dict)
    return found


@dataclass(frozen=True)
class Conversation:
    """The outputs of a server and its client, which have both succeeded."""

    server: str
    client: str


def talk(
    server: tuple[End, Sequence[str]],
    client: tuple[End, Sequence[str]],
    ready: Callable[[int], bool],
    *,
    interrupt: bool = False,
    deadline_s: float = DEADLINE_S,
) -> Conversation:
    """Runs a server and, once it is *ready* (called with its pid), its client: both must succeed.

    *interrupt*: the server serves until it gets SIGINT.  StallError: one does not end in time.
    """
    machine = server[0].machine
    with machine.program(server[0].argv(server[1])) as first:
        machine.until(lambda: ready(first.pid), first, deadline_s)
        with machine.program(client[0].argv(client[1])) as second:
            try:
                told = machine.wait(second, deadline_s)
            except StallError as stall:
                raise StallError(f"{stall}\n{machine.said_by(first)}") from stall
            assert told.ok, f"{told.describe()}\n{machine.said_by(first)}"
        if interrupt:
            first.signal(signal.SIGINT)
        outcome = machine.wait(first, deadline_s)
    assert outcome.ok, f"{outcome.describe()}\n{told.describe()}"
    return Conversation(outcome.stdout + outcome.stderr, told.stdout + told.stderr)


def by_tcp(
    server: End, client: End, program: str, package: str, *options: str, each: Sequence[str] = ()
) -> Conversation:
    """Runs *program* of both ends, which meet by TCP.

    *each*: names of the options for device and GID index, such as ("-d", "-x").
    """
    port = server.port()
    words = [needs(program, package), *options, "-p", str(port)]

    def own(end: End) -> list[str]:
        chosen = [words[0]]
        for option, value in zip(each, (end.device, str(end.gid)), strict=False):
            chosen += [option, value]
        return [*chosen, *words[1:]]

    return talk(
        (server, own(server)),
        (client, [*own(client), server.tcp]),
        lambda pid: server.listens(port, pid),
    )


def free_ports() -> int:
    """Returns the first of as many adjacent TCP ports of 127.0.0.1 as a guest has."""
    for _ in range(_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = probe.getsockname()[1]
        if first + _FORWARDED < 65536 and all(_is_free(first + i) for i in range(_FORWARDED)):
            return int(first)
    raise AssertionError(f"no {_FORWARDED} adjacent TCP ports are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def forwarded(first: int) -> str:
    """Returns the ports as `nupa vm up --nic user:…` has them."""
    return f"{first}-{first + _FORWARDED - 1}"
