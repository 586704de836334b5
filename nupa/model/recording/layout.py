# SPDX-License-Identifier: BSD-3-Clause
"""The format of a recording's files: csrc/engine/record/record.h says what each field means."""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

MAGIC = b"NUPAREC\n"
VERSION = 2
HEADER_BYTES = 4096
TAIL_BYTES = 1 << 14
BODY_OFFSET = HEADER_BYTES + TAIL_BYTES
SUFFIX = ".nrec"

HEADER = struct.Struct("=8s6I4Q4I64s64sQII")
RECORD = struct.Struct("=QIIIIHBBBBBB")
TOOK_MAX = (1 << 32) - 1
TICKS_MAX = 1 << 62
POLLS_MAX = 255  # or more


class CallKind(IntEnum):
    END = 0
    POST = 1
    COMPLETION = 2
    WAIT = 3
    QP = 4
    CLOCK = 5
    CUT = 6
    LEFT = 7


class CallFlag(IntFlag):
    SIGNALED = 1
    INLINE = 2
    FENCE = 4
    SAME_CALL = 8
    MADE_IN_POST = 16
    AT_ONCE = 32
    AS_BEFORE = 64


class RecordingHeader(NamedTuple):
    magic: bytes
    version: int
    header_bytes: int
    record_bytes: int
    pid: int
    host: int
    slot: int
    generation: int
    start_ticks: int
    start_ns: int
    ticks_per_s: int
    post_ticks: int
    completion_ticks: int
    rank: int
    at_once_ticks: int
    host_name: bytes
    program: bytes
    body_records: int
    as_before_ticks: int
    reading_ticks: int


class CallRecord(NamedTuple):
    """As it lies in the file: times are ticks."""

    ticks: int
    took_ticks: int
    qpn: int
    peer: int
    bytes: int
    thread: int
    opcode: int
    status: int
    flags: int
    mover: int
    polls: int
    kind: int


#: enum ibv_wr_opcode: the model's operation of each; local ones move nothing.
OPERATIONS = {
    0: "write",
    1: "write",  # with immediate: it takes a receive
    2: "send",
    3: "send",
    4: "read",
    5: "atomic",
    6: "atomic",
    7: "local",  # LOCAL_INV
    8: "local",  # BIND_MW
    9: "send",  # SEND_WITH_INV
    14: "flush",
    15: "atomic",  # ATOMIC_WRITE
}
WRITE_WITH_IMM = 1
TAKES_RECEIVE = frozenset((1, 2, 3, 9))
RECEIVED = 128  # bit of enum ibv_wc_opcode
QPT_UD = 4
GRH_BYTES = 40
MOVERS = ("none", "local", "pool", "shared", "cma", "relay")
