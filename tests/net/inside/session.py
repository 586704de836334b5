# SPDX-License-Identifier: BSD-3-Clause
"""A long session over TCP, as ssh's: small messages both ways, each side at its own pace.

usage: session.py serve ADDRESS PORT | session.py connect ADDRESS PORT

Each message is a number, one more than the last; anything else ends the program.  Each side says
the hundreds that it has got.  SIGTERM to the one that connected ends the session in order: both
say how many came, and that is what the other sent.
"""

from __future__ import annotations

import select
import signal
import socket
import struct
import sys
import time

NUMBER = struct.Struct("!Q")
PACE_S = 0.002  # between two messages of one side
DEADLINE_S = 30.0
END = (1 << 64) - 1  # then comes how many were sent


class Side:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sent = self.got = 0
        self.theirs: int | None = None  #: how many they sent; None: they have not ended
        self.ended = False
        self.pending = b""

    def send(self) -> None:
        self.sock.sendall(NUMBER.pack(self.sent))
        self.sent += 1

    def end(self) -> None:
        self.sock.sendall(NUMBER.pack(END) + NUMBER.pack(self.sent))
        self.ended = True

    def receive(self) -> None:
        data = self.sock.recv(1 << 16)
        if not data:
            sys.exit("the other side is gone")
        self.pending += data
        while len(self.pending) >= NUMBER.size and self.theirs is None:
            (number,) = NUMBER.unpack_from(self.pending)
            if number == END:
                if len(self.pending) < 2 * NUMBER.size:
                    return
                (self.theirs,) = NUMBER.unpack_from(self.pending, NUMBER.size)
                return
            if number != self.got:
                sys.exit(f"message {number}, not {self.got}")
            self.pending = self.pending[NUMBER.size :]
            self.got += 1
            if self.got % 100 == 0:
                print(f"has {self.got}.")


def talk(sock: socket.socket, told_to_end: socket.socket | None) -> None:
    side = Side(sock)
    sock.settimeout(DEADLINE_S)
    wake = [sock] if told_to_end is None else [sock, told_to_end]
    heard_s = time.monotonic()
    while side.theirs is None or not side.ended:
        readable = select.select(wake, [], [], PACE_S)[0]
        if sock in readable:
            side.receive()
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > DEADLINE_S:
            sys.exit(f"nothing came for {DEADLINE_S:.0f} s")
        if told_to_end in readable:
            wake = [sock]
            side.end()
        elif told_to_end is None and side.theirs is not None:
            side.end()
        elif not side.ended:
            side.send()
    if side.got != side.theirs:
        sys.exit(f"{side.got} messages came, {side.theirs} were sent")
    print(f"ended: {side.got} came, {side.sent} sent")


def main() -> None:
    what, address, port = sys.argv[1:]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if what == "serve":
        with socket.create_server((address, int(port)), family=family) as server:
            print("ready")
            sock, _ = server.accept()
        with sock:
            talk(sock, None)
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    with socket.create_connection((address, int(port)), timeout=DEADLINE_S) as sock:
        print("connected")
        talk(sock, ours)


main()
