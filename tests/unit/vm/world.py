# SPDX-License-Identifier: BSD-3-Clause
"""A world of machines for one test: folders of its own, and a QEMU that is a program of ours."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from nupa.base.process import find_all
from nupa.vm.boot.boot import BootFiles
from nupa.vm.files import place, state
from nupa.vm.files.place import MachineFolder, place_of
from nupa.vm.files.topology import Guests, MachineTopology
from nupa.vm.machine import machine

DEADLINE_S = 30.0
FAKE = Path(__file__).with_name("guest.py")
# The smallest there is: the memory is allocated.
SMALL = MachineTopology(kind="ivshmem", memory_bytes=64 << 20, guests=Guests(2, 256 << 20))


@dataclass
class World:
    """A world of machines of this test alone: folders, a fake QEMU, the lines that were said."""

    run: Path
    segments: Path
    how: Path
    said: list[str]

    def boot(self) -> BootFiles:
        argv = (sys.executable, str(FAKE), f"fake:{self.how}")
        return BootFiles(argv, (11, 1, 3), Path("/no/kernel"), self.how / "initramfs", "6.12")

    def up(self, name: str = "vm", topology: MachineTopology = SMALL) -> state.MachineState:
        return machine.up(name, topology, self.boot, self.said.append, timeout_s=DEADLINE_S)

    def place(self, name: str = "vm") -> MachineFolder:
        return place_of(name)

    def left(self) -> list[str]:
        """Files and processes that are there."""
        files = [str(path) for folder in (self.run, self.segments) for path in folder.iterdir()]
        return files + [str(process.pid) for process in find_all(f"fake:{self.how}")]

    def kill(self, up: state.MachineState, number: int) -> None:
        """Sends SIGKILL to a guest's QEMU; returns when it is gone."""
        process = up.guests[number].process
        assert process is not None
        fd = process.open()
        assert fd is not None
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        assert select.select([fd], [], [], DEADLINE_S)[0]
        os.close(fd)


@contextmanager
def make_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # Not tmp_path: a socket's path is short.
    base = Path(tempfile.mkdtemp(prefix="nupa-test-"))
    segments = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
    for name in ("run", "how"):
        (base / name).mkdir(mode=0o700)
    (base / "how" / "initramfs").write_bytes(b"files")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base / "run"))
    monkeypatch.setenv("NUPA_DIR", str(segments))
    found = World(base / "run", segments, base / "how", [])
    yield found
    # The test may have named other folders: no machine but those of this world is taken down.
    found.run.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(found.run))
    monkeypatch.setenv("NUPA_DIR", str(segments))
    assert place.parent() == str(found.run)
    for name in place.names():
        machine.down(name, force=True)
    left = found.left()
    shutil.rmtree(base)
    shutil.rmtree(segments)
    assert left == []
