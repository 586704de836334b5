# SPDX-License-Identifier: BSD-3-Clause
"""Hostile writes into a machine's shared memory, by the generators of the engine's own fuzzer."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_FACES = Path(os.environ.get("NUPA_TEST_FACES", Path(__file__).parents[2] / "build/dev/tests"))
_WHY_BYTES = 256


class HostileSegment:
    """The segment at *path*, kept as it is now: heal() makes it so again."""

    def __init__(self, path: Path) -> None:
        """Maps it.  OSError: it is not a fabric, or the library is not built."""
        self._face = ctypes.CDLL(str(_FACES / "libscribble_face.so"))
        self._face.face_scribble_open.restype = ctypes.c_void_p
        self._face.face_scribble_area.restype = ctypes.c_char_p
        self._face.face_scribble.restype = ctypes.c_uint64
        self._face.face_scribble_keep.restype = ctypes.c_uint64
        why = ctypes.create_string_buffer(_WHY_BYTES)
        opened = self._face.face_scribble_open(os.fsencode(path), why, ctypes.c_size_t(_WHY_BYTES))
        if not opened:
            raise OSError(f"{path}: {why.value.decode()}")
        self._fabric = ctypes.c_void_p(opened)
        size = self._face.face_scribble_keep(self._fabric, None)
        self._kept = ctypes.create_string_buffer(size)
        self._face.face_scribble_keep(self._fabric, self._kept)

    def areas(self) -> list[str]:
        """Returns the parts of the segment that there are generators for."""
        names: list[str] = []
        while name := self._face.face_scribble_area(ctypes.c_uint32(len(names))):
            names.append(name.decode())
        return names

    def scribble(self, area: str, seed: int, seconds: float, each_ms: int) -> int:
        """Writes into it for so long, *each_ms* times a millisecond; returns how often.

        There are pauses, in which all but slots and arenas is whole.
        """
        writes: int = self._face.face_scribble(
            self._fabric,
            ctypes.c_uint32(self.areas().index(area)),
            ctypes.c_uint64(seed),
            ctypes.c_uint64(int(seconds * 1e9)),
            ctypes.c_uint32(each_ms),
            self._kept,
        )
        return writes

    def heal(self) -> None:
        """Makes it as it was, for those who attach anew: nobody must be attached."""
        self._face.face_scribble_heal(self._fabric, self._kept)
