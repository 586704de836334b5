# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a wire's traffic: counters of ports, those of sysfs, and the table of wires."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from nupa.fabric.wires.entry import COUNTERS
from tests.common.impair import Impairment, impaired
from tests.wire.lab import HOSTS, Wired

ROUNDS = 200
SEED = 1
HW_COUNTERS = "/sys/class/infiniband/nupa_rdma0/ports/1/hw_counters"
#: Those of sysfs that are sums over the wires.
SUMS = {
    "np_ecn_marked_roce_packets": "ecn_marked",
    "np_cnp_sent": "cnp_sent",
    "rp_cnp_handled": "cnp_handled",
    "rx_icrc_encapsulated": "icrc_errors",
    "rx_roce_errors": "malformed",
    "rx_roce_discards": "foreign",
    "tx_roce_errors": "refused",
    "retrans_pkts": "retransmitted",
}


def counters(wire: Wired, end: int) -> dict[str, Any]:
    """Returns the counters of the port of the programs' host at that end."""
    (port,) = (each for each in wire.side(end).show()["ports"] if each["name"] == f"{HOSTS[end]}/1")
    found: dict[str, Any] = port["counters"]
    return found


def test_packets_that_come_by_a_wire_are_counted_at_the_port(wire: Wired) -> None:
    before = [counters(wire, end) for end in (0, 1)]
    wire.run_pair(["ib_read_lat", "-s", "512", "-n", str(ROUNDS)])
    after = [counters(wire, end) for end in (0, 1)]
    server, client = (
        {name: new[name] - old[name] for name in new}
        for old, new in zip(before, after, strict=True)
    )
    # A READ that is sent again, as a core was busy, is answered again.
    assert client["port_xmit_packets"] >= server["port_rcv_packets"] >= ROUNDS
    assert server["port_xmit_packets"] >= client["port_rcv_packets"] >= ROUNDS
    assert client["port_rcv_data"] >= ROUNDS * 512 // 4 > server["port_rcv_data"]


def listed(wire: Wired, end: int) -> list[dict[str, Any]]:
    """Returns `nupa wire ls --json`."""
    found: list[dict[str, Any]] = json.loads(wire.side(end).ok("wire", "ls", "--json"))
    return found


def sums(wires: list[dict[str, Any]]) -> Counter[str]:
    return Counter({name: sum(wire[name] for wire in wires) for name in COUNTERS})


def in_sysfs(wire: Wired, end: int) -> dict[str, int]:
    """Returns the values of SUMS in hw_counters, as a program there reads them."""
    files = [f"{HW_COUNTERS}/{name}" for name in SUMS]
    read = wire.on(end, ["cat", *files]).check().stdout.split()
    return dict(zip(SUMS.values(), map(int, read), strict=True))


def test_counters_of_sysfs_are_the_sums_of_the_wires(two_wires: Wired, impair: str) -> None:
    impairment = Impairment(loss=0.02, corrupt=0.03, mark=0.1)
    with impaired(impair, *two_wires.machines, impairment, seed=SEED):
        for gid in ("3", "4"):
            two_wires.run_pair(["ib_write_bw", "-x", gid, "-b", "-s", "4096", "-n", str(ROUNDS)])
    for end in (0, 1):
        before = sums(listed(two_wires, end))
        found = in_sysfs(two_wires, end)
        wires = listed(two_wires, end)
        for name, value in found.items():
            assert before[name] <= value <= sums(wires)[name], name
        for wire in wires:
            for name in ("icrc_errors", "ecn_marked", "cnp_sent", "cnp_handled", "retransmitted"):
                assert 0 < wire[name] < found[name], (wire, name)


def test_the_table_shows_what_was_lost_and_sent_again(wire: Wired, impair: str) -> None:
    with impaired(impair, *wire.machines, Impairment(loss=0.05), seed=SEED):
        wire.run_pair(["ib_write_bw", "-b", "-s", "4096", "-n", str(ROUNDS)])
    for end in (0, 1):
        (before,) = listed(wire, end)
        rows = [
            [word.strip() for word in row.split("  ") if word.strip()]
            for command in (["show"], ["wire", "ls"])
            for row in wire.side(end).ok(*command).splitlines()
        ]
        (after,) = listed(wire, end)
        heads = [at for at, row in enumerate(rows) if row[-1:] == ["SENT AGAIN"]]
        assert len(heads) == 2
        for at in heads:
            words = rows[at + 1]
            assert words[0] == wire.side(end).far[0]
            # A probe that was sent in between makes the share smaller.
            assert (
                after["loss"] - 1e-4 <= float(words[-2].strip("%")) / 100 <= before["loss"] + 1e-4
            )
            assert 0 < before["retransmitted"] == int(words[-1])
            assert before["loss"] > 0
