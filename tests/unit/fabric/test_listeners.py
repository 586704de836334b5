# SPDX-License-Identifier: BSD-3-Clause
"""rdma_cm's listeners, as a fabric shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.verbs import Context
from nupa.verbs import cm_enums as ce
from nupa.verbs.cmid import CMID, AddrInfo, CMEventChannel


@pytest.mark.parametrize(
    ("address", "port_space", "found"),
    [
        ("10.0.0.1", ce.RDMA_PS_TCP, ("tcp", "ipv4", "host")),
        ("127.0.0.1", ce.RDMA_PS_UDP, ("udp", "ipv4", "loopback")),
        ("0.0.0.0", ce.RDMA_PS_TCP, ("tcp", "ipv4", "any")),
        ("::", ce.RDMA_PS_TCP, ("tcp", "ipv6", "any")),
        ("fd4e:5550:4100::1", ce.RDMA_PS_TCP, ("tcp", "ipv6", "host")),
        ("fe80::aff:fe00:1", ce.RDMA_PS_UDP, ("udp", "ipv6", "link-local")),
    ],
)
def test_a_listener_is_shown_until_it_is_closed(
    fabric: Fabric, address: str, port_space: int, found: tuple[str, str, str]
) -> None:
    assert fabric.show()["listeners"] == []
    with Context(fabric=fabric, host=0) as ctx:
        channel = CMEventChannel()
        listener = CMID(channel, port_space=port_space, context=ctx)
        listener.bind_addr(AddrInfo(address, None, "7471", None, port_space, ce.RAI_PASSIVE))
        assert fabric.show()["listeners"] == []  # bound is not listening
        listener.listen()
        space, family, kind = found
        assert fabric.show()["listeners"] == [
            {
                "host": "host0",
                "pid": os.getpid(),
                "comm": Path("/proc/self/comm").read_text().strip(),
                "space": space,
                "port": 7471,
                "family": family,
                "address": kind,
            }
        ]
        listener.close()
        assert fabric.show()["listeners"] == []
        channel.close()
