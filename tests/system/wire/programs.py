# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified programs between two ends, each with what says that it has worked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.programs.needs import needs
from tests.system.machine import new_port

from .ends import Conversation, End, by_tcp, talk

_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+[\d.]+\s", re.MULTILINE)
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


def checked(server: End, client: End, program: str, mtu: int = 1024) -> None:
    """Runs c/checked.c: SEND, WRITE, READ and atomics, of which it checks each byte."""
    found = by_tcp(server, client, program, "gcc", "-m", str(mtu), each=("-d", "-g"))
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
    # By the RDMA CM: qperf knows no GID index.  `quit` ends the server.
    chosen = ["-cm", "1", "-i", client.device, "-ri", server.device]
    found = talk(
        (server, [program, "-lp", str(port)]),
        (client, ["sh", "-c", _QPERF, program, server.tcp, str(port), " ".join(chosen), *tests]),
        lambda pid: server.listens(port, pid),
    )
    results = dict(re.findall(r"(\S+)\s+=\s+(.+)", found.client))
    assert results, found.client
    return results


_QPERF = """\
program=$0 host=$1 port=$2 chosen=$3
shift 3
"$program" "$host" -lp "$port" $chosen -t 1 "$@" || exit
"$program" "$host" -lp "$port" quit
"""


def ucx(server: End, client: End, transport: str, test: str, size: int = 1000) -> None:
    """Runs ucx_perftest over *transport* alone."""
    port = server.port()
    program = needs("ucx_perftest", "ucx-utils")

    def own(end: End) -> list[str]:
        env = [f"UCX_TLS={transport}", f"UCX_NET_DEVICES={end.device}:1"]
        env.append(f"UCX_IB_GID_INDEX={end.gid}")
        return ["env", *env, program, "-p", str(port), "-t", test, "-s", str(size), "-n", "100"]

    found = talk(
        (server, own(server)),
        (client, [*own(client), server.tcp]),
        lambda pid: server.listens(port, pid),
    )
    assert "Final:" in found.client or "overhead" in found.client, found.client
