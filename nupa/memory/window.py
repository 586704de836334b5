# SPDX-License-Identifier: BSD-3-Clause
"""Windows: memory that hosts share, mapped in this process (csrc/region/view/view.h)."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
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
    lib.NUPA_VIEW_FORKED: "it is the parent process's: map a window in the child",
    lib.NUPA_VIEW_CLOSED: "it is closed",
    lib.NUPA_VIEW_LINK_DOWN: "a link between its host and its memory went down: map it again",
}


class Mappable(Protocol):
    """The parameter of a window: nupa.memory.region.Region."""

    @property
    def id(self) -> int: ...
    @property
    def tag(self) -> str: ...


class WindowError(RemoteError):
    """The memory behind a window is gone.

    It was freed by force or removed, its link went down, or the window is the parent process's.
    """


class Window(Closing):
    """A region of a fabric, as a *host* sees it: `Window(fabric, host, region)`.

    Loads and stores go by the buffer protocol (memoryview(w), numpy.frombuffer(w), slices of bytes:
    w[0:5] = b"hello"), by `memory`, `array()`, and `pointer`; len(w) is in bytes.  Close it, or use
    it as a context manager.

    **Loss.** A window loses its region when that is freed by force, its device is removed, or a
    link between host and memory goes down.  From then on loads return all ones and stores reach no
    other process; none of them raises a signal.  `read`, `write`, `flush`, `invalidate` and atomics
    do the same with on_loss="ones" (PCIe 6.0 2.3.2, as for a device that is gone).  With "raise"
    they raise WindowError.

    **After close()** views of it are all ones, too.  Its addresses stay taken until the last
    memoryview or array of it has gone, so no view ever shows other memory.  A pointer is valid as
    long as the window or a view of it.

    **Coherence.** "hardware": the mapping itself.  "software": the window is a cache of its own,
    filled when it is made.  Loads see other hosts' flushed stores only after `invalidate`; other
    hosts see its stores only after `flush`.  A missing flush or invalidate thus shows every time.

    A child process has no windows: fork() loses those of the parent.

    LocalError: the region is not shared with the host (EACCES), or cannot be mapped (EINVAL,
    E2BIG).  WindowError: the region is gone.
    FabricError: no room (ENOMEM, ENOSPC), or a link is down (ENETDOWN).
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

    # The class that __new__ makes is an array of bytes, whose __init__ takes items.
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
        """Makes a window of *size* bytes on *pieces*, interleaved by *granularity* bytes.

        Turn t is at pieces[t % n] + t // n * granularity.  Offsets are in the pool of a fabric, or
        in a file that is never shortened.  With as many pieces as turns, each piece is the offset
        of its turn.  Sizes and offsets are whole pages.

        The owner of the memory calls `revoke` when it is gone.
        """
        if coherence not in _COHERENCES:
            raise LocalError(f"coherence {coherence!r}: choose one of {', '.join(_COHERENCES)}")
        limit = 2**64 - 1
        if not pieces or not all(0 <= each <= limit for each in (*pieces, size, granularity)):
            raise LocalError(
                f"{name}: {size} bytes of {len(pieces)} pieces in turns of {granularity}: give at "
                "least one piece, and numbers of 64 bits"
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
            raise LocalError(f"on_loss {on_loss!r}: choose ones or raise")
        size = int(lib.nupa_view_bytes(view))
        # The buffer protocol of a Python class (__buffer__) came with 3.12.
        kind = type("Window", (cls, ctypes.c_char * size), {})
        at = int(ffi.cast("uintptr_t", lib.nupa_view_at(view)))
        window: Any = kind.from_address(at)  # type: ignore[attr-defined]
        # A view keeps the object, and so its addresses.
        window._view, window._size, window._closed = view, size, False
        window.on_loss, window.name = on_loss, name
        return window  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        state = "closed" if self._closed else "lost" if self.revoked else f"{self._size} bytes"
        return f"<{self.name}: {state}>"

    if TYPE_CHECKING:  # ctypes.Array has them

        def __len__(self) -> int: ...

        def __getitem__(self, at: slice) -> bytes: ...

        def __setitem__(self, at: slice, data: bytes) -> None: ...

    # Addresses

    @property
    def memory(self) -> memoryview:
        """The whole window, writable."""
        return memoryview(self).cast("B")  # type: ignore[arg-type]

    def array(self, dtype: DTypeLike = "u1") -> NDArray[Any]:
        """Returns the whole window as a NumPy array.

        LocalError: its size is not a multiple of the item's, or NumPy is not installed.
        """
        try:
            import numpy
        except ImportError as error:
            raise LocalError("arrays need NumPy: `pip install numpy`") from error
        if self._size % numpy.dtype(dtype).itemsize:
            raise LocalError(f"{self.name}: {self._size} bytes are not a multiple of {dtype}")
        return numpy.frombuffer(self, dtype)  # type: ignore[call-overload, no-any-return]

    @property
    def address(self) -> int:
        return ctypes.addressof(self)  # type: ignore[arg-type]

    @property
    def pointer(self) -> Any:
        """The address as a cffi `void *`, for C."""
        return lib.nupa_view_at(self._view)

    @property
    def coherence(self) -> Coherence:
        return "software" if lib.nupa_view_is_software(self._view) else "hardware"

    # Copies

    def read(self, offset: int, size: int) -> bytes:
        """Returns *size* bytes at *offset*.  LocalError: outside."""
        self._check(offset, size)
        found = bytearray(size)
        rc = lib.nupa_view_read(self._view, offset, ffi.from_buffer(found), size)
        self._heed(rc)
        return bytes(found)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Writes *data* at *offset*.  LocalError: outside."""
        given = ffi.from_buffer(data)
        self._check(offset, len(given))
        self._heed(lib.nupa_view_write(self._view, offset, given, len(given)))

    def atomic(self, operation: str, offset: int, operand: int = 0, compare: int = 0) -> int:
        """Performs an operation of `nupa.memory.atomic_*`.  Returns the former 64 bits."""
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
        """Makes stores visible to other hosts: writes back the changed lines of 64 bytes.

        With coherence by hardware it does nothing.
        """
        size = self._size - offset if size is None else size
        self._check(offset, size)
        self._heed(lib.nupa_view_flush(self._view, offset, size))

    def invalidate(self, offset: int = 0, size: int | None = None) -> None:
        """Makes other hosts' flushed stores visible to loads; stores not flushed are lost."""
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
        """Takes its memory away, as a removed device does."""
        lib.nupa_view_revoke(self._view)

    def close(self) -> None:
        """Unmaps the memory.  A second call does nothing."""
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


#: Operations by the names that nupa.memory has for them.
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
