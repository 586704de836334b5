# SPDX-License-Identifier: BSD-3-Clause
"""The datagrams of csrc/engine/cm/wire, by the library that tests build of them."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scapy.utils import rdpcap

from nupa.packet.scapy.cm import MAD

ROOT = Path(__file__).parents[3]
FACES = Path(os.environ.get("NUPA_TEST_FACES", ROOT / "build/dev/tests"))
BYTES = 256
DROP, TO_SLOT, TO_SERVICE, TO_NOBODY = range(4)

face = ctypes.CDLL(str(FACES / "libcm_face.so"))
face.face_cm_write.restype = None
for _name in ("again", "value", "through", "refuse"):
    getattr(face, f"face_cm_{_name}").restype = ctypes.c_bool


@dataclass(frozen=True)
class Field:
    index: int
    attribute: int  # 0: of each message
    at: int  # bits of the datagram
    bits: int
    name: str


def fields() -> list[Field]:
    """Returns the table of csrc/engine/cm/wire/mad.c."""
    attribute, at, bits = (ctypes.c_uint32() for _ in range(3))
    name = ctypes.c_char_p()
    refs = [ctypes.byref(each) for each in (attribute, at, bits, name)]
    found = []
    for i in range(face.face_cm_field(0, *refs)):
        face.face_cm_field(i, *refs)
        assert name.value
        found.append(Field(i, attribute.value, at.value, bits.value, name.value.decode()))
    return found


def written(attribute: int, values: dict[int, int], data: bytes) -> bytes:
    """Returns a message with *values* by the index of their field; *data* is all else."""
    table = (ctypes.c_uint64 * len(fields()))()
    for index, value in values.items():
        table[index] = value
    out = ctypes.create_string_buffer(BYTES)
    face.face_cm_write(attribute, table, data.ljust(BYTES, b"\0"), out)
    return out.raw


def again(mad: bytes) -> bytes | None:
    """Reads and writes a datagram; None: it is refused."""
    out = ctypes.create_string_buffer(BYTES)
    return out.raw if face.face_cm_again(mad, len(mad), out) else None


def through(mad: bytes) -> bytes | None:
    """Reads a datagram as the engine's message and writes that."""
    out = ctypes.create_string_buffer(BYTES)
    return out.raw if face.face_cm_through(mad, out) else None


def refusal(mad: bytes) -> bytes | None:
    out = ctypes.create_string_buffer(BYTES)
    return out.raw if face.face_cm_refuse(mad, out) else None


def value(mad: bytes, field: Field) -> int:
    number = ctypes.c_uint64()
    assert face.face_cm_value(mad, field.index, ctypes.byref(number))
    return number.value


def steer(mad: bytes) -> tuple[int, tuple[int, ...]]:
    """Returns an enum nupa_cm_way, and slot, space, port, P_Key, IPv6."""
    facts = (ctypes.c_uint32 * 5)()
    return face.face_cm_steer(mad, len(mad), facts), tuple(facts)


@cache
def of_the_kernel() -> list[bytes]:
    """Returns what two kernels with rdma_rxe said: REQ REP RTU DREQ DREP SIDR_REQ SIDR_REP."""
    packets = rdpcap(str(ROOT / "tests/data/rxe_any.pcap"))
    return [bytes(packet[MAD])[:BYTES] for packet in packets if MAD in packet]
