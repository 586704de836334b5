# SPDX-License-Identifier: BSD-3-Clause
"""Waits until another process of this host has bound a port of ADDRESS, which is the host's:
`until_bound.py stream|datagram ADDRESS PORT`."""

from __future__ import annotations

import errno
import select
import socket
import sys

from binding import SOON_S, RSocket, Stopwatch

kind = socket.SOCK_STREAM if sys.argv[1] == "stream" else socket.SOCK_DGRAM
watch = Stopwatch()
while watch.elapsed_s < SOON_S:
    sock = RSocket(kind)
    try:
        sock.bind(sys.argv[2], int(sys.argv[3]))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            sys.exit()
        raise
    finally:
        sock.close()
    select.select([], [], [], 0.005)
sys.exit(f"no process has bound port {sys.argv[3]} after {SOON_S:g} s")
