# SPDX-License-Identifier: BSD-3-Clause
"""fio: the job file that compares RDMA with TCP, its command lines, and its JSON.

Written for fio 3.x.  Its `net` engine is synchronous: at any depth, only one block and the socket's
buffer are outstanding.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Carrier = Literal["rdma", "tcp"]
Role = Literal["server", "client"]
Direction = Literal["read", "write"]

#: For users, too: sections CARRIER-ROLE; the environment fills the words in braces.
JOB_FILE = Path(__file__).with_name("rdma_tcp.fio")
#: The remedy if fio is missing.
INSTALL_HINT = (
    "fio is not installed: `apt-get install fio` (Debian, Ubuntu) or "
    "`dnf install fio fio-engine-rdma` (Fedora)"
)
#: The server's output once it accepts a client.
READY = "fio: waiting for connection"
PORT = 8765


class FioError(Exception):
    """fio's output is not the expected JSON, or says that the job failed."""


@dataclass(frozen=True)
class Job:
    """One block size and depth over one carrier; *address* is the server's."""

    carrier: Carrier
    block_bytes: int
    depth: int
    address: str
    ramp_s: float
    seconds: float
    port: int = PORT

    def command(self, role: Role) -> list[str]:
        section = f"--section={self.carrier}-{role}"
        return ["fio", section, "--output-format=json", str(JOB_FILE)]

    def environment(self) -> dict[str, str]:
        """Returns the variables of the job file."""
        return {
            "ADDRESS": self.address,
            "PORT": str(self.port),
            "BLOCK": str(self.block_bytes),
            "DEPTH": str(self.depth),
            "RAMP": f"{round(self.ramp_s * 1000)}ms",
            "RUNTIME": f"{round(self.seconds * 1000)}ms",
        }


@dataclass(frozen=True)
class Rate:
    """The rates of a job's client, after the ramp."""

    operations_per_s: float
    bytes_per_s: float
    mean_us: float  #: from a block's submission to its completion
    p99_us: float  #: likewise
    seconds: float  #: of the measurement


def missing() -> bool:
    return shutil.which("fio") is None


def parse(text: str) -> Rate:
    """Parses a client's JSON among fio's notes.  FioError: it has no rate."""
    found = jobs(text)
    if len(found) != 1:
        raise _unexpected("JSON with one job", text)
    return rate(found[0], "write")


def jobs(text: str) -> list[dict[str, Any]]:
    """Returns the jobs of fio's JSON.  FioError: the text has none.

    The object starts with a brace alone on a line, after fio's notes.
    """
    start = 0 if text.startswith("{\n") else text.find("\n{\n") + 1
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start)
        named: list[dict[str, Any]] = list(found["jobs"])
    except (KeyError, TypeError, ValueError) as error:
        raise _unexpected("JSON with jobs", text) from error
    for job in named:
        if not isinstance(job, dict):
            raise FioError(f"fio's JSON has {type(job).__name__} where its job should be")
    return named


def rate(job: dict[str, Any], direction: Direction) -> Rate:
    """Returns the rate of a job.  FioError: it failed, or has none of that direction."""
    if job.get("error"):
        raise FioError(f"fio's job {job.get('jobname')} ended with error {job['error']}")
    try:
        moved = job[direction]
        found = Rate(
            operations_per_s=float(moved["iops"]),
            bytes_per_s=float(moved["bw_bytes"]),
            mean_us=moved["lat_ns"]["mean"] / 1e3,
            p99_us=moved["clat_ns"]["percentile"]["99.000000"] / 1e3,
            seconds=moved["runtime"] / 1e3,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FioError(f"fio's JSON has no {error} of {direction}s: fio 3 is needed") from error
    if found.operations_per_s <= 0:
        raise FioError(f"fio's job had no {direction}s during the measurement")
    return found


def _unexpected(what: str, text: str) -> FioError:
    shown = "\n".join(f"  | {line}" for line in text.splitlines()[-8:]) or "  | (nothing)"
    return FioError(f"{what} was expected, fio wrote:\n{shown}")
