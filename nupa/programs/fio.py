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
    job = _job(text)
    if job.get("error"):
        raise FioError(f"fio's job {job.get('jobname')} ended with error {job['error']}")
    try:
        written = job["write"]
        rate = Rate(
            operations_per_s=float(written["iops"]),
            bytes_per_s=float(written["bw_bytes"]),
            mean_us=written["lat_ns"]["mean"] / 1e3,
            p99_us=written["clat_ns"]["percentile"]["99.000000"] / 1e3,
            seconds=written["runtime"] / 1e3,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FioError(f"fio's JSON has no {error} of writes: fio 3 is needed") from error
    if rate.operations_per_s <= 0:
        raise FioError("fio's client wrote nothing during the measurement")
    return rate


def _job(text: str) -> dict[str, Any]:
    """Returns the only job.  The object starts with a brace alone on a line, after fio's notes."""
    start = 0 if text.startswith("{\n") else text.find("\n{\n") + 1
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start)
        (job,) = found["jobs"]
    except (KeyError, TypeError, ValueError) as error:
        shown = "\n".join(f"  | {line}" for line in text.splitlines()[-8:]) or "  | (nothing)"
        raise FioError(f"JSON with one job was expected, fio wrote:\n{shown}") from error
    if not isinstance(job, dict):
        raise FioError(f"fio's JSON has {type(job).__name__} where its job should be")
    return job
