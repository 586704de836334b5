# SPDX-License-Identifier: BSD-3-Clause
"""Pairs of programs over a wire, which meet by TCP and must both succeed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nupa.programs.pair import Program, free_port, is_listening
from tests.wire.lab import Wired

DEADLINE_S = 60.0
_OPERATIONS = Path(__file__).with_name("operations.py")
_HELD = Path(__file__).with_name("held.py")


def talk(wire: Wired, server: Sequence[str], client: Sequence[str], port: int) -> None:
    """Runs a server on the left machine, and its client on the right one once it listens."""
    with wire.start(0, server) as running:
        while not is_listening(port, running.pid):
            assert running.running, running.outcome().describe()
        wire.on(1, client, DEADLINE_S).check()
        running.wait(DEADLINE_S).check()


def perftest(wire: Wired, command: Sequence[str], tcp: str) -> None:
    """Runs perftest or a pingpong; *tcp*: the left machine's address, by which both meet."""
    port = free_port()
    server = [*command, "-p", str(port)]
    talk(wire, server, [*server, tcp], port)


def operations(wire: Wired, tcp: str) -> None:
    """Runs operations.py: all kinds of requests of RC in both directions, with checked data."""
    port = free_port()
    python = [wire.user.python, "-P", str(_OPERATIONS)]
    talk(wire, [*python, "serve", tcp, str(port)], [*python, "meet", tcp, str(port)], port)


@contextmanager
def held(wire: Wired, *options: str) -> Iterator[tuple[Program, Program]]:
    """Yields both ends of held.py, which may not have met yet."""
    tcp, port = wire.machines[0].ipv4, free_port()
    python, words = [wire.user.python, "-P", str(_HELD)], [tcp, str(port), *options]
    with wire.start(0, [*python, "serve", *words]) as server:
        while not is_listening(port, server.pid):
            assert server.running, server.outcome().describe()
        with wire.start(1, [*python, "meet", *words]) as client:
            yield server, client
