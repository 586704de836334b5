# SPDX-License-Identifier: BSD-3-Clause
"""Impairs the path between two machines of namespaces.py: loss, duplicates, and more, by a seed.

    with impaired(program, left, right, Impairment(loss=0.01), seed=7) as counts:
        ...
    assert counts["lost"] > 0

A forwarder (impair.c) takes the place of the bridge.  Unlike netem(8) it has a seed in every
kernel, and every kernel has it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from nupa.programs.pair import Program, run
from tests.common.namespaces import DEADLINE_S, Namespace
from tests.programs.needs import needs

ROCE_PORT = 4791
_SOURCE = Path(__file__).with_suffix(".c")


@dataclass(frozen=True)
class Impairment:
    """Probabilities, 0 to 1, each for one packet in either direction."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0  #: comes 1 to 8 packets later
    corrupt: float = 0.0  #: one to three bits change, the UDP checksum is right
    mark: float = 0.0  #: congestion experienced (ECN)

    def __str__(self) -> str:
        hits = {name: value for name, value in vars(self).items() if value}
        return " ".join(f"{name} {100 * value:g}%" for name, value in hits.items()) or "none"


def build(folder: Path) -> str:
    """Compiles the forwarder into *folder*; returns the program's path."""
    program = folder / "impair"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE"]
    subprocess.run([needs("gcc", "gcc"), *flags, str(_SOURCE), "-o", str(program)], check=True)
    return str(program)


@contextmanager
def impaired(
    program: str,
    left: Namespace,
    right: Namespace,
    impairment: Impairment,
    *,
    seed: int,
    port: int = ROCE_PORT,
    record: Path | None = None,
) -> Iterator[dict[str, int]]:
    """Impairs UDP packets to *port* (0: all frames, by loss, duplicates and order alone).

    *record*: a file that has the last packets of RoCE v2 at any time, for record.read().

    Yields counts, which are there after the block: forwarded, selected, lost, duplicated,
    reordered, corrupted, marked.
    """
    print(f"impairment {impairment}, seed {seed}")
    for machine in (left, right):
        _offload(machine, "off")
    values = [f"{value:.9f}" for value in astuple(impairment)]
    argv = left.hub_argv(program, left.link, right.link, str(seed), str(port), *values)
    argv += [] if record is None else [str(record)]
    counts: dict[str, int] = {}
    for machine in (left, right):
        _hub(machine, "ip", "link", "set", machine.link, "nomaster")
    try:
        with Program(argv) as forwarder:
            forwarder.wait_said("forwarding", DEADLINE_S)
            yield counts
            forwarder.signal(15)
            counts.update(json.loads(forwarder.wait(DEADLINE_S).check().stdout.splitlines()[-1]))
            print(f"impaired: {counts}")
    finally:
        for machine in (left, right):
            _hub(machine, "ip", "link", "set", machine.link, "master", "bridge0")
            _offload(machine, "on")


def _hub(machine: Namespace, *command: str) -> None:
    run(machine.hub_argv(*command), deadline_s=DEADLINE_S).check()


def _offload(machine: Namespace, state: str) -> None:
    """Without offload the sender segments and computes checksums: one frame is one packet."""
    machine.must(needs("ethtool", "ethtool"), "-K", "eth0", "tx", state, "gso", state)
