# SPDX-License-Identifier: BSD-3-Clause
"""The transports between two guests: RDMA devices, and the networks beneath TCP."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Literal

from nupa.base.errors import LocalError

Network = Literal["nupa_net0", "eth0"]


@dataclass(frozen=True)
class StorageTransport:
    """A way from the initiator to the target."""

    name: str
    what: str
    rdma: bool
    network: Network  #: whose addresses both ends use
    modules: tuple[str, ...] = ()
    nupa_modules: bool = False  #: NUPA's own are in the guests
    programs: tuple[str, ...] = ()
    make: tuple[str, ...] = ()  #: a command that makes the device in a guest; empty: it is there
    remove: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """As the scripts and the kernel call it."""
        return "rdma" if self.rdma else "tcp"


#: nupa_rdma makes its device once nupa_net0 is up, in a thread of its own.
_AWAIT_DEVICE = "until rdma link show nupa_rdma0/1 >/dev/null 2>&1; do sleep 0.05; done"

#: In the order in which they are measured.  One RDMA device at a time is in a guest: the one that
#: is there from the start comes first.
TRANSPORTS = (
    StorageTransport(
        "nupa",
        "RDMA by NUPA's kernel modules",
        rdma=True,
        network="nupa_net0",
        nupa_modules=True,
        programs=("rdma",),
        make=("sh", "-c", _AWAIT_DEVICE),
        remove=("rdma", "link", "delete", "nupa_rdma0"),
    ),
    StorageTransport(
        "rxe",
        "RDMA by the kernel's rdma_rxe, over nupa_net0",
        rdma=True,
        network="nupa_net0",
        modules=("rdma_rxe",),
        programs=("rdma",),
        make=("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "nupa_net0"),
        remove=("rdma", "link", "delete", "rxe0"),
    ),
    StorageTransport("tcp", "TCP over nupa_net0", rdma=False, network="nupa_net0"),
    StorageTransport("virtio", "TCP over virtio-net", rdma=False, network="eth0"),
)


def named(text: str) -> tuple[StorageTransport, ...]:
    """Returns the transports of a list like "rxe,tcp", in the order of TRANSPORTS.

    LocalError: a name is unknown.
    """
    wanted = text.split(",")
    known = [transport.name for transport in TRANSPORTS]
    for name in wanted:
        if name not in known:
            raise LocalError(
                f"{name!r} is not a transport: there are {', '.join(known)}", errno.EINVAL
            )
    return tuple(transport for transport in TRANSPORTS if transport.name in wanted)
