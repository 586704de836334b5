# SPDX-License-Identifier: BSD-3-Clause
"""The request of `net up`, checked before anything is made."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from nupa.base.errors import LocalError
from nupa.fabric import registry
from nupa.netdev import address, interface

if TYPE_CHECKING:
    from nupa.fabric import Fabric

_HERE = "/proc/self/ns/net"


class Wish(NamedTuple):
    """The request.  hosts: names or numbers; empty: all.  None: as it is, or the default.

    netns: a path or a pid, for the namespace of one host; else `net up` makes one.
    lent: new interfaces go with their last user, and are not made permanent.
    """

    hosts: Sequence[str] = ()
    mtu_bytes: int | None = None
    queues: int | None = None
    netns: str | None = None
    lent: bool = False

    @property
    def is_here(self) -> bool:
        """Tells whether it is for the network of this machine, a guest."""
        return self.netns == _HERE


def check(wish: Wish) -> None:
    """Raises LocalError if it cannot be fulfilled on any machine."""
    if wish.netns is not None and len(wish.hosts) != 1:
        raise LocalError(
            "--netns is for the interface of one host: name it with --host", errno.EINVAL
        )
    if wish.mtu_bytes is not None:
        address.check_mtu(wish.mtu_bytes)
    if wish.queues is not None and not 1 <= wish.queues <= interface.QUEUES_MAX:
        raise LocalError(
            f"{wish.queues} queues: an interface has 1 to {interface.QUEUES_MAX}", errno.EINVAL
        )


def check_kernels(wish: Wish) -> None:
    """Raises LocalError if it would change an interface of the module nupa_net."""
    if wish.mtu_bytes is not None or wish.queues is not None:
        raise LocalError(
            f"{interface.NAME} is this kernel's own (module nupa_net): "
            f"`ip link set {interface.NAME} mtu BYTES` changes it, and it has one queue",
            errno.EEXIST,
        )


def of_this_machine(fabric: Fabric, wish: Wish) -> Wish:
    """Returns the wish in a guest, where the fabric is a device: its own host, in its own
    network."""
    if registry.reference(fabric.name, os.path.abspath(fabric.path)) == fabric.name:  # noqa: PTH100
        return wish
    hosts = wish.hosts or [host for host in [os.environ.get("NUPA_HOST")] if host]
    if len(hosts) != 1:
        raise LocalError(
            f"the hosts of the fabric {fabric.name!r} are machines: name this one with --host",
            errno.EINVAL,
        )
    return wish._replace(hosts=hosts, netns=wish.netns or _HERE)
