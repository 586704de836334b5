# SPDX-License-Identifier: BSD-3-Clause
"""127.0.0.1 where hosts of one machine listen or do not, and the line that says so."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nupa.programs.pair import NUPA, ProgramOutcome
from tests.ecosystem.lab import Lab
from tests.programs.needs import needs

PORT = 7174

#: rsockets of <rdma/rsocket.h>: prints the errno of each connect to 127.0.0.1.
CONNECTS = f"""
import ctypes, signal, socket, sys
rdma = ctypes.CDLL("librdmacm.so.1", use_errno=True)
address = socket.AF_INET.to_bytes(2, sys.byteorder) + ({PORT}).to_bytes(2, "big")
address += socket.inet_aton("127.0.0.1") + bytes(8)
for _ in range(3):
    sock = rdma.rsocket(socket.AF_INET, socket.SOCK_STREAM, 0)
    assert rdma.rconnect(sock, address, len(address)) == -1
    print(ctypes.get_errno())
"""

#: Listens there under the name of its first argument.
LISTENS = f"""
import ctypes, signal, socket, sys
open("/proc/self/comm", "wb").write(sys.argv[1].encode())
rdma = ctypes.CDLL("librdmacm.so.1", use_errno=True)
address = socket.AF_INET.to_bytes(2, sys.byteorder) + ({PORT}).to_bytes(2, "big") + bytes(12)
sock = rdma.rsocket(socket.AF_INET, socket.SOCK_STREAM, 0)
assert rdma.rbind(sock, address, len(address)) == 0
assert rdma.rlisten(sock, 8) == 0
signal.pause()
"""


def rping(*options: str) -> list[str]:
    return [needs("rping", "rdmacm-utils"), "-C", "1", *options]


def refused(fabric: Lab, command: Sequence[str], host: str | None = None) -> ProgramOutcome:
    outcome = fabric.run(fabric.on(host, *command))
    assert outcome.returncode != 0
    assert "RDMA_CM_EVENT_REJECTED, error 8" in outcome.stdout + outcome.stderr
    return outcome


def hints(outcome: ProgramOutcome) -> list[str]:
    return [line for line in outcome.stderr.splitlines() if line.startswith("nupa: ")]


def test_of_several_hosts_that_listen_the_lowest_is_reached(fabric: Lab) -> None:
    server, client = rping("-s"), rping("-c", "-a", "127.0.0.1")
    with (
        fabric.meet(server, ["true"], port=PORT, hosts=("host3", "host0")) as high,
        fabric.start(fabric.on("host2", *server)) as low,
    ):
        while sum(at["port"] == PORT for at in fabric.show()["listeners"]) < 2:
            assert low.running
            assert high.elapsed_s < high.deadline_s
        fabric.must(fabric.on(None, *client))
        low.wait(high.deadline_s).check()
        assert high.server.running
        fabric.must(fabric.on(None, *client))
        high.server.wait(high.deadline_s).check()


def test_a_program_with_a_host_of_its_own_is_told_where_its_partner_is(fabric: Lab) -> None:
    with fabric.meet(
        rping("-s"), rping("-c", "-a", "127.0.0.1"), port=PORT, hosts=("host0", "host1")
    ) as pair:
        client = pair.client.wait(pair.deadline_s)
        pid = fabric.show()["listeners"][0]["pid"]
        assert pair.server.running
    assert hints(client) == [
        "nupa: rdma_connect: no program listens at 127.0.0.1, TCP port 7174, which is here the own "
        f"host, host1.  Connect to: rping (process {pid}) on host0, 10.0.0.1 port 7174"
    ]


def test_a_refusal_names_listeners_on_other_ports(fabric: Lab) -> None:
    with fabric.meet(rping("-s"), ["true"], port=PORT) as pair:
        pid = fabric.show()["listeners"][0]["pid"]
        outcome = refused(fabric, rping("-c", "-a", "127.0.0.1", "-p", "7175"))
        assert pair.server.running
    assert hints(outcome) == [
        "nupa: rdma_connect: no program listens at 127.0.0.1, TCP port 7175, nor on that port of "
        f"another host of fabric default.  These listen: rping (process {pid}) on host0, 10.0.0.1 "
        "port 7174"
    ]


def test_a_refusal_says_that_no_program_listens(fabric: Lab) -> None:
    assert hints(refused(fabric, rping("-c", "-a", "10.0.0.2"), "host0")) == [
        "nupa: rdma_connect: no program listens at 10.0.0.2, TCP port 7174, nor on that port of "
        "another host of fabric default.  Start the server first, on the same fabric"
    ]


def test_a_program_that_tries_again_is_told_once_and_a_quiet_one_never(fabric: Lab) -> None:
    script = fabric.on(None, sys.executable, "-c", CONNECTS)
    outcome = fabric.run(script).check()
    assert outcome.stdout.split() == ["111"] * 3  # ECONNREFUSED
    assert len(hints(outcome)) == 1
    assert fabric.run(script, env={"NUPA_QUIET": "1"}).check().stderr == ""


def test_a_listeners_name_cannot_steer_the_terminal(fabric: Lab) -> None:
    listens = [sys.executable, "-c", LISTENS, "\x1b[31m\a%s%n"]
    with fabric.meet(listens, ["true"], port=PORT):
        said = hints(refused(fabric, rping("-c", "-a", "127.0.0.1"), "host1"))
    assert len(said) == 1
    assert "?[31m?%s%n (process " in said[0]


def test_a_host_of_its_own_inside_of_nupa_run_keeps_its_loopback(fabric: Lab) -> None:
    inner = [*NUPA, "run", "--host", "host1", "--", "env"]
    assert "NUPA_LOOPBACK=machine" in fabric.must(fabric.on(None, "env")).splitlines()
    assert "NUPA_LOOPBACK" not in fabric.must(fabric.on(None, *inner))
