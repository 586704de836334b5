# SPDX-License-Identifier: BSD-3-Clause
"""rdma_cm between two machines: stock programs connect by the addresses of a wire."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.common.impair import Impairment, impaired
from tests.wire.lab import Wired

DEADLINE_S = 60
PORT = "7174"
RETRY_EXC_ERR = 12  # IBV_WC_RETRY_EXC_ERR

#: Of a server on the left machine and a client on the right one, which appends the address.
SERVERS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "rping": (
        ("rping", "-s", "-C", "20", "-v", "-V", "-p", PORT, "-a", "{any}"),
        ("rping", "-c", "-C", "20", "-v", "-V", "-p", PORT, "-a", "{left}"),
    ),
    "rping of two rounds": (
        ("rping", "-s", "-C", "2", "-v", "-V", "-p", PORT, "-a", "{any}"),
        ("rping", "-c", "-C", "2", "-v", "-V", "-p", PORT, "-a", "{left}"),
    ),
    "ucmatose of two messages": (
        ("ucmatose", "-c", "4", "-C", "2", "-p", PORT),
        ("ucmatose", "-c", "4", "-C", "2", "-p", PORT, "-s", "{left}"),
    ),
    "ucmatose": (
        ("ucmatose", "-c", "4", "-C", "20", "-p", PORT),
        ("ucmatose", "-c", "4", "-C", "20", "-p", PORT, "-s", "{left}"),
    ),
    "udaddy": (
        ("udaddy", "-c", "2", "-C", "10"),
        ("udaddy", "-c", "2", "-C", "10", "-s", "{left}"),
    ),
    "udaddy without data": (
        ("udaddy", "-c", "4", "-C", "0"),
        ("udaddy", "-c", "4", "-C", "0", "-s", "{left}"),
    ),
    "rdma_server": (
        ("rdma_server", "-p", PORT),
        ("rdma_client", "-p", PORT, "-s", "{left}"),
    ),
    "rstream": (
        ("rstream", "-p", PORT, "-S", "4096", "-C", "50"),
        ("rstream", "-p", PORT, "-S", "4096", "-C", "50", "-s", "{left}"),
    ),
    "riostream": (
        ("riostream", "-p", PORT, "-S", "4096", "-C", "50"),
        ("riostream", "-p", PORT, "-S", "4096", "-C", "50", "-s", "{left}"),
    ),
}
SERVERS |= {
    f"{program} -R": (
        (program, "-R", "-F", "-n", "100", "-p", PORT),
        (program, "-R", "-F", "-n", "100", "-p", PORT, "{left}"),
    )
    for program in ("ib_write_bw", "ib_read_lat", "ib_send_bw", "ib_atomic_bw")
}

#: Not udaddy: a server of it ends behind its last SIDR_REP, which nothing acknowledges.
_LOSSY = ("rping of two rounds", "ucmatose of two messages", "rdma_server")


def listens(wire: Wired) -> bool:
    return any(PORT in str(row) for row in wire.show().get("listeners", ()))


def meet(wire: Wired, name: str) -> None:
    """Runs both programs to their ends; the client starts when the server listens."""
    any_address = "::" if ":" in wire.addresses[0] else "0.0.0.0"
    words = {"left": wire.addresses[0], "any": any_address}
    server, client = ([word.format(**words) for word in command] for command in SERVERS[name])
    with wire.start(0, server) as running:
        while not listens(wire):
            assert running.running, running.outcome().describe()
        wire.on(1, client, DEADLINE_S).check()
        running.wait(DEADLINE_S).check()


@pytest.mark.parametrize("name", SERVERS)
def test_a_program_meets_its_partner_on_the_other_machine(wire: Wired, name: str) -> None:
    meet(wire, name)


# A lost packet with none behind it costs the 2.1 s of rdma_cm's timer, so messages are few: those
# of connection management are many.
@pytest.mark.timeout(150)
@pytest.mark.parametrize("seed", [1, 2])
def test_connections_are_made_though_packets_are_lost_doubled_and_late(
    wire: Wired, impair: str, seed: int
) -> None:
    impairment = Impairment(loss=0.05, duplicate=0.02, reorder=0.02)
    left, right = wire.machines
    with impaired(impair, left, right, impairment, seed=seed) as counts:
        for name in _LOSSY:
            meet(wire, name)
    assert counts["lost"] > 0


def test_nobody_listens_there(wire: Wired) -> None:
    outcome = wire.on(1, ("rping", "-c", "-p", "7999", "-a", wire.addresses[0]))
    assert outcome.returncode != 0
    assert "RDMA_CM_EVENT_REJECTED, error 8" in outcome.stdout + outcome.stderr


@pytest.mark.parametrize("dead", ["server", "client"])
def test_a_death_is_told_before_a_request_times_out(wire: Wired, dead: str) -> None:
    argv = {
        "server": ("rping", "-s", "-v", "-p", PORT, "-a", "0.0.0.0"),
        "client": ("rping", "-c", "-v", "-p", PORT, "-a", wire.addresses[0]),
    }
    with wire.start(0, argv["server"]) as server:
        while not listens(wire):
            assert server.running, server.outcome().describe()
        with wire.start(1, argv["client"]) as client:
            server.wait_said("ping data", DEADLINE_S)
            client.wait_said("ping data", DEADLINE_S)
            killed, left = (server, client) if dead == "server" else (client, server)
            killed.kill("is dead")
            left.wait_said("DISCONNECT EVENT", DEADLINE_S)
            output = left.said()[1]
    assert f"status {RETRY_EXC_ERR}" not in output[: output.index("DISCONNECT EVENT")]
