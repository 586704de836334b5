# SPDX-License-Identifier: BSD-3-Clause
"""The fabric that a demo or a benchmark makes for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from nupa.core.channel import channels
from nupa.fabric import Fabric
from nupa.topology import file as topology_file


@contextmanager
def temporary_fabric(purpose: str) -> Iterator[Fabric]:
    """A fabric of the default preset, named PURPOSE-PID; it goes with its last user.

    So it goes even if this process is killed.  NupaError where it cannot be made.
    """
    name = f"{purpose}-{os.getpid()}"
    topology = topology_file.load(topology_file.DEFAULT_PRESET)
    with Fabric.create(name, topology, auto=True) as fabric:
        yield fabric


def movers(fabric: Fabric) -> set[str]:
    """How bulk moves now from process to process; empty before their first contact."""
    return {
        str(channel.mover) for channel in channels(fabric) if channel.from_pid != channel.to_pid
    }
