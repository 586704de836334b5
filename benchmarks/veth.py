# SPDX-License-Identifier: BSD-3-Clause
"""A veth pair between this network namespace, which must be a new one, and a second one.

`unshare --net python -m benchmarks.veth MTU_BYTES` prints for each end its address and the words
before a command that runs there.  The process and the pair end with its standard input.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import PIPE, Popen

from pyroute2 import IPRoute, netns

_ADDRESSES = ("10.0.0.1", "10.0.0.2")


def _configure(name: str, address: str) -> None:
    with IPRoute() as route:
        (index,) = route.link_lookup(ifname=name)
        route.addr("add", index=index, address=address, prefixlen=24)
        route.link("set", index=index, state="up")


def _enter(namespace_fd: int) -> str:
    own = Path(f"/proc/{os.getpid()}")
    command = ["nsenter", f"--net={own}/fd/{namespace_fd}"]
    if (own / "ns/user").readlink() != Path(f"/proc/{os.getppid()}/ns/user").readlink():
        command[1:1] = ["--preserve-credentials", f"--user={own}/ns/user"]
    return " ".join(command)


def main() -> None:
    mtu_bytes = int(sys.argv[1])
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    with IPRoute() as route:
        if len(route.get_links()) > 1:
            sys.exit("this network namespace has interfaces: start this by `unshare --net`")
    with Popen(["unshare", "--net", "cat"], stdin=PIPE, stdout=PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write(b"\n")
        other.stdin.flush()
        other.stdout.readline()  # it is in its own namespace by now
        there = os.open(f"/proc/{other.pid}/ns/net", os.O_RDONLY)
        with IPRoute() as route:
            peer = {"ifname": "veth1", "net_ns_fd": there, "mtu": mtu_bytes}
            route.link("add", ifname="veth0", kind="veth", peer=peer, mtu=mtu_bytes)
        _configure("veth0", _ADDRESSES[0])
        netns.setns(there)
        _configure("veth1", _ADDRESSES[1])
        for address, namespace in zip(_ADDRESSES, (here, there), strict=True):
            print(f"{address}: {_enter(namespace)}")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
