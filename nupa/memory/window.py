# SPDX-License-Identifier: BSD-3-Clause
"""Windows: memory that hosts share, at addresses of this process.

Knows mappings, their loss, and caches that are flushed and invalidated; never who made a region,
nor decoders and devices.  csrc/region/view.h.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError, RemoteError
from nupa.core.segment import WHY_BYTES, HostInfo, check, text

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from nupa.core.open_fabric import OpenFabric

OnLoss = Literal["ones", "raise"]
Coherence = Literal["hardware", "software"]
_COHERENCES = ("hardware", "software")
_REASONS = {
    lib.NUPA_VIEW_REVOKED: "its memory was taken away",
    lib.NUPA_VIEW_FORKED: "it is the parent process's: a child maps a window of its own",
    lib.NUPA_VIEW_CLOSED: "it is closed",
    lib.NUPA_VIEW_LINK_DOWN: "a link between its host and its memory went down: map it again",
}


class Mappable(Protocol):
    """What a window takes: nupa.memory.region.Region."""

    @property
    def id(self) -> int: ...
    @property
    def tag(self) -> str: ...


class WindowError(RemoteError):
    """The memory behind a window is gone: it was freed by force or removed, its link went down, or
    it is the parent's."""


class Window:
    """A region of a fabric, as a *host* sees it: `Window(fabric, host, region)`.

    Loads and stores go by the buffer protocol (memoryview(w), numpy.frombuffer(w), slices of bytes:
    w[0:5] = b"hello"), by `memory`, `array()`, and `pointer`; len(w) is in bytes.  It is closed, or
    used as a context manager.

    **Loss.** A region can be taken away: it is freed by force, its device is gone, or a link
    between the host and the memory goes down.  Loads see all ones from then on, for good, and
    stores are seen by nobody else; none of them ends by a signal.  `read`, `write`, `flush`,
    `invalidate` and atomics do the same with on_loss="ones" (what a host sees of a device that is
    gone, PCIe 6.0 2.3.2), and raise WindowError with "raise".

    **After close()** views of it are all ones, too: its addresses stay taken until the last
    memoryview or array of it has gone, so that no view ever shows what is somebody else's.  A
    pointer is good as long as the window or a view of it is there.

    **Coherence.** "hardware": the mapping itself.  "software": the window is a cache of its own,
    filled when it is made.  Loads see what others stored and flushed only after `invalidate`, and
    others see its stores only after `flush`; so what a program forgets is missing each time.

    A process that is forked has no windows: those of its parent are lost in it.

    LocalError: the region is not shared with the host (EACCES), or cannot be mapped (EINVAL,
    E2BIG); WindowError: it is gone; FabricError: no room (ENOMEM, ENOSPC), a link is down
    (ENETDOWN).
    """

    on_loss: OnLoss
    name: str
    _view: Any
    _size: int
    _closed: bool

    __hash__ = object.__hash__  # arrays of ctypes have none

    def __new__(
        cls,
        fabric: OpenFabric,
        host: HostInfo | str | int,
        region: Mappable | int,
        *,
        on_loss: OnLoss = "ones",
    ) -> Self:
        where = host if isinstance(host, HostInfo) else fabric.host(host)
        number = region if isinstance(region, int) else region.id
        tag = "" if isinstance(region, int) else region.tag
        name = f"window of {where.name} on region {tag or f'{number:#x}'}"
        out, why = ffi.new("struct nupa_view **"), ffi.new("char[]", WHY_BYTES)
        rc = lib.nupa_view_of_region(fabric.handle, number, where.index, out, why, WHY_BYTES)
        return cls._of(rc, out, why, name, on_loss)

    # The class that __new__ makes is an array of bytes, which would take these for its items.
    def __init__(self, *_: object, **__: object) -> None:
        pass

    @classmethod
    def of_pieces(
        cls,
        where: OpenFabric | int,
        pieces: Sequence[int],
        size: int,
        granularity: int = 0,
        *,
        coherence: Coherence = "hardware",
        on_loss: OnLoss = "ones",
        name: str = "window",
    ) -> Self:
        """A window of *size* bytes on *pieces*, which take turns of *granularity* bytes: turn t is
        at pieces[t % n] + t // n * granularity, an offset in the pool of a fabric, or in the file
        of a descriptor, which nobody makes shorter.  With as many pieces as turns each turn is
        where its own piece says.  Sizes and offsets are whole pages.

        Whoever has the memory says when it is gone: `revoke`.
        """
        if coherence not in _COHERENCES:
            raise LocalError(f"coherence {coherence!r}: choose of {', '.join(_COHERENCES)}")
        limit = 2**64 - 1
        if not pieces or not all(0 <= each <= limit for each in (*pieces, size, granularity)):
            raise LocalError(
                f"{name}: {size} bytes of {len(pieces)} pieces in turns of {granularity}"
            )
        plan = ffi.new("struct nupa_view_plan *")
        offsets = plan.pieces = ffi.new("uint64_t[]", pieces)
        plan.n_pieces, plan.granularity, plan.bytes = len(offsets), granularity, size
        plan.software = coherence == "software"
        out, why = ffi.new("struct nupa_view **"), ffi.new("char[]", WHY_BYTES)
        if isinstance(where, int):
            rc = lib.nupa_view_of_file(where, plan, out, why, WHY_BYTES)
        else:
            rc = lib.nupa_view_of_pool(where.handle, plan, out, why, WHY_BYTES)
        return cls._of(rc, out, why, name, on_loss)

    @classmethod
    def _of(cls, rc: int, out: Any, why: Any, name: str, on_loss: OnLoss) -> Self:
        _judge(rc, name, text(why))
        view = ffi.gc(out[0], lib.nupa_view_free)
        if on_loss not in ("ones", "raise"):
            raise LocalError(f"on_loss {on_loss!r}: choose of ones, raise")
        size = int(lib.nupa_view_bytes(view))
        # The buffer protocol of a class of ours: Python's own way (__buffer__) came with 3.12.
        kind = type("Window", (cls, ctypes.c_char * size), {})
        at = int(ffi.cast("uintptr_t", lib.nupa_view_at(view)))
        window: Any = kind.from_address(at)  # type: ignore[attr-defined]
        # Whoever has a view of it keeps the object, and with it the addresses.
        window._view, window._size, window._closed = view, size, False
        window.on_loss, window.name = on_loss, name
        return window  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        state = "closed" if self._closed else "lost" if self.revoked else f"{self._size} bytes"
        return f"<{self.name}: {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    if TYPE_CHECKING:  # ctypes.Array has them

        def __len__(self) -> int: ...

        def __getitem__(self, at: slice) -> bytes: ...

        def __setitem__(self, at: slice, data: bytes) -> None: ...

    # Addresses

    @property
    def memory(self) -> memoryview:
        """All of it, writable."""
        return memoryview(self).cast("B")  # type: ignore[arg-type]

    def array(self, dtype: DTypeLike = "u1") -> NDArray[Any]:
        """All of it, as a NumPy array.  LocalError: it is no multiple of the item's size, or NumPy
        is not installed."""
        try:
            import numpy
        except ImportError as error:
            raise LocalError("arrays need NumPy: pip install nupa[numpy]") from error
        if self._size % numpy.dtype(dtype).itemsize:
            raise LocalError(f"{self.name}: {self._size} bytes are no multiple of {dtype}")
        return numpy.frombuffer(self, dtype)  # type: ignore[call-overload, no-any-return]

    @property
    def address(self) -> int:
        return ctypes.addressof(self)  # type: ignore[arg-type]

    @property
    def pointer(self) -> Any:
        """For C, by cffi: a `void *`."""
        return lib.nupa_view_at(self._view)

    @property
    def coherence(self) -> Coherence:
        return "software" if lib.nupa_view_is_software(self._view) else "hardware"

    # Copies

    def read(self, offset: int, size: int) -> bytes:
        """*size* bytes at *offset*.  LocalError: they are not inside."""
        self._check(offset, size)
        found = bytearray(size)
        rc = lib.nupa_view_read(self._view, offset, ffi.from_buffer(found), size)
        self._heed(rc)
        return bytes(found)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """LocalError: they are not inside."""
        given = ffi.from_buffer(data)
        self._check(offset, len(given))
        self._heed(lib.nupa_view_write(self._view, offset, given, len(given)))

    def atomic(self, operation: str, offset: int, operand: int = 0, compare: int = 0) -> int:
        """As `nupa.memory.atomic_*` do it.  What the 64 bits were before."""
        self._check(offset, 8)
        if not (0 <= operand < 2**64 and 0 <= compare < 2**64):
            raise LocalError(f"{self.name}: {operation} of {operand:#x}: a word has 64 bits")
        before = ffi.new("uint64_t *")
        rc = lib.nupa_word_atomic(
            self.pointer, self._size, offset, OPERATIONS[operation], operand, compare, before
        )
        check(rc, f"{self.name}: {operation} at {offset:#x}, which is to be a multiple of 8")
        if lib.nupa_view_lost(self._view) != lib.NUPA_VIEW_KEPT:
            self._heed(-errno.ESTALE)
            return 2**64 - 1
        return int(before[0])

    def flush(self, offset: int = 0, size: int | None = None) -> None:
        """Others see what was stored: lines of 64 bytes that hold something else than when they
        were fetched are written.  With coherence by hardware there is nothing to do."""
        size = self._size - offset if size is None else size
        self._check(offset, size)
        self._heed(lib.nupa_view_flush(self._view, offset, size))

    def invalidate(self, offset: int = 0, size: int | None = None) -> None:
        """Loads see what others flushed; what was stored there and not flushed is gone."""
        size = self._size - offset if size is None else size
        self._check(offset, size)
        self._heed(lib.nupa_view_invalidate(self._view, offset, size))

    # Loss

    @property
    def revoked(self) -> bool:
        """Whether its memory was taken away."""
        lost = lib.nupa_view_lost(self._view)
        return lost not in (lib.NUPA_VIEW_KEPT, lib.NUPA_VIEW_CLOSED)

    def revoke(self) -> None:
        """Takes its memory away, for whoever has it: a device that is removed."""
        lib.nupa_view_revoke(self._view)

    def close(self) -> None:
        """Lets the memory go.  A second call does nothing."""
        self._closed = True
        lib.nupa_view_close(self._view)

    def _check(self, offset: int, size: int) -> None:
        if self._closed:
            raise LocalError(f"{self.name} is closed: map it again")
        if offset < 0 or size < 0 or offset + size > self._size:
            raise LocalError(
                f"{self.name}: {size} bytes at {offset:#x}: it has {self._size:#x}", errno.ERANGE
            )

    def _heed(self, rc: int) -> None:
        if rc == -errno.ESTALE and self.on_loss == "ones":
            return
        _judge(rc, self.name, _REASONS.get(lib.nupa_view_lost(self._view), ""))


#: By the names that nupa.memory has for them.
OPERATIONS = {
    "load": lib.NUPA_WORD_LOAD,
    "store": lib.NUPA_WORD_STORE,
    "fetch_add": lib.NUPA_WORD_FETCH_ADD,
    "fetch_and": lib.NUPA_WORD_FETCH_AND,
    "fetch_or": lib.NUPA_WORD_FETCH_OR,
    "fetch_xor": lib.NUPA_WORD_FETCH_XOR,
    "swap": lib.NUPA_WORD_SWAP,
    "compare_swap": lib.NUPA_WORD_COMPARE_SWAP,
}


def _judge(rc: int, what: str, why: str) -> None:
    if rc == -errno.ESTALE:
        raise WindowError(f"{what}: {why}", errno.ESTALE)
    if rc == -errno.E2BIG:
        raise LocalError(f"{what}: {why}", errno.E2BIG)
    check(rc, what, why)
