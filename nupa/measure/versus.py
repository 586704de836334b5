# SPDX-License-Identifier: BSD-3-Clause
"""RDMA against TCP on one fabric: the same fio job by verbs, and over nupa_net0.

Neither is pinned, because TCP uses more threads than there are programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nupa.base.errors import NupaError
from nupa.fabric import Fabric
from nupa.programs import fio
from nupa.programs.pair import NUPA, ProgramPair, nupa_run


class NetworkError(Exception):
    """The hosts have no network; the message is that of `nupa net up`."""


@dataclass(frozen=True)
class RateComparison:
    """The rates of both at one block size and depth."""

    block_bytes: int
    depth: int
    rdma: fio.Rate
    tcp: fio.Rate

    @property
    def ratio(self) -> float:
        """RDMA / TCP, in bytes/s and so in operations/s."""
        return self.rdma.bytes_per_s / self.tcp.bytes_per_s


@contextmanager
def network(fabric: str) -> Iterator[None]:
    """Gives each host of *fabric* a nupa_net0 while the block runs.

    NetworkError: an interface cannot be made, and none stays; or one cannot be removed.
    """
    # Imported here because they import pyroute2.
    from nupa.netdev.down import down
    from nupa.netdev.up import up
    from nupa.netdev.wish import Wish

    try:
        up(fabric, Wish())
    except NupaError as error:
        raise NetworkError(" ".join(str(error).split())) from error
    try:
        yield
    finally:
        left = down(fabric).left
        if left:
            said = "; ".join(f"{host}: {why}" for host, why in left.items())
            raise NetworkError(f"interfaces stay: {said}")


@dataclass(frozen=True)
class HostPair:
    """The fabric and its two hosts, the server first; *address* is the server's."""

    fabric: str
    hosts: tuple[str, str]
    address: str
    mover: str | None = None

    def command(self, job: fio.Job, role: fio.Role) -> list[str]:
        host = self.hosts[0 if role == "server" else 1]
        argv = job.command(role)
        if job.carrier == "rdma":
            return nupa_run(argv, fabric=self.fabric, host=host, mover=self.mover)
        return [*NUPA, "net", "exec", "--fabric", self.fabric, host, "--", *argv]


def host_pair(fabric: str, hosts: tuple[str, str], mover: str | None) -> HostPair:
    """Looks up the server's address.  NupaError: there is no such fabric or host."""
    with Fabric.open(fabric) as found:
        return HostPair(fabric, hosts, found.host(hosts[0]).ipv4, mover)


def run(
    job: fio.Job,
    hosts: HostPair,
    *,
    deadline_s: float = 20.0,
    tick: Callable[[float], None] | None = None,
) -> fio.Rate:
    """Runs one job.  ProgramError: fio failed or was killed; FioError: it measured nothing."""
    pair = ProgramPair(
        hosts.command(job, "server"),
        hosts.command(job, "client"),
        env=job.environment(),
        ready=fio.READY,
        deadline_s=deadline_s,
        tick=tick,
    )
    return fio.parse(pair.run().check().client.stdout)
