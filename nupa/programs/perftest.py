# SPDX-License-Identifier: BSD-3-Clause
"""perftest (ib_send_lat and the others): command lines, and the tables that they print.

Written for perftest 4.5 to 26; columns are found by heading, not by position.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

Operation = Literal["send", "write", "read", "atomic"]
Kind = Literal["lat", "bw"]
Row = TypeVar("Row")

#: The remedy if perftest is missing.
INSTALL_HINT = (
    "perftest is not installed: `apt-get install perftest` (Debian, Ubuntu) or "
    "`dnf install perftest` (Fedora, RHEL)"
)

_HEADING = re.compile(
    r"#\w+|BW [a-z]+\[[^]]+\]|MsgRate\[\w+\]|t_\w+\[\w+\]|[\d.]+% percentile\[\w+\]"
    r"|CPU_Util\[%\]|tps average"
)
# "MB" means 2**20 bytes in perftest; later versions write MiB.
_BYTES_PER_S = {"MB/sec": 2.0**20, "MiB/sec": 2.0**20, "Gb/sec": 1e9 / 8}


class PerftestError(Exception):
    """The output has no table of the expected kind; the message quotes it."""


@dataclass(frozen=True)
class Latency:
    """One line of a latency test, in µs: one way for SEND and WRITE, else there and back."""

    size_bytes: int
    iterations: int
    typical_us: float  #: the median
    min_us: float
    mean_us: float
    p99_us: float


@dataclass(frozen=True)
class Bandwidth:
    """One line of a bandwidth test."""

    size_bytes: int
    iterations: int
    peak_bytes_per_s: float  #: 0 if perftest did not measure it
    mean_bytes_per_s: float
    messages_per_s: float


def program(operation: Operation, kind: Kind) -> str:
    return f"ib_{operation}_{kind}"


def missing(programs: Sequence[str]) -> list[str]:
    """Returns those of *programs* that are not in PATH."""
    return [name for name in programs if shutil.which(name) is None]


def commands(
    name: str, port: int, options: Sequence[str] = (), *, server: str = "127.0.0.1"
) -> tuple[list[str], list[str]]:
    """Returns the commands of server and client; -F: no warning about the CPU's frequency."""
    argv = [name, "-F", "-p", str(port), *options]
    return argv, [*argv, server]


def parse_latency(text: str) -> list[Latency]:
    """Parses the table of ib_*_lat.  PerftestError: there is none."""
    rows = [
        Latency(
            size_bytes=int(row["#bytes"]),
            iterations=int(row["#iterations"]),
            typical_us=row["t_typical[usec]"],
            min_us=row["t_min[usec]"],
            mean_us=row["t_avg[usec]"],
            p99_us=row["99% percentile[usec]"],
        )
        for row in _table(text, "t_typical[usec]")
    ]
    return _not_empty(rows, text, "latency in µs (t_typical[usec])")


def parse_bandwidth(text: str) -> list[Bandwidth]:
    """Parses the table of ib_*_bw.  PerftestError: there is none."""
    rows = []
    for unit, scale in _BYTES_PER_S.items():
        for row in _table(text, f"BW average[{unit}]"):
            rows.append(
                Bandwidth(
                    size_bytes=int(row["#bytes"]),
                    iterations=int(row["#iterations"]),
                    peak_bytes_per_s=row[f"BW peak[{unit}]"] * scale,
                    mean_bytes_per_s=row[f"BW average[{unit}]"] * scale,
                    messages_per_s=row["MsgRate[Mpps]"] * 1e6,
                )
            )
    return _not_empty(rows, text, "bandwidth (BW average)")


def _not_empty(rows: list[Row], text: str, what: str) -> list[Row]:
    if rows:
        return rows
    shown = "\n".join(f"  | {line}" for line in text.splitlines()[-8:]) or "  | (nothing)"
    raise PerftestError(f"a table of {what} was expected, perftest wrote:\n{shown}")


def _table(text: str, needed: str) -> Iterator[dict[str, float]]:
    """Yields the lines of numbers below a heading with the column *needed*, by column."""
    headings: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#bytes"):
            headings = _HEADING.findall(line)
            continue
        if needed not in headings:
            continue
        try:
            values = [float(word) for word in line.split()]
        except ValueError:
            continue  # dashes, or a warning in between
        if not values:
            continue
        if len(values) != len(headings):
            raise PerftestError(
                f"a line of {len(headings)} numbers ({', '.join(headings)}) was expected, "
                f"perftest wrote: {line.strip()}"
            )
        yield dict(zip(headings, values, strict=True))
