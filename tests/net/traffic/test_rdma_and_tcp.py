# SPDX-License-Identifier: BSD-3-Clause
"""Programs that use TCP for their handshake and RDMA for their data, between namespaces.

Both go to the same addresses: those of nupa_net0 are the GIDs of nupa_rdma0, and rdma_cm's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from ipaddress import IPv6Address

import pytest

from nupa.programs.pair import Program, ProgramOutcome
from tests.net.lab import DEADLINE_S, Net
from tests.programs.needs import needs
from tests.programs.rdmacm.test_rdmacm import pings
from tests.programs.stage import sizes_of

HOST0, HOST1 = "10.0.0.1", "10.0.0.2"
IPV6 = {"host0": "fd4e:5550:4100::1", "host1": "fd4e:5550:4100::2"}

GIDS = """
import json, socket
from nupa.verbs import Context
with Context(name="nupa_rdma0") as context:
    entries = context.query_gid_table(16)
print(json.dumps({
    "gids": [entry.gid().gid for entry in entries],
    "netdevs": [entry.ndev_ifindex for entry in entries],
    "index": {name: index for index, name in socket.if_nameindex()}.get("nupa_net0", 0),
}))
"""


def answer(
    net: Net, server: Program, client: Sequence[str]
) -> tuple[ProgramOutcome, ProgramOutcome]:
    """Returns how *server* on host1 and *client* on host0 ended, both well."""
    asked = net.exec("host0", client, shell=True)
    server.wait(DEADLINE_S)
    served = server.outcome()
    assert served.ok, served.describe()
    return asked, served


def over_tcp(net: Net, command: Sequence[str], port: int, to: str = HOST1) -> ProgramOutcome:
    """Runs client and server of perftest's and libibverbs-utils' sort, which meet by TCP."""
    argv = [*command, "-p", str(port)]
    server = net.start("host1", argv, shell=True)
    net.listening("host1", port, server)
    return answer(net, server, [*argv, to])[0]


def over_cm(
    net: Net, server_argv: Sequence[str], client: Sequence[str], port: int
) -> ProgramOutcome:
    """Runs both, which meet by rdma_cm."""
    server = net.start("host1", server_argv, shell=True)

    def listeners() -> list[dict[str, int]]:
        shown: dict[str, list[dict[str, int]]] = json.loads(net.ok("show", "--json").stdout)
        return shown["listeners"]

    while port not in [listener["port"] for listener in listeners()]:
        assert server.running, server.outcome().describe()
    return answer(net, server, client)[0]


@pytest.mark.parametrize("host", ["host0", "host1"])
def test_the_addresses_of_the_netdev_are_the_gids_of_the_device(
    net_by_user: Net, host: str
) -> None:
    python = net_by_user.user.python
    shown = json.loads(net_by_user.exec(host, [python, "-P", "-c", GIDS], shell=True).stdout)
    query = [needs("ip", "iproute2"), "-j", "addr", "show", "dev", "nupa_net0"]
    (netdev,) = json.loads(net_by_user.exec(host, query).stdout)
    addresses = {
        IPv6Address(f"::ffff:{at['local']}" if at["family"] == "inet" else at["local"])
        for at in netdev["addr_info"]
    }
    assert len(addresses) == 3
    assert {IPv6Address(gid) for gid in shown["gids"]} == addresses
    assert IPv6Address(IPV6[host]) == IPv6Address(shown["gids"][2])
    assert shown["netdevs"] == [netdev["ifindex"]] * 3 == [shown["index"]] * 3


def test_outside_of_a_namespace_a_gid_has_no_netdev(net: Net) -> None:
    argv = net.argv("run", "--host", "host0", "--", net.user.python, "-P", "-c", GIDS)
    outcome = net.run(argv).check()
    assert json.loads(outcome.stdout)["netdevs"] == [0, 0, 0]


@pytest.mark.parametrize("program", ["ib_write_bw", "ib_read_lat"])
def test_perftest_shakes_hands_by_tcp_and_moves_data_by_rdma(
    net_by_user: Net, program: str
) -> None:
    command = [needs(program, "perftest"), "-F", "-s", "4096", "-n", "500"]
    found = over_tcp(net_by_user, command, 18515)
    assert sizes_of(found.stdout) == [4096]


@pytest.mark.parametrize("gid_index", [0, 1, 2])
def test_each_gid_leads_to_the_other_host(net: Net, gid_index: int) -> None:
    command = [needs("ib_send_bw", "perftest"), "-F", "-s", "1024", "-n", "100"]
    found = over_tcp(net, [*command, "-x", str(gid_index)], 18515)
    assert sizes_of(found.stdout) == [1024]


def test_perftest_meets_by_rdma_cm_at_the_address_of_the_netdev(net_by_user: Net) -> None:
    command = [needs("ib_send_lat", "perftest"), "-F", "-R", "-s", "64", "-n", "500"]
    found = over_cm(net_by_user, command, [*command, HOST1], 18515)
    assert sizes_of(found.stdout) == [64]


@pytest.mark.parametrize(
    ("bind", "to"),
    [
        ((), HOST1),
        (("-a", HOST1), HOST1),
        (("-a", "::"), IPV6["host1"]),
        (("-a", IPV6["host1"]), IPV6["host1"]),
    ],
)
def test_rping_over_ipv4_and_ipv6(net: Net, bind: Sequence[str], to: str) -> None:
    rping = needs("rping", "rdmacm-utils")
    own = HOST0 if "." in to else IPV6["host0"]
    count = ["-C", "5", "-v", "-V", "-p", "7174"]
    found = over_cm(
        net, [rping, "-s", *bind, *count], [rping, "-c", "-a", to, "-I", own, *count], 7174
    )
    assert pings(found.stdout) == list(range(5))


@pytest.mark.parametrize("gid_index", [1, 2])
def test_ibv_rc_pingpong_at_the_address_of_the_netdev(net: Net, gid_index: int) -> None:
    command = [needs("ibv_rc_pingpong", "ibverbs-utils"), "-g", str(gid_index), "-n", "200", "-c"]
    found = over_tcp(net, command, 18515)
    assert "200 iters in" in found.stdout


@pytest.mark.parametrize(("provider", "kind"), [("verbs", "msg"), ("verbs;ofi_rxm", "rdm")])
def test_libfabric_has_one_address_for_tcp_and_for_rdma_cm(
    net: Net, provider: str, kind: str
) -> None:
    command = [needs("fi_pingpong", "libfabric-bin"), "-p", provider, "-e", kind, "-c"]
    server = net.start("host1", [*command, "-B", "47592"], shell=True)
    net.listening("host1", 47592, server)
    found, _ = answer(net, server, [*command, "-P", "47592", HOST1])
    sizes = re.findall(r"^(\S+)\s+10\s+=10\s", found.stdout, re.MULTILINE)
    assert sizes == ["64", "256", "1k", "4k", "64k", "1m"]


def test_loopback_of_a_namespace_is_its_host_alone(net: Net) -> None:
    rping = [needs("rping", "rdmacm-utils"), "-C", "1", "-v"]
    to_itself = [*rping, "-c", "-a", "127.0.0.1"]
    server = net.start("host1", [*rping, "-s"], shell=True)
    while not json.loads(net.ok("show", "--json").stdout)["listeners"]:
        assert server.running, server.outcome().describe()
    refused = net.exec("host0", to_itself, shell=True, check=False)
    assert "RDMA_CM_EVENT_REJECTED, error 8" in refused.stdout + refused.stderr
    assert "Connect to: rping" in refused.stderr
    assert pings(net.exec("host1", to_itself, shell=True).stdout) == [0]
    assert server.wait(DEADLINE_S).ok
