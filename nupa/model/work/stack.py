# SPDX-License-Identifier: BSD-3-Clause
"""A kernel's TCP over a fabric: the fabric's links and switches with the stack's endpoints."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from nupa.model.network.network import Network
from nupa.model.profile.figure import Case
from nupa.model.profile.profile import Profile

#: Figures that a stack takes from the fabric below it: its links and switches.
_LINKS = (
    "rate", "efficiency", "ports", "hop", "buffer", "radix", "domain", "switch_energy",
    "adapter_energy", "credit",
)  # fmt: skip
#: Figures that it has itself.
_STACK = ("mtu", "header", "software", "flow_rate", "message_rate")


def case_of(network: Network) -> Case:
    """Returns the case of a network's figures, for the profiles that are no part of it."""
    return network.levels[0].profile.case


def is_stack(profile: Profile) -> bool:
    """Returns whether a kernel's stack is at the endpoints of a fabric."""
    return "software" in profile.figures and "flow_rate" in profile.figures


def over(link: Profile, stack: Profile) -> Profile:
    """Returns the stack's segments on a fabric's links.

    A link with smaller packets carries a segment as several, with a header each; on others, the
    segment is a packet, with the greater of both headers.
    """
    if is_stack(link):
        return link
    figures = {name: link.figures[name] for name in _LINKS if name in link.figures}
    figures |= {name: stack.figures[name] for name in _STACK if name in stack.figures}
    segment = stack["mtu"] + stack["header"]
    packets = ceil(segment / link.get("mtu", segment))
    own = link.get("header")
    header = stack["header"] + packets * own if packets > 1 else max(stack["header"], own)
    figures["header"] = figures["header"]._replace(
        value=header, low=header, high=header, unit="B", source=f"{stack.name} on {link.name}"
    )
    return Profile(
        f"{stack.name} over {link.name}", stack.title, "fabric", figures, stack.envelope,
        case=link.case,
    )  # fmt: skip


def stacked(network: Network, stack: Profile) -> Network:
    """Returns the network as the users of a kernel's stack see it."""
    levels = tuple(replace(level, profile=over(level.profile, stack)) for level in network.levels)
    return replace(network, levels=levels, drawn=None)
