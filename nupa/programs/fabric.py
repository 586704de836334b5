# SPDX-License-Identifier: BSD-3-Clause
"""The temporary fabric of a demo or a benchmark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from nupa.core.channel import channels
from nupa.fabric import Fabric
from nupa.topology import file as topology_file
from nupa.topology.topology import star


@contextmanager
def temporary_fabric(purpose: str, hosts: int | None = None) -> Iterator[Fabric]:
    """Makes a fabric named PURPOSE-PID, which ends with its last user.

    It has *hosts* hosts at one switch; None: it is of the default preset.

    It ends even if this process is killed.  NupaError: it cannot be made.
    """
    name = f"{purpose}-{os.getpid()}"
    topology = star(hosts) if hosts else topology_file.load(topology_file.DEFAULT_PRESET)
    with Fabric.create(name, topology, auto=True) as fabric:
        yield fabric


def movers(fabric: Fabric) -> set[str]:
    """Returns the movers of bulk data between processes; empty before their first contact."""
    return {
        str(channel.mover) for channel in channels(fabric) if channel.from_pid != channel.to_pid
    }
