# SPDX-License-Identifier: BSD-3-Clause
"""A fabric, a group of all its hosts, and what each host sees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from nupa.fabric import Fabric
from nupa.memory.group import GroupWindow

SIZE = 4 * 4096


@contextmanager
def grouped(hosts: int, size: int = SIZE) -> Iterator[tuple[Fabric, list[GroupWindow]]]:
    """Makes a fabric, a group of all its hosts, and a window of each."""
    with ExitStack() as stack:
        fabric = stack.enter_context(Fabric(hosts=hosts))
        group = stack.enter_context(fabric.group(range(hosts), size))
        yield fabric, [stack.enter_context(group.map(host)) for host in range(hosts)]
