# SPDX-License-Identifier: BSD-3-Clause
"""Programs on hosts of different machines: perftest, rping, UCX and Open MPI, unmodified."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from nupa.programs.pair import PairResult
from tests.programs.needs import needs
from tests.trunk.lab import Cluster, Machine

pytestmark = pytest.mark.timeout(240)

PORT = 18515
MPI = Path(__file__).parents[1] / "ecosystem" / "mpi"


def meet(
    lab: Cluster,
    server: list[str],
    client: list[str],
    *,
    port: int = PORT,
    hosts: tuple[str, str] = ("host0", "host2"),
    env: dict[str, str] | None = None,
) -> PairResult:
    """Runs a server on alpha, and its client on beta once the server listens on TCP *port*."""
    alpha, beta = lab[0], lab[1]
    first = lab.start(alpha.on(hosts[0], *server), env)
    alpha.await_listener(first, port)
    outcome = lab.start(beta.on(hosts[1], *client), env).wait(60)
    return PairResult(first.wait(20 if outcome.ok else 1), outcome, 0.0).check()


@pytest.mark.parametrize(
    "command",
    [
        ["ib_send_lat", "-s", "4096", "-n", "50"],
        ["ib_send_bw", "-a", "-n", "50"],
        ["ib_write_lat", "-s", "8", "-n", "50"],
        ["ib_write_bw", "-a", "-n", "50"],
        ["ib_read_lat", "-s", "4096", "-n", "50"],
        ["ib_read_bw", "-a", "-n", "50"],
        ["ib_atomic_lat", "-n", "50"],
        ["ib_atomic_bw", "-A", "CMP_AND_SWAP", "-n", "50"],
        ["ib_send_lat", "-c", "UC", "-s", "4096", "-n", "50"],
        ["ib_send_lat", "-c", "UD", "-s", "2048", "-n", "50"],
        ["ib_write_bw", "-q", "4", "-b", "-s", "65536", "-n", "200"],
        ["ib_send_bw", "-e", "-s", "4096", "-n", "200"],
        ["ib_send_lat", "-R", "-s", "64", "-n", "50"],
    ],
    ids=" ".join,
)
def test_perftest_between_machines(joined: Cluster, command: list[str]) -> None:
    needs(command[0], "perftest")
    to = joined[0].space.ipv4 if "-R" not in command else "10.0.0.1"
    words = [*command, "-p", str(PORT), "-F"]
    if "-R" in command:
        result = joined.meet_cm(words, [*words, to], PORT)
    else:
        result = meet(joined, words, [*words, to])
    sizes = re.findall(r"^ (\d+) +\d+ ", result.client.stdout, re.MULTILINE)
    # Sizes 2 to 8 MiB, or one.
    assert len(sizes) == (23 if "-a" in command else 1), result.client.stdout


def test_rping_validates_its_data(joined: Cluster) -> None:
    rping = needs("rping", "rdmacm-utils")
    words = [rping, "-V", "-v", "-C", "20", "-S", "4096", "-p", "7174"]
    result = joined.meet_cm([*words, "-s"], [*words, "-c", "-a", "10.0.0.1"], 7174)
    assert result.client.stdout.count("ping data: ") == 20


@pytest.mark.parametrize("transport", ["rc_v", "ud_verbs"])
@pytest.mark.parametrize("test", ["tag_lat", "tag_bw", "ucp_put_bw", "ucp_get", "ucp_fadd"])
def test_ucx_between_machines(joined: Cluster, transport: str, test: str) -> None:
    command = [
        needs("ucx_perftest", "ucx-utils"),
        "-t",
        test,
        "-n",
        "500",
        "-w",
        "10",
        "-p",
        "7175",
    ]
    env = {"UCX_TLS": f"{transport},self", "UCX_NET_DEVICES": "nupa_rdma0:1"}
    result = meet(joined, command, [*command, joined[0].space.ipv4], port=7175, env=env)
    assert re.search(r"^Final:\s+500", result.client.stdout, re.MULTILINE), result.client.stdout


def mpirun(lab: Cluster, folder: Path, program: Path, transport: str, each: int) -> list[str]:
    """Returns the command line of *each* ranks on each machine, each on a host of its own."""
    needs("mpirun", "openmpi-bin")
    places = ",".join(f"{machine.space.ipv4}:{each}" for machine in lab.machines)
    ranks = each * len(lab.machines)
    chosen = {
        "pml": "ucx",
        "osc": "ucx",
        "btl": "^openib",
        "btl_base_warn_component_unused": "0",
        "plm_rsh_agent": lab.ssh,
        "oob_tcp_if_include": "eth0",
    }
    words = ["mpirun", "--allow-run-as-root", "-n", str(ranks), "--host", places]
    for name, value in chosen.items():
        words += ["--mca", name, value]
    words += ["-x", f"UCX_TLS={transport},self", "-x", "UCX_NET_DEVICES=nupa_rdma0:1"]
    words += ["--wdir", str(folder), *lab.nupa_words, "run", "--fabric", "lab", "--", str(program)]
    return lab[0].space.argv("env", f"NUPA_DIR={lab[0].folder}", *words)


def check_ranks(lab: Cluster, folder: Path, transport: str, each: int) -> None:
    """Checks that all ranks have the right data, and that all machines' hosts have moved some."""
    program = folder / "allreduce"
    compiler = needs("mpicc", "libopenmpi-dev")
    subprocess.run([compiler, "-O1", "-o", program, MPI / "allreduce.c"], check=True)
    output = lab.start(mpirun(lab, folder, program, transport, each)).wait(150).check().stdout
    ranks = each * len(lab.machines)
    right = re.findall(rf"^rank (\d) of {ranks}: \d+ elements right$", output, re.MULTILINE)
    assert sorted(map(int, right)) == list(range(ranks))
    # The largest all-to-all alone has 2 MiB blocks.
    for machine in lab.machines:
        assert all(moved > (ranks - 1) * (2 << 20) for moved in moved_bytes(machine).values())


@pytest.mark.parametrize("transport", ["rc_v", "ud_verbs"])
def test_mpi_ranks_on_both_machines_have_the_right_data(
    joined: Cluster, tmp_path: Path, transport: str
) -> None:
    check_ranks(joined, tmp_path, transport, 2)


def test_mpi_ranks_on_three_machines_have_the_right_data(three: Cluster, tmp_path: Path) -> None:
    check_ranks(three, tmp_path, "rc_v", 1)


def moved_bytes(machine: Machine) -> dict[str, int]:
    """Returns the counters of the ports of the machine's own hosts."""
    shown = machine.show()
    (own,) = [each["hosts"] for each in shown["machines"] if each["name"] == machine.name]
    ports = {port["name"]: port["counters"] for port in shown["ports"]}
    return {
        host["name"]: 4
        * (ports[host["port"]]["port_xmit_data"] + ports[host["port"]]["port_rcv_data"])
        for host in shown["hosts"]
        if host["name"] in own
    }
