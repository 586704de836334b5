# SPDX-License-Identifier: BSD-3-Clause
"""Addresses, and soft-RoCE, of a guest's further interfaces, after each of its starts."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from nupa.base.errors import FabricError
from nupa.vm.agent import agent
from nupa.vm.agent.frames import RunRequest
from nupa.vm.agent.relay import Files, Relay
from nupa.vm.files.place import MachineFolder
from nupa.vm.files.state import Guest

#: Modules of soft-RoCE take a second; a busy machine takes longer.
_SET_UP_S = 60.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SAID_BYTES_MAX = 1000


def set_up(place: MachineFolder, guest: Guest) -> None:
    """Runs the guest's commands.  FabricError: one fails; RemoteError: the guest has gone."""
    for command in guest.set_up:
        with (
            tempfile.TemporaryFile() as said,
            Path(os.devnull).open("rb") as nothing,
            agent.connect(place, guest.name) as link,
        ):
            out = said.fileno()
            relay = Relay(link, Files(nothing.fileno(), out, out))
            ended = relay.run(RunRequest(command, {"PATH": _PATH}, "/"), _SET_UP_S)
            if ended.errno or ended.status:
                said.seek(0)
                text = said.read(_SAID_BYTES_MAX).decode(errors="replace").strip()
                raise FabricError(
                    f"{guest.name}: its interfaces cannot be set up: {ended.why or text}",
                    ended.errno or errno.EIO,
                )
