# SPDX-License-Identifier: BSD-3-Clause
"""Keepers of a named fabric: asked by their sockets, or started as processes."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

from nupa.base.errors import FabricError, LocalError
from nupa.base.process import end, of_pid, spawn_detached
from nupa.fabric import registry
from nupa.fabric.wires import place

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric
    from nupa.fabric.wires.address import Address
    from nupa.fabric.wires.keeper import WireWish

_PROGRAM = (sys.executable, "-P", "-m", "nupa.fabric.wires.process")
# Variables of a user's shell that the keeper, which serves all, must not have.
_NOT_FOR_THE_KEEPER = ("NUPA_FABRIC", "NUPA_HOST", "NUPA_MOVER", "LD_PRELOAD", "LD_LIBRARY_PATH")
_MAGIC = (0x5250554E).to_bytes(4, sys.byteorder)  # csrc/segment/port_protocol.h
ANSWER_BYTES_MAX = 2048
_READY_S = 30.0
_ANSWER_S = 10.0


def ask(path: str, request: dict[str, Any]) -> None:
    """Has the keeper at *path* do something.

    OSError: there is none, or it does not answer.  LocalError, FabricError: as it says.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as keeper:
        keeper.settimeout(_ANSWER_S)
        keeper.connect(path)
        keeper.send(_MAGIC + json.dumps(request).encode())
        answer = keeper.recv(ANSWER_BYTES_MAX)
    take_answer(answer.decode(errors="replace"))


def take_answer(answer: str) -> None:
    """Raises what the answer of a keeper says.  ConnectionError: it said nothing."""
    if not answer:
        raise ConnectionError("the keeper has ended")
    said = json.loads(answer)
    if said["ok"]:
        return
    kind = LocalError if said["local"] else FabricError
    raise kind(said["why"], said["errno"])


def start(fabric: Fabric, local: Address, wish: WireWish) -> None:
    """Starts a keeper with its first wire, and returns when that stands.

    LocalError, FabricError: it cannot be made; no keeper is left.
    """
    folder = os.path.abspath(registry.folder())  # noqa: PTH100
    env = {key: value for key, value in os.environ.items() if key not in _NOT_FOR_THE_KEEPER}
    env["NUPA_DIR"] = folder
    ours, theirs = socket.socketpair()
    argv = [*_PROGRAM, "--folder", folder, "--fabric", fabric.name]
    argv += ["--generation", fabric.generation, "--listen", str(local)]
    argv += ["--parent", str(theirs.fileno()), "--wire", json.dumps(wish._asdict())]
    with ours:
        with theirs, os.fdopen(place.open_log(fabric.name), "ab") as log:
            try:
                pid = spawn_detached(argv, env, fds=[theirs.fileno()], output=log.fileno())
            except OSError as error:
                raise FabricError(f"cannot start a keeper: {error}", error.errno or 0) from error
        ours.settimeout(_READY_S)
        try:
            answer = ours.recv(ANSWER_BYTES_MAX).decode(errors="replace")
        except OSError:
            answer = ""
        if answer:
            take_answer(answer)
            return
    process = of_pid(pid)
    if process is not None:
        end(process)
    why = place.last_log_line(fabric.name) or f"it is not ready after {_READY_S:g} s"
    raise FabricError(f"no keeper for the wire to {wish.address}: {why}")


def say_why(error: BaseException | None) -> bytes:
    """Returns the answer of a keeper: done, or *error*."""
    if error is None:
        return b'{"ok": true}'
    said = {
        "ok": False,
        "local": isinstance(error, LocalError),
        "errno": getattr(error, "errno", None) or 0,
        "why": str(error)[:1500],
    }
    return json.dumps(said).encode()
