# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified programs between two ends, each with what says that it has worked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.programs.needs import needs
from tests.system.machine import new_port

from .ends import Conversation, End, by_tcp, talk

#: A perftest that could not measure its processor's clock says "inf".
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(?:[\d.]+|inf)\s", re.MULTILINE)
#: A test of qperf, and what it measured.
_MEASURED = re.compile(r"^(\w+):\n\s+\w+\s+=\s+(.+)", re.MULTILINE)
#: Transfers that io_demo has done, line by line.
_DONE = re.compile(r"\btotal min:\d+ max:\d+ total:(\d+)")
_TRANSFERS = 20
# UCX 1.13 may abort as it closes its adapter (ib_device.c:279), once the client has all.
_DONE_IS_DONE = '"$0" "$@" || :'
#: udaddy has no option for another.
_UDADDY_PORT = 7174
#: 1 s each: perftest's 67 ms are less than the round trip on a busy machine.
_TIMEOUT = ("-u", "18")
#: perftest -a: 2 to 2^23 bytes, each power of two.
ALL_SIZES = [1 << power for power in range(1, 24)]


def pingpong(server: End, client: End, kind: str, *options: str, rounds: int = 100) -> None:
    """Runs libibverbs' example, whose -c checks each byte (it does not for UD)."""
    found = by_tcp(
        server,
        client,
        f"ibv_{kind}_pingpong",
        "ibverbs-utils",
        *("-n", str(rounds), "-c", *options),
        each=("-d", "-g"),
    )
    for said in (found.server, found.client):
        assert f"{rounds} iters in" in said, said
        assert "invalid data" not in said, said


def perftest(
    server: End, client: End, name: str, *options: str, rounds: int = 20, sizes: int = 1
) -> Conversation:
    """Runs perftest's *name*: so many sizes have so many rounds."""
    words = ["-F", "-n", str(rounds), *_TIMEOUT, *options]
    found = by_tcp(server, client, name, "perftest", *words, each=("-d", "-x"))
    rows = [int(row[1]) for row in _ROW.findall(found.client)]
    pairs = int(options[options.index("-q") + 1]) if "-q" in options else 1
    assert len(rows) == sizes, found.client
    assert set(rows) == {rounds * pairs}, found.client
    return found


def checked(server: End, client: End, program: str, *options: str) -> None:
    """Runs c/checked.c: all operations of a transport, of which it checks each byte."""
    found = by_tcp(server, client, program, "gcc", *options, each=("-d", "-g"))
    for said in (found.server, found.client):
        assert "all bytes right" in said, said


def _by_cm(
    server: End,
    client: End,
    server_words: Sequence[str],
    client_words: Sequence[str],
    port: int,
) -> Conversation:
    return talk((server, server_words), (client, client_words), lambda _: server.listens_cm(port))


def rping(server: End, client: End, size: int = 64, rounds: int = 10) -> None:
    """Runs READs and WRITEs of strings that both ends check (-V)."""
    port = new_port()
    command = [needs("rping", "rdmacm-utils"), "-a", server.address, "-p", str(port)]
    command += ["-C", str(rounds), "-S", str(size), "-V", "-v"]
    found = _by_cm(server, client, [*command, "-s"], [*command, "-c"], port)
    assert f"rdma-ping-{rounds - 1}:" in found.client, found.client
    assert "data mismatch" not in found.server + found.client


def _rdmacm(server: End, client: End, name: str, port: int, *options: str) -> None:
    command = [needs(name, "rdmacm-utils"), *options]
    found = _by_cm(
        server,
        client,
        [*command, "-b", server.address],
        [*command, "-s", server.address],
        port,
    )
    assert "return status 0" in found.server, found.server
    assert "return status 0" in found.client, found.client


def ucmatose(server: End, client: End, *options: str) -> None:
    """Connects, sends in both directions, disconnects."""
    port = new_port()
    _rdmacm(server, client, "ucmatose", port, "-p", str(port), "-C", "20", "-S", "1500", *options)


def udaddy(server: End, client: End) -> None:
    """Resolves by SIDR, and sends datagrams in both directions."""
    _rdmacm(server, client, "udaddy", _UDADDY_PORT, "-C", "5", "-S", "500")


def qperf(server: End, client: End, *tests: str) -> dict[str, str]:
    """Runs tests of qperf, each for a second; returns their results."""
    port = server.port()
    program = needs("qperf", "qperf")
    # `quit` ends the server.
    found = talk(
        (server, [program, "-lp", str(port)]),
        (client, ["sh", "-c", _QPERF, program, server.tcp, str(port), *tests]),
        lambda pid: server.listens(port, pid),
    )
    results = dict(_MEASURED.findall(found.client))
    assert set(results) == set(tests), found.client
    return results


# By the RDMA CM, which finds the adapters by the address: qperf knows no GID index.
_QPERF = """\
program=$0 host=$1 port=$2
shift 2
"$program" "$host" -lp "$port" -cm 1 -t 1 "$@" || exit
"$program" "$host" -lp "$port" quit
"""


def ucx(server: End, client: End, *options: str, rendezvous: str = "auto") -> None:
    """Runs UCX's io_demo over rc_verbs; both ends check each byte that they get (-q).

    *rendezvous*: how large messages move, as UCX_RNDV_SCHEME names it.

    It connects by the RDMA CM.  ucx_perftest would by UCX's own datagrams, of which UCX 1.13 gets
    none through rdma_rxe, not even from another program there.
    """
    port = new_port()
    command = [needs("io_demo", "ucx-utils"), "-p", str(port), "-q", "-d", "1000:100000", *options]

    def own(end: End) -> list[str]:
        env = {
            "UCX_TLS": "rc_verbs",
            "UCX_NET_DEVICES": f"{end.device}:1",
            "UCX_IB_GID_INDEX": str(end.gid),
            "UCX_SOCKADDR_TLS_PRIORITY": "rdmacm",
            "UCX_RNDV_SCHEME": rendezvous,
        }
        return ["env", *(f"{name}={value}" for name, value in env.items()), *command]

    client_words = [*own(client), "-i", str(_TRANSFERS), "-c", "1", server.address]
    found = talk(
        (server, own(server)),
        (client, ["sh", "-c", _DONE_IS_DONE, *client_words]),
        lambda _: server.listens_cm(port),
        interrupt=True,
    )
    assert 'due to "End of the Client run"' in found.client, found.client
    assert sum(map(int, _DONE.findall(found.client))) == _TRANSFERS, found.client
