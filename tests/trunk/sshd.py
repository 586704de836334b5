# SPDX-License-Identifier: BSD-3-Clause
"""A real sshd on each machine of a test, with keys of the test: Debian's, unpacked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nupa.programs.pair import Program, run
from tests.programs.needs import needs
from tests.trunk.lab import Cluster

_READY_S = 20.0
_CONF = """HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
"""
#: sshd wants a user and a folder of its own; both are the namespace's alone.
_START = """mount --bind {folder}/passwd /etc/passwd && mount -t tmpfs tmpfs /run &&
mkdir -m 755 /run/sshd && exec {sshd} -D -e -f {folder}/sshd.conf"""


@contextmanager
def servers(lab: Cluster, folder: Path) -> Iterator[list[str]]:
    """Starts a server on each machine; yields the words of an ssh that has the key."""
    if os.geteuid():
        pytest.skip("only root can start sshd, which becomes the user that logs in")
    keygen, sshd = needs("ssh-keygen", "openssh-client"), needs("sshd", "openssh-server")
    for key in ("host", "user"):
        command = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        run(command, deadline_s=_READY_S).check()
    user = "sshd:x:65533:65533::/run/sshd:/usr/sbin/nologin\n"
    (folder / "passwd").write_text(Path("/etc/passwd").read_text() + user)
    (folder / "sshd.conf").write_text(_CONF.format(folder=folder))
    script = _START.format(folder=folder, sshd=sshd)
    with ExitStack() as stack:
        for machine in lab.machines:
            argv = machine.space.argv("unshare", "--mount", "--", "sh", "-c", script)
            server = stack.enter_context(Program(argv))
            server.wait_said("Server listening on 0.0.0.0", _READY_S)
        yield [
            *(needs("ssh", "openssh-client"), "-F", "none", "-i", str(folder / "user")),
            *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new"),
            *("-o", f"UserKnownHostsFile={folder}/known"),
        ]
