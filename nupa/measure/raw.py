# SPDX-License-Identifier: BSD-3-Clause
"""The raw benchmarks of benchmarks/csrc: the limits of the machine without NUPA."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nupa
from nupa.programs import pair
from nupa.programs.pair import ProgramError

BIN = Path(nupa.__file__).parent / "bin"


@dataclass(frozen=True)
class Tcp:
    """TCP over loopback at one message size."""

    size_bytes: int
    blocking_us: float  #: one way, both ends asleep in recv until data comes
    polling_us: float  #: one way, both ends polling, as RDMA programs do
    bytes_per_s: float

    @property
    def best_us(self) -> float:
        """One way, by the better of both ways to wait."""
        return min(self.blocking_us, self.polling_us)


def path(name: str) -> str:
    """Returns the path of one program; ProgramError if it is not installed."""
    found = BIN / name
    if not found.exists():
        raise ProgramError(f"{found} is missing: `make build` installs it")
    return str(found)


def run(
    name: str,
    *,
    cpus: tuple[int, int] | None = None,
    seconds: float = 1.0,
    sizes: Sequence[int] = (),
) -> dict[str, Any]:
    """Returns the JSON object that one program prints.  ProgramError: it fails, or is missing."""
    argv = [path(name), "--json", "--seconds", f"{seconds:g}"]
    if cpus is not None:
        argv += ["--cpus", f"{cpus[0]},{cpus[1]}"]
    if sizes:
        argv += ["--sizes", ",".join(str(size) for size in sizes)]
    # It stops by itself: see bench_parse.
    values: dict[str, Any] = json.loads(pair.run(argv).check().stdout)
    return values


def tcp(
    sizes: Sequence[int], *, cpus: tuple[int, int] | None = None, seconds: float = 1.0
) -> list[Tcp]:
    """Measures TCP over loopback at each size; *seconds* for all together."""
    return [
        Tcp(
            size_bytes=row["bytes"],
            blocking_us=row["block_ns"] / 1e3,
            polling_us=row["poll_ns"] / 1e3,
            bytes_per_s=row["gb_per_s"] * 1e9,
        )
        for row in run("raw_tcp", cpus=cpus, seconds=seconds, sizes=sizes)["results"]
    ]
