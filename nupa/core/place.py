# SPDX-License-Identifier: BSD-3-Clause
"""Ports by name: by the port's own, its host's, or its link's."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from nupa.base.errors import LocalError
from nupa.core.segment import HostInfo, PortInfo


def find_port(ports: Sequence[PortInfo], hosts: Sequence[HostInfo], which: str | int) -> PortInfo:
    """Finds a port by its own name, its host's name or number, or its link.

    Ports: "host0/1", "switch0/2".  Links, of which one port is returned: "host0/1-switch0/1", or
    "host0-switch0" if there is only one.
    LocalError: there is no such port (ENOENT), or several links match (EINVAL).
    """
    name = str(which)
    for port in ports:
        if port.name == name:
            return port
    for host in hosts:
        if name in (host.name, str(host.index)):
            return ports[host.port]
    links = [port for port in ports if _is_end(port, ports[port.peer], name)]
    if len(links) == 1:
        return links[0]
    if links:
        meant = ", ".join(f"{port.name}-{ports[port.peer].name}" for port in links)
        raise LocalError(f"{name!r} may be any of these links: {meant}", errno.EINVAL)
    of_node = [port.name for port in ports if _node(port) == name]
    known = of_node or [ports[host.port].name for host in hosts] + ["…"]
    raise LocalError(
        f"no port, host or link is named {name!r}: "
        f"{'its ports are' if of_node else 'ports are'} {', '.join(known)}; `nupa show` lists all",
        errno.ENOENT,
    )


def _is_end(port: PortInfo, peer: PortInfo, link: str) -> bool:
    """Compares whole names, since names of nodes may contain '-'."""
    return any(
        link == f"{end}-{other}"
        for end in (port.name, _node(port))
        for other in (peer.name, _node(peer))
    )


def _node(port: PortInfo) -> str:
    return port.name.rpartition("/")[0]
