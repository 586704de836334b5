# SPDX-License-Identifier: BSD-3-Clause
"""Storage: clients read and write blocks of servers, over RDMA or over TCP, in fio's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from math import ceil
from typing import Literal

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.profile.profile import Profile, load
from nupa.model.work.phase import Cycle, Phase, Plan, RankOperation, Sent, Spent, Station
from nupa.model.work.stack import case_of, is_stack, stacked

Transport = Literal["rdma", "tcp"]
#: fio's rw: the share of reads, if `rwmixread` does not say it.  Order does not matter to flash.
PATTERNS = {
    "read": 1.0, "write": 0.0, "randread": 1.0, "randwrite": 0.0, "rw": 0.5, "randrw": 0.5,
}  # fmt: skip
_MIXED = ("rw", "randrw")
_R2T_BYTES = 24  # NVMe/TCP 1.0: ready to transfer


@dataclass(frozen=True)
class Storage:
    """fio on each client: *numjobs* jobs, each with *iodepth* blocks of *bs* bytes outstanding.

    The first *clients* endpoints read and write; the last *servers* serve.  *converged*: all are
    both, as in a cluster of one kind of hosts.  *stripe*: blocks are cut into pieces of that size,
    which lie on different servers; 0: they are not.  *drive*, *protocol* and *stack* are profiles.
    *loops*: blocks that follow each other in each place of a queue; their time is the answer's.
    """

    bs: int = 4096
    rw: str = "randread"
    iodepth: int = 1
    numjobs: int = 1
    clients: int = 1
    servers: int = 1
    transport: Transport = "rdma"
    rwmixread: int | None = None
    stripe: int = 0
    drive: str = "nvme-gen4"
    protocol: str = ""
    stack: str = "tcp-100g"
    converged: bool = False
    loops: int = 1

    def __post_init__(self) -> None:
        if self.rw not in PATTERNS:
            raise ModelError(f"rw: {self.rw!r} was given: give one of {', '.join(PATTERNS)}")
        if self.transport not in ("rdma", "tcp"):
            raise ModelError(f"transport: {self.transport!r} was given: give rdma or tcp")
        for name in ("bs", "iodepth", "numjobs", "clients", "servers", "loops"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name}: {getattr(self, name)} was given: give 1 or more")
        if self.stripe < 0:
            raise ModelError(f"stripe: {self.stripe} was given: give bytes, or 0 for no stripes")
        if self.rwmixread is not None and self.rw not in _MIXED:
            raise ModelError(f"rwmixread: {self.rw} is not mixed: give rw or randrw, or leave it")
        if self.rwmixread is not None and not 0 <= self.rwmixread <= 100:
            raise ModelError(f"rwmixread: {self.rwmixread} was given: give 0 to 100")

    @property
    def name(self) -> str:
        shown = [f"storage:{self.bs}"]
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in ("rw", "transport") or (each.name != "bs" and value != each.default):
                text = str(value).lower() if isinstance(value, bool) else value
                shown.append(f"{each.name}={text}")
        return ",".join(shown)

    @property
    def reads(self) -> float:
        """Returns the share of blocks that are read."""
        return PATTERNS[self.rw] if self.rwmixread is None else self.rwmixread / 100

    @property
    def pieces(self) -> int:
        """Returns how many pieces a block has, each with a request of its own."""
        return ceil(self.bs / self.stripe) if self.stripe else 1

    @property
    def piece_bytes(self) -> int:
        return ceil(self.bs / self.pieces)

    @property
    def outstanding(self) -> int:
        """Returns the blocks that all clients together have outstanding."""
        return self.clients * self.numjobs * self.iodepth

    def plan(self, network: Network) -> Plan:
        """Returns the requests and what they queue for.  ModelError: too few endpoints."""
        made = _Requests(self, network)
        return Plan(
            (),
            self.transport,
            f"{self.outstanding} blocks circulate",
            self.bs * self.outstanding * self.loops,
            made.endpoints,
            form="blocks",
            messages=self.outstanding * self.loops,
            cycle=made.cycle(),
        )

    def operations(self, network: Network) -> Iterator[RankOperation]:
        """Yields *loops* blocks of each place of each queue; drives and cores do not queue.

        Drives take equal times, so blocks that start together stay together: a burst.

        ModelError: TCP on a network of adapters, whose stages are RDMA's.
        """
        return _Requests(self, network).operations()


@dataclass(frozen=True)
class _Requests:
    """The requests of a storage on a network."""

    work: Storage
    network: Network

    def __post_init__(self) -> None:
        if self.endpoints > self.network.endpoints:
            raise ModelError(
                f"{self.network.name} has {self.network.endpoints} endpoints: {self.work.clients} "
                f"clients and {self.work.servers} servers were asked; give a larger network, or "
                "`converged`"
            )

    @property
    def endpoints(self) -> int:
        clients, servers = self.work.clients, self.work.servers
        return max(2, clients, servers) if self.work.converged else clients + servers

    @cached_property
    def tcp(self) -> bool:
        return self.work.transport == "tcp"

    @cached_property
    def protocol(self) -> Profile:
        name = self.work.protocol or f"nvme-{self.work.transport}"
        return _profile(name, "library").at(case_of(self.network))

    @cached_property
    def drive(self) -> Profile:
        return _profile(self.work.drive, "drive").at(case_of(self.network))

    @cached_property
    def seen(self) -> Network:
        """Returns the network as the requests see it."""
        if self.tcp:
            return stacked(self.network, load(self.work.stack).at(case_of(self.network)))
        for level in self.network.levels:
            if is_stack(level.profile):
                raise ModelError(
                    f"{level.profile.name} is TCP: transport rdma was asked; give tcp, or a fabric "
                    "with adapters"
                )
        return self.network

    @cached_property
    def level(self) -> int:
        last = self.endpoints if self.work.converged else self.network.endpoints
        return self.network.level_between(0, last - 1)

    @cached_property
    def stack(self) -> Profile:
        """Returns the profile of the endpoints that the requests see."""
        return self.seen.levels[self.level].profile

    @property
    def rounds(self) -> int:
        """Returns how many pieces of a block a server has, which it serves in turn."""
        return ceil(self.work.pieces / self.work.servers)

    @property
    def streams(self) -> int:
        return self.work.clients * self.work.numjobs

    @property
    def in_capsule(self) -> bool:
        """Returns whether written data travel with the command."""
        return self.work.piece_bytes <= self.protocol.get("in_capsule")

    def _messages(self) -> Iterator[tuple[str, str, int, float]]:
        """Yields name, operation, bytes and share of the messages of a piece.

        A read: the command, the data with the reply behind them.  A write: the command, the data,
        which the target fetches, unless they came with the command, and the reply.
        """
        size, reads = self.work.piece_bytes, self.work.reads
        command, reply = round(self.protocol["capsule"]), round(self.protocol["reply"])
        if reads:
            yield "command", "send", command, reads
            yield "data", "send", size + reply, reads
        if reads == 1:
            return
        writes = 1 - reads
        if self.in_capsule:
            yield "command", "send", command + size, writes
        elif self.tcp:
            yield "command", "send", command, writes
            yield "ready to transfer", "send", _R2T_BYTES, writes
            yield "data", "send", size, writes
        else:
            yield "command", "send", command, writes
            yield "data", "read", size, writes
        yield "reply", "send", reply, writes

    def _of_drive(self, figure: str, none: float = 0.0) -> float:
        """Returns the mean of a figure over reads and writes, by `read_` and `write_`."""
        reads = self.work.reads
        return reads * self.drive.get(f"read_{figure}", none) + (1 - reads) * self.drive.get(
            f"write_{figure}", none
        )

    def _drive_ns(self) -> float:
        """Returns what a piece takes of a drive's rates."""
        total = 0.0
        for way, share in (("read", self.work.reads), ("write", 1 - self.work.reads)):
            ns = self.work.piece_bytes / self.drive[f"{way}_stream"] * 1e9
            if f"{way}_blocks" in self.drive.figures:
                ns = max(ns, 1e9 / self.drive[f"{way}_blocks"])
            total += share * ns
        return total

    def _copies_ns(self) -> float:
        """Returns a core's time for the bytes of a piece: copies, checks and interrupts."""
        return self.work.piece_bytes / self.stack["flow_rate"] * 1e9 if self.tcp else 0.0

    def _calls_ns(self) -> float:
        """Returns a core's time for the messages of a piece at one end."""
        count = sum(share for _, _, _, share in self._messages())
        return (
            count / self.stack["message_rate"] * 1e9
            if "message_rate" in self.stack.figures
            else 0.0
        )

    def _spent(self) -> Iterator[Spent]:
        drive = self._of_drive("latency")
        stream = self.work.piece_bytes * (
            self.work.reads / self.drive["read_stream"]
            + (1 - self.work.reads) / self.drive["write_stream"]
        )
        yield Spent("submit", self.protocol["submit"] * self.work.pieces)
        yield Spent("serve", self.protocol["serve"] * self.rounds)
        yield Spent("drive", (drive + stream * 1e9) * self.rounds)
        yield Spent("copies in the stack", self._copies_ns() * self.work.pieces)

    def _stations(self) -> Iterator[Station]:
        work, protocol = self.work, self.protocol
        pieces, servers = work.pieces, work.servers
        core = self._copies_ns() + self._calls_ns()
        yield Station("initiator's core", protocol["submit"] + core, float(pieces))
        cores = max(1, round(protocol["cores"]))
        yield Station(
            "target's cores", protocol["serve"] + core, float(pieces), servers * cores, self.streams
        )
        drives = max(1, round(self.drive["drives"]))
        yield Station("drives", self._drive_ns(), float(pieces), servers * drives, self.streams)
        # Data pass a port of each side at the same time.
        size, at = ceil(work.piece_bytes * max(work.reads, 1 - work.reads)), self.level
        port = Station("client's port", 0.0, float(pieces), 1, work.numjobs, size, at, 1.0, "port")
        yield port
        yield port._replace(name="server's port", among=servers, streams=self.streams)
        for tier in range(self.level + 1):
            level = self.network.levels[tier]
            if level.taper < 1:
                below = self.network.group_size(tier) // level.groups
                cross, groups = self._crossing(below)
                visits, ports = pieces * cross, below * level.taper
                name = f"{level.name} up"
                yield Station(name, 0.0, visits, groups, self.streams, size, tier, ports)

    def _crossing(self, below: int) -> tuple[float, int]:
        """Returns the share of pieces between groups of *below* endpoints, and the groups that the
        servers are in."""
        clients = Counter(rank // below for rank in range(self.work.clients))
        first = 0 if self.work.converged else self.network.endpoints - self.work.servers
        servers = Counter(rank // below for rank in range(first, first + self.work.servers))
        inside = sum(count * servers[group] for group, count in clients.items())
        return 1 - inside / (self.work.clients * self.work.servers), len(servers)

    def cycle(self) -> Cycle:
        sent = tuple(
            Sent(
                Phase(name, operation, self.level, size, steps=self.rounds),
                share,
                self.work.pieces,
            )
            for name, operation, size, share in self._messages()
        )
        return Cycle(
            self.streams,
            self.work.iodepth,
            sent,
            tuple(self._spent()),
            tuple(self._stations()),
            self.seen,
            self.work.loops,
        )

    def operations(self) -> Iterator[RankOperation]:
        if self.tcp and not is_stack(self.network.levels[self.level].profile):
            raise ModelError(
                f"{self.network.levels[self.level].profile.name} has no kernel's stack: to run TCP "
                f"message by message, give a network of {self.work.stack}"
            )
        base = 0 if self.work.converged else self.network.endpoints - self.work.servers
        index, places = 0, self.work.numjobs * self.work.iodepth
        for client in range(self.work.clients):
            for slot in range(places):
                lane = client * places + slot  # each place has threads of its own at both ends
                after: tuple[int, ...] = ()
                for loop in range(self.work.loops):
                    done = []
                    read = _is_read(loop + slot, self.work.reads)
                    for piece in range(self.work.pieces):
                        turn = client + slot + loop * self.work.pieces + piece
                        server = base + turn % self.work.servers
                        for one in self._piece(client, server, read, index, after):
                            yield one._replace(lane=lane)
                            index += 1
                        done.append(index - 1)
                    after = tuple(done)

    def _piece(
        self, client: int, server: int, read: bool, index: int, after: tuple[int, ...]
    ) -> Iterator[RankOperation]:
        """Yields the operations of a piece; the first has the number *index*."""
        size = self.work.piece_bytes
        command, reply = round(self.protocol["capsule"]), round(self.protocol["reply"])
        way = "read" if read else "write"
        stream = size / self.drive[f"{way}_stream"] * 1e9
        serve = round(self.protocol["serve"] + self.drive[f"{way}_latency"] + stream)
        submit = round(self.protocol["submit"])
        if client == server:  # a piece on the own drives
            yield RankOperation(client, client, 0, "compute", after, submit + serve)
            return
        inside = size if not read and self.in_capsule else 0
        yield RankOperation(client, server, command + inside, "send", after, submit)
        if not read and not inside:
            if self.tcp:
                yield RankOperation(server, client, _R2T_BYTES, "send", (index,))
                yield RankOperation(client, server, size, "send", (index + 1,))
                index += 1
            else:
                yield RankOperation(server, client, size, "read", (index,))
            index += 1
        back = size + reply if read else reply
        yield RankOperation(server, client, back, "send", (index,), serve)


def _is_read(number: int, reads: float) -> bool:
    """Returns whether block *number* is read: evenly spread."""
    return int((number + 1) * reads) > int(number * reads)


def _profile(name: str, kind: str) -> Profile:
    found = load(name)
    if found.kind != kind:
        raise ModelError(f"{name} is a {found.kind}: a {kind} was asked")
    return found
