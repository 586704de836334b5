# SPDX-License-Identifier: BSD-3-Clause
"""A disk over NVMe over Fabrics whose I/O stands still for a while: `outage.py OPTIONS`.

fio writes all of it in random order and compares the CRC of what it reads, again and again, until
the outage is over.  Meanwhile this tells what the kernel shows: that requests stand still, the
states of the controller, and that requests go on.  OPTIONS are those of connecting, or empty.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
from tests.system.upper import nvme

_TICK_S = 0.02
#: Without a completed request, while some are in flight.
_STANDS_S = 0.5
_LIMIT_S = 200.0
_FIO = (
    "fio",
    "--name=verified",
    "--ioengine=libaio",
    "--direct=1",
    "--iodepth=8",
    "--rw=randwrite",
    "--bsrange=4k-128k",
    "--size=12M",
    "--loops=4",
    "--verify=crc32c",
    "--verify_fatal=1",
    "--randrepeat=0",
)


class Watch:
    """Tells of changes on standard output."""

    def __init__(self, controller: Path, disk: Path) -> None:
        self._state, self._stat = controller / "state", Path("/sys/block", disk.name, "stat")
        self._shown = "live"
        self._completed, self._since_s = -1, time.monotonic()
        self._stands = False
        self.over = False  #: the requests have gone on

    def look(self) -> None:
        """Prints what has changed since the last time."""
        state = self._state.read_text().strip()
        if state != self._shown:
            self._shown = state
            print(state, flush=True)
        # Documentation/block/stat.rst: I/Os read and written, and those in flight.
        columns = [int(column) for column in self._stat.read_text().split()]
        completed, in_flight = columns[0] + columns[4], columns[8]
        moves = completed != self._completed or not in_flight
        # Requests of a lost connection count as completed, and are made again.
        if moves and (state == "live" or not self._stands):
            self._go_on()
        elif not moves and not self._stands and self._stood_s() > _STANDS_S:
            self._stands = True
            print("stands", flush=True)
        self._completed = completed

    def _stood_s(self) -> float:
        return time.monotonic() - self._since_s

    def _go_on(self) -> None:
        if self._stands:
            self._stands, self.over = False, True
            print(f"went on after {self._stood_s():.1f} s", flush=True)
        self._since_s = time.monotonic()


def _ticks(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Yields now and then until the process ends."""
    pidfd, until = os.pidfd_open(process.pid), time.monotonic() + _LIMIT_S
    while not select.select([pidfd], [], [], _TICK_S)[0]:
        assert time.monotonic() < until, f"fio has not ended after {_LIMIT_S:g} s"
        yield
    os.close(pidfd)


def _verified(disk: Path, watch: Watch) -> None:
    with subprocess.Popen([*_FIO, f"--filename={disk}"], stdout=subprocess.PIPE) as fio:
        for _ in _ticks(fio):
            watch.look()
        assert fio.stdout
        said = fio.stdout.read().decode()
    assert fio.returncode == 0, said


def main(options: str) -> None:
    controller, disk = nvme.connect(options)
    watch, times = Watch(controller, disk), 0
    print("begun", flush=True)
    while not watch.over:
        _verified(disk, watch)
        times += 1
    _verified(disk, watch)
    print(f"verified {times + 1} times", flush=True)
    nvme.disconnect(controller)


if __name__ == "__main__":
    main(sys.argv[1])
