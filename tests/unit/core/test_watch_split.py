# SPDX-License-Identifier: BSD-3-Clause
"""csrc/capture/expand/split.c against a second implementation: the same bytes of each access."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.packet.encode import cxl_mem_bytes, tlp_bytes
from tests.unit.packet.split import PcieLink, cxl_mem_messages, pcie_tlps

FACES = Path(os.environ.get("NUPA_TEST_FACES", Path(__file__).parents[3] / "build/dev/tests"))
REQUESTER, COMPLETER = 0x1234, 0x5678
LINK = PcieLink(mps=256, mrrs=512, rcb=64, tags=256)
READ, WRITE, FETCH_ADD, CAS, CXL_LOAD, CXL_STORE, CXL_ATOMIC = range(7)

face = ctypes.CDLL(str(FACES / "libsplit_face.so"))
face.face_split.argtypes = [
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_uint64,
    ctypes.c_uint32,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_uint32,
]


def made(access: int, address: int, data: bytes, tag: int, words: bytes = bytes(32)) -> list[bytes]:
    """Returns the packets that C makes."""
    out = ctypes.create_string_buffer(1 << 19)
    used = face.face_split(access, address, len(data), tag, data, words, out, len(out))
    assert used or access >= CXL_LOAD
    found, at, raw = [], 0, out.raw
    while at < used:
        size = int.from_bytes(raw[at : at + 4], "little")
        found.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return found


addresses = st.integers(0, (1 << 51) - 1) | st.integers((1 << 32) - 5000, (1 << 32) + 10)


@given(addresses, st.integers(0, 6000), st.integers(0, 255), st.sampled_from(["read", "write"]))
@example(0, 0, 255, "read")
@example(3, 0, 0, "write")
@example(0xFFF, 2, 255, "read")
@example(0x1FF, 513, 7, "write")
def test_reads_and_writes_are_split_alike(address: int, size: int, tag: int, kind: str) -> None:
    data = Random(size).randbytes(size)
    wanted = []
    for tlp in pcie_tlps(kind, address, size, LINK, tag):  # type: ignore[arg-type]
        offset = tlp.address - address
        carried = b"" if tlp.kind == "MRd" else data[offset : offset + tlp.length]
        wanted.append(tlp_bytes(tlp, carried, REQUESTER, COMPLETER))
    assert made(READ if kind == "read" else WRITE, address, data, tag) == wanted


@given(addresses, st.integers(0, 255), st.binary(min_size=32, max_size=32))
def test_atomics_are_split_alike(address: int, tag: int, words: bytes) -> None:
    address &= ~7
    for access, kind, operands in ((FETCH_ADD, "fetch_add", 8), (CAS, "cas", 16)):
        request, answer = pcie_tlps(kind, address, 8, LINK, tag)  # type: ignore[arg-type]
        assert made(access, address, bytes(8), tag, words) == [
            tlp_bytes(request, words[:operands], REQUESTER, COMPLETER),
            tlp_bytes(answer, words[16:24], REQUESTER, COMPLETER),
        ]


@given(addresses, st.integers(0, 3000), st.integers(0, 0xFFFF), st.sampled_from(["load", "store"]))
@example(0, 0, 0, "load")
@example(63, 66, 0xFFFF, "store")
def test_loads_and_stores_of_the_pool_are_split_alike(
    address: int, size: int, tag: int, kind: str
) -> None:
    data = Random(size).randbytes(size)
    wanted, done = [], 0
    for message in cxl_mem_messages(kind, address, size, tag):  # type: ignore[arg-type]
        wanted.append(cxl_mem_bytes(message, data[done : done + message.data_bytes]))
        done += message.data_bytes
    assert made(CXL_LOAD if kind == "load" else CXL_STORE, address, data, tag) == wanted


@given(addresses, st.integers(0, 0xFFFF), st.binary(min_size=32, max_size=32))
def test_atomics_in_the_pool_are_split_alike(address: int, tag: int, words: bytes) -> None:
    address &= ~7
    old, new = words[16:24], words[24:]
    carried = iter([b"", old, new, b""])
    assert made(CXL_ATOMIC, address, bytes(8), tag, words) == [
        cxl_mem_bytes(message, next(carried))
        for message in cxl_mem_messages("atomic", address, 8, tag)
    ]
