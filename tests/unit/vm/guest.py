# SPDX-License-Identifier: BSD-3-Clause
"""A guest for tests: a program with QEMU's options whose agent runs commands on this machine.

`python guest.py OPTIONS -chardev socket,id=agentN,path=…`.  A word `fake:FOLDER` names a folder
whose files say how it is to fail: HOST.dies, HOST.silent, HOST.bytes (the size it says it has).
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

_HEAD = struct.Struct("<II")
RUN, STDIN, SIGNAL, RESIZE = 1, 2, 3, 4
HELLO, STDOUT, STDERR, EXIT = 16, 17, 18, 19


def frame(kind: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(payload)) + payload


def read_frame(connection: socket.socket) -> tuple[int, bytes] | None:
    """None: the client has gone."""
    try:
        head = connection.recv(_HEAD.size, socket.MSG_WAITALL)
        if len(head) < _HEAD.size:
            return None
        kind, length = _HEAD.unpack(head)
        payload = connection.recv(length, socket.MSG_WAITALL) if length else b""
    except ConnectionError:
        return None
    return (kind, payload) if len(payload) == length else None


class Agent(threading.Thread):
    """Serves one port, one client after the other, as csrc/guest does."""

    def __init__(self, listener: socket.socket, hello: str) -> None:
        super().__init__(daemon=True)
        self._listener = listener
        self._hello = frame(HELLO, hello.encode())

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.sendall(self._hello)
                    self._serve(connection)
                except (BrokenPipeError, ConnectionResetError):
                    continue

    def _serve(self, connection: socket.socket) -> None:
        while (got := read_frame(connection)) is not None:
            kind, payload = got
            if kind == RUN:
                run_command(connection, payload)


def run_command(connection: socket.socket, payload: bytes) -> None:
    flags, rows, columns = struct.unpack_from("<IHH", payload)
    words = [word.decode() for word in payload[8:].split(b"\0")[:-1]]
    cwd, argc = words[0], int(words[1])
    argv, env = words[2 : 2 + argc], dict(word.split("=", 1) for word in words[2 + argc :])
    env["FAKE_TTY"] = f"{flags} {rows}x{columns}"
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        why = f"cannot run {argv[0]} in the guest: {error.strerror}"
        connection.sendall(frame(EXIT, struct.pack("<i", -(error.errno or 1)) + why.encode()))
        return
    with process:
        _relay(connection, process)


def _relay(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(process.stdout, selectors.EVENT_READ, STDOUT)
        selector.register(process.stderr, selectors.EVENT_READ, STDERR)
        while len(selector.get_map()) > 1:
            for key, _ in selector.select():
                if key.fileobj is not connection:
                    data = os.read(key.fd, 32768)
                    if data:
                        connection.sendall(frame(key.data, data))
                    else:
                        selector.unregister(key.fileobj)
                elif not _take(connection, process):
                    os.killpg(process.pid, signal.SIGKILL)
                    return
    status = os.waitpid(process.pid, 0)[1]
    process.returncode = os.waitstatus_to_exitcode(status)
    connection.sendall(frame(EXIT, struct.pack("<i", status)))


def _take(connection: socket.socket, process: subprocess.Popen[bytes]) -> bool:
    """Serves one message.  False: the client has gone."""
    assert process.stdin is not None
    got = read_frame(connection)
    if got is None:
        return False
    kind, payload = got
    if kind == STDIN and payload:
        process.stdin.write(payload)
        process.stdin.flush()
    elif kind == STDIN:
        process.stdin.close()
    elif kind == SIGNAL:
        os.killpg(process.pid, struct.unpack("<I", payload)[0])
    return True


def listen(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


def connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection


def _value(words: list[str], option: str, key: str) -> list[str]:
    """Returns all values of *key* in arguments of *option*."""
    found = []
    for i, word in enumerate(words):
        if word == option:
            pairs = dict(part.partition("=")[::2] for part in words[i + 1].split(","))
            found += [pairs[key]] if key in pairs else []
    return found


def main(words: list[str]) -> int:
    how = next(Path(word.removeprefix("fake:")) for word in words if word.startswith("fake:"))
    kernel = dict(word.partition("=")[::2] for word in words[words.index("-append") + 1].split())
    host, size = kernel["nupa.host"], kernel["nupa.bytes"]
    log = Path(_value(words, "-chardev", "path")[0])
    with log.open("a") as console:
        console.write(
            f"nupa: step one of {host}\r\n\x1b[31mnupa: cpus {sorted(os.sched_getaffinity(0))}\n"
        )
    if (how / f"{host}.dies").exists():
        print(f"qemu: {host} has no luck", file=sys.stderr)
        return 1
    if (how / f"{host}.bytes").exists():
        size = (how / f"{host}.bytes").read_text()
    paths = [path for path in _value(words, "-chardev", "path") if path.endswith(".sock")]
    bells = [path for path in paths if path.endswith("/bell.sock")]
    connections = [connect(path) for path in bells]  # it hears nothing; it is there
    listeners = [listen(path) for path in paths if path not in bells]
    if not (how / f"{host}.silent").exists():
        hello = f"protocol=1\nkernel=6.12\nhost={host}\ndevice=/dev/dax0.0\nbytes={size}\n"
        hello += f"bell={len(connections)}\n"
        for listener in listeners:
            Agent(listener, hello).start()
    select.select([], [], [])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
