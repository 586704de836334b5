# SPDX-License-Identifier: BSD-3-Clause
"""QEMU's live migration over RDMA: the memory of a machine goes from one program to the other."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from nupa.programs.pair import Program, free_port
from tests.ecosystem.lab import DEADLINE_S, Lab
from tests.programs.needs import needs

DATA_AT = 16 << 20
#: Firmware that does nothing: it jumps to itself at the reset vector.
HALTS = bytes(0xFFF0) + b"\xeb\xfe" + bytes(14)


class Monitor:
    """A connection to a QEMU by its machine protocol (QMP)."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.settimeout(DEADLINE_S)
        self._lines = self._socket.makefile("r")
        self._lines.readline()  # its greeting
        self.ask("qmp_capabilities")

    def ask(self, command: str, **arguments: object) -> Any:
        """Returns the answer; AssertionError: it is an error."""
        question = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(question).encode() + b"\n")
        while not ({"return", "error"} & (answer := json.loads(self._lines.readline())).keys()):
            pass  # an event
        assert "error" not in answer, answer
        return answer["return"]

    def wait_event(self, name: str, status: str) -> None:
        while True:
            said = json.loads(self._lines.readline())
            if said.get("event") == name and said["data"]["status"] == status:
                return
            assert said.get("data", {}).get("status") != "failed", said

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def monitor(program: Program, path: Path) -> Monitor:
    """Connects as soon as the program listens."""
    connected = socket.socket(socket.AF_UNIX)
    while connected.connect_ex(str(path)):
        assert program.running, program.outcome().describe()
    return Monitor(connected)


@pytest.mark.parametrize("pinned", [False, True], ids=["pages", "pinned"])
def test_a_machine_migrates_over_rdma(fabric: Lab, tmp_path: Path, pinned: bool) -> None:
    (tmp_path / "bios").write_bytes(HALTS)
    qemu = [needs("qemu-system-x86_64", "qemu-system-x86"), "-M", "isapc", "-m", "32", "-S"]
    qemu += ["-accel", "tcg", "-nodefaults", "-display", "none", "-bios", str(tmp_path / "bios")]
    (tmp_path / "data").write_bytes(data := os.urandom(8 << 20))
    loaded = f"loader,file={tmp_path / 'data'},addr={DATA_AT:#x},force-raw=on"
    port = free_port()

    def on_its_host(name: str, *options: str) -> list[str]:
        return fabric.on(None, *qemu, "-qmp", f"unix:{tmp_path / name},server,nowait", *options)

    with (
        fabric.start(on_its_host("to", "-incoming", "defer")) as there,
        fabric.start(on_its_host("from", "-device", loaded)) as here,
    ):
        to, source = (
            monitor(there, tmp_path / "to"),
            monitor(here, tmp_path / "from"),
        )
        for end in (to, source):
            capabilities = [{"capability": "rdma-pin-all", "state": pinned}]
            capabilities += [{"capability": "events", "state": True}]
            end.ask("migrate-set-capabilities", capabilities=capabilities)
        to.ask("migrate-incoming", uri=f"rdma:127.0.0.1:{port}")
        source.ask("migrate", uri=f"rdma:127.0.0.1:{port}")
        source.wait_event("MIGRATION", "completed")
        to.wait_event("MIGRATION", "completed")
        moved = source.ask("query-migrate")["ram"]
        to.ask("pmemsave", val=DATA_AT, size=len(data), filename=str(tmp_path / "copy"))
        for end in (to, source):
            end.ask("quit")
            end.close()
        there.wait(DEADLINE_S).check()
        here.wait(DEADLINE_S).check()
    assert moved["remaining"] == 0
    assert (tmp_path / "copy").read_bytes() == data
