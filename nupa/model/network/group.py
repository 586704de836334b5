# SPDX-License-Identifier: BSD-3-Clause
"""Groups of ranks at equal distances, and the network as the members of one see it."""

from __future__ import annotations

from dataclasses import replace

from nupa.model.errors import ModelError
from nupa.model.network.network import Network


def group(network: Network, stride: int, size: int, name: str = "the group") -> Network:
    """Returns the network of ranks 0, *stride*, 2 *stride*, …: *size* of them.

    All ranks have such a group, and all groups are busy at once: so each keeps its own ports, and
    its share of what is tapered.  Where members lie raggedly in the levels' groups, the most that
    divide them evenly count as neighbours: the slowest of such groups has no fewer.

    ModelError: the network has no such ranks.
    """
    if stride < 1 or size < 1 or stride * (size - 1) >= network.endpoints:
        raise ModelError(
            f"{name}: {size} ranks at a distance of {stride} were asked: {network.name} has "
            f"{network.endpoints} endpoints"
        )
    levels = []
    below, last = 1, len(network.levels) - 1
    for index, level in enumerate(network.levels):
        most = size if index == last else min(size, network.group_size(index) // stride)
        members = _even(size, below, most)
        levels.append(replace(level, groups=members // below))
        below = members
    return replace(network, name=f"{name} on {network.name}", levels=tuple(levels), drawn=None)


def _even(size: int, below: int, most: int) -> int:
    """Returns the largest divisor of *size* up to *most* that *below* divides; at least *below*."""
    steps = size // below
    found = max((each for each in range(1, most // below + 1) if not steps % each), default=1)
    return below * found
