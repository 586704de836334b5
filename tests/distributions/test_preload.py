# SPDX-License-Identifier: BSD-3-Clause
"""librspreload.so of each release: TCP programs over RDMA, those that wait in epoll, too."""

from __future__ import annotations

import subprocess

import pytest

from tests.distributions.release import Release
from tests.programs.rdmacm.cm_stage import SERVER, port, start
from tests.programs.stage import Stage

pytestmark = pytest.mark.timeout(600)  # the first test of a release downloads it

CLIENTS, SIZE = 3, 1000
SERVE = f"""
import selectors, socket, sys
listener = socket.socket()
listener.bind(("{SERVER}", int(sys.argv[1])))
listener.listen()
waits = selectors.EpollSelector()
waits.register(listener, selectors.EVENT_READ)
left = {CLIENTS}
while left:
    for key, _ in waits.select():
        if key.fileobj is listener:
            waits.register(listener.accept()[0], selectors.EVENT_READ)
        elif data := key.fileobj.recv(4096):
            key.fileobj.send(data)
        else:
            waits.unregister(key.fileobj)
            key.fileobj.close()
            left -= 1
waits.close()
"""
ASK = f"""
import socket, sys
ends = [socket.create_connection(("{SERVER}", int(sys.argv[1]))) for _ in range({CLIENTS})]
for number, end in enumerate(ends):
    end.send(bytes([number]) * {SIZE})
for number, end in enumerate(ends):
    got = b""
    while len(got) < {SIZE}:
        got += end.recv({SIZE})
    assert got == bytes([number]) * {SIZE}
    end.close()
print("intact")
"""


def test_a_server_in_epoll_answers_over_rdma(release: Release, fabric: Stage) -> None:
    preload = release.library("rsocket/librspreload.so")
    names = subprocess.run(["nm", "-D", preload], capture_output=True, text=True, check=True)
    if "repoll_wait" not in names.stdout:
        pytest.skip(f"the preload library of {release.name} leaves epoll to libc")
    number = port()
    server = release.python("-c", SERVE, number, preload=preload)
    client = release.python("-c", ASK, number, preload=preload)
    with start(fabric, server, client, number=number) as pair:
        assert pair.wait().check().client.stdout == "intact\n"
    words = CLIENTS * SIZE // 4  # IBTA 16.1.3.5: PortXmitData
    assert all(at["counters"]["port_xmit_data"] > words for at in fabric.show()["ports"][:2])
