# SPDX-License-Identifier: BSD-3-Clause
"""The transfer of a file by WRITE, READ or SEND, with SHA-256 on both sides.

The demo uses `TransferJob`.  As a program, this module is one of the two ends, which exchange
addresses over TCP: `nupa run -- python -m nupa.measure.transfer server write ...`.  The client is
the active end: with READ, it receives the file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nupa.base.errors import NupaError
from nupa.measure.control import Control, FileOperation, TransferError
from nupa.measure.results import FileTransfer
from nupa.programs.pair import PairResult

OPERATIONS: tuple[FileOperation, ...] = ("write", "read", "send")
_SEED = 20260
_CHUNK_BYTES = 1 << 20
_FILE_MAX_BYTES = 1 << 30
_DEADLINE_S = 30.0


@dataclass(frozen=True)
class TransferJob:
    """One file, one operation: sent from *directory*/OPERATION.sent to OPERATION.received."""

    operation: FileOperation
    size_bytes: int
    directory: Path
    port: int

    @property
    def sent(self) -> Path:
        return self.directory / f"{self.operation}.sent"

    @property
    def received(self) -> Path:
        return self.directory / f"{self.operation}.received"

    def make_file(self) -> None:
        """Writes the same random bytes at each run."""
        rng = random.Random(_SEED)
        with self.sent.open("wb") as file:
            for size in _chunks(self.size_bytes):
                file.write(rng.randbytes(size))

    def remove_files(self) -> None:
        for path in (self.sent, self.received):
            path.unlink(missing_ok=True)

    def command(self, role: Literal["server", "client"]) -> list[str]:
        sends = (role == "client") != (self.operation == "read")
        path = self.sent if sends else self.received
        return [
            # -P: the nupa of a checkout in the current folder may not be the installed one.
            *(sys.executable, "-P", "-m", "nupa.measure.transfer", role, self.operation),
            *("--port", str(self.port), "--bytes", str(self.size_bytes), "--file", str(path)),
        ]

    def result(self, pair: PairResult) -> FileTransfer:
        """Parses the output of both ends."""
        server, client = (json.loads(end.stdout) for end in (pair.server, pair.client))
        sender, receiver = (server, client) if self.operation == "read" else (client, server)
        return FileTransfer(
            operation=self.operation,
            size_bytes=self.size_bytes,
            seconds=client["seconds"],
            sent_sha256=sender["sha256"],
            received_sha256=receiver["sha256"],
        )


def _chunks(size_bytes: int) -> Iterator[int]:
    whole, rest = divmod(size_bytes, _CHUNK_BYTES)
    yield from [_CHUNK_BYTES] * whole
    if rest:
        yield rest


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(args: argparse.Namespace, control: Control) -> dict[str, object]:
    """Runs one end; returns the object that it prints."""
    # Imported here, so that the demo itself starts without the engine.
    from nupa.measure.endpoint import Endpoint

    client = args.role == "client"
    sends = client != (args.operation == "read")
    with Endpoint(args.bytes) as endpoint:
        # This touches the receiver's pages, as registration with a NIC would.
        endpoint.fill(args.file.read_bytes() if sends else bytes(args.bytes))
        if args.operation == "send" and not sends:
            endpoint.post_receives(list(_chunks(args.bytes)))
        peer = control.swap(endpoint.address())
        endpoint.connect(peer)
        control.meet("ready")
        start_s = time.perf_counter()
        if client:
            endpoint.move(args.operation, peer, list(_chunks(args.bytes)))
        elif args.operation == "send":
            endpoint.wait_received()
        seconds = time.perf_counter() - start_s
        control.meet("done")
        if not sends:
            args.file.write_bytes(endpoint.contents())
    return {"sha256": _sha256(args.file), "bytes": args.bytes, "seconds": seconds}


def _connection(role: str, port: int) -> socket.socket:
    if role == "client":
        return socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE_S)
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(_DEADLINE_S)
        return listener.accept()[0]


def _size(text: str) -> int:
    value = int(text)
    if not 0 < value <= _FILE_MAX_BYTES:
        raise argparse.ArgumentTypeError(f"{text}: choose 1 to {_FILE_MAX_BYTES} bytes")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="nupa.measure.transfer", description=__doc__)
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("operation", choices=OPERATIONS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bytes", type=_size, required=True)
    parser.add_argument("--file", type=Path, required=True)
    args = parser.parse_args(argv)
    try:
        with _connection(args.role, args.port) as connection:
            connection.settimeout(_DEADLINE_S)
            print(json.dumps(_run(args, Control(connection))))
    except (TransferError, NupaError, OSError) as error:
        print(f"{args.role}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
