# SPDX-License-Identifier: BSD-3-Clause
"""A worker's report through memory that outlives it: figures and its last operations
(struct board in worker/soak.h)."""

from __future__ import annotations

import mmap
import os
import struct

ENDS = 64
LOG_ENTRIES = 128
HEAD = struct.Struct("<16Q")
END = struct.Struct("<2Q")
ENTRY = struct.Struct("<Q3I4B")
LOG_AT = HEAD.size + ENDS * END.size
BYTES = LOG_AT + LOG_ENTRIES * ENTRY.size

KINDS = ("", "made", "posted", "done", "received", "down", "destroyed")
OPCODES = ("WRITE", "WRITE_IMM", "SEND", "SEND_IMM", "READ", "CAS", "FADD", "", "", "SEND_INV")


class Board:
    """The board of one worker process."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("soak-board", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, BYTES)
        self._memory = mmap.mmap(self.fd, BYTES)

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)

    def _word(self, index: int) -> int:
        return int(HEAD.unpack_from(self._memory)[index])

    @property
    def heartbeat_ns(self) -> int:
        return self._word(0)

    @property
    def operations(self) -> int:
        return self._word(1)

    @property
    def bytes(self) -> int:
        """Bytes that were compared with what they had to be."""
        return self._word(2)

    @property
    def wrong(self) -> int:
        return self._word(3)

    @property
    def datagrams(self) -> int:
        return self._word(4)

    @property
    def longest_dereg_s(self) -> float:
        return self._word(5) / 1e9

    @property
    def fds(self) -> tuple[int, int, int]:
        """Open before the device was, lately, and after it was closed."""
        return HEAD.unpack_from(self._memory)[6:9]

    @property
    def heap_bytes(self) -> tuple[int, int, int]:
        """The same of the heap."""
        return HEAD.unpack_from(self._memory)[9:12]

    def progress(self) -> dict[int, int]:
        """Returns a number for each end that grows with all that it does."""
        pairs = (END.unpack_from(self._memory, HEAD.size + i * END.size) for i in range(ENDS))
        return {end: progress for end, progress in pairs if end}

    @property
    def dials(self) -> int:
        """Connections by rdma_cm that went from end to end."""
        return self._word(13)

    @property
    def untold(self) -> int:
        """Connections by rdma_cm whose peers' ends nothing told of."""
        return self._word(14)

    def log(self, newest: int = 12) -> list[str]:
        """Returns the last operations, oldest first, a line each."""
        count = self._word(12)
        lines = []
        for number in range(max(0, count - min(newest, LOG_ENTRIES)), count):
            at = LOG_AT + number % LOG_ENTRIES * ENTRY.size
            ns, end, step, size, kind, opcode, status, _ = ENTRY.unpack_from(self._memory, at)
            what = KINDS[kind] if kind < len(KINDS) else str(kind)
            name = OPCODES[opcode] if opcode < len(OPCODES) else str(opcode)
            lines.append(
                f"{ns / 1e9:.6f} end {end} step {step} {what} {name} {size} bytes, status {status}"
            )
        return lines
