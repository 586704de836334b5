# SPDX-License-Identifier: BSD-3-Clause
"""Memory regions of verbs: memory that work requests may name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsCM, closed, expect
from nupa.verbs.base.buffers import HUGE_PAGE_SIZE, WRITING, allocate, buffer_of
from nupa.verbs.base.errors import PyverbsRDMAError, PyverbsUserError, made, refuse
from nupa.verbs.base.fields import WhileOpen, table
from nupa.verbs.device.dm import DM
from nupa.verbs.device.dmabuf import DmaBuf, mapped
from nupa.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_ZERO_BASED,
    IBV_REREG_MR_CHANGE_PD,
    IBV_REREG_MR_CHANGE_TRANSLATION,
    ibv_access_flags,
)
from nupa.verbs.mw import MW, MWBind, MWBindInfo
from nupa.verbs.pd import PD
from nupa.verbs.utils import mwtype2str, rereg_error_to_str
from nupa.verbs.wr import SGE

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from nupa.verbs.cmid import CMID

__all__ = [
    "DMMR",
    "HUGE_PAGE_SIZE",
    "MR",
    "MW",
    "DmaBufMR",
    "MWBind",
    "MWBindInfo",
    "NullMR",
    "mwtype2str",
    "rereg_error_to_str",
]

_SIZE_MAX = (1 << 64) - 1


class MR(PyverbsCM):
    """A memory region of *creator*: a PD, or a CMID, whose PD it then uses.

    length: bytes of new memory, page-aligned and zeroed; or an object with a buffer (bytearray,
    memoryview, mmap, NumPy array ...).  The object is registered in place and kept alive.
    access: ibv_access_flags; for a CMID, remote write and remote read imply local write.
    address: registers *length* bytes there, which the caller keeps alive.
    implicit: with IBV_ACCESS_ON_DEMAND, all of this process's memory; buf is *length* bytes of it.
    handle: another handle of a region of an imported PD; closing it is unimport().
    iova: the address that work requests use; by default the memory's own.

    A read-only buffer can be registered for reading only.
    PyverbsUserError: arguments contradict each other.  PyverbsRDMAError: the engine refuses.

    >>> MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE)                          # doctest: +SKIP
    >>> MR(pd, numpy.zeros(1000), IBV_ACCESS_LOCAL_WRITE)             # doctest: +SKIP
    """

    _rank = PyverbsCM.RANK_MR
    _memory: Any = None
    _buf: int = 0
    _imported = False

    def __init__(
        self,
        creator: PD | CMID,
        length: int | Buffer = 0,
        access: int = 0,
        address: int | None = None,
        implicit: bool = False,
        *,
        iova: int | None = None,
        handle: int | None = None,
    ) -> None:
        pd = creator
        if not isinstance(pd, PD):
            pd, access = _of_id(creator, access)
        parent = pd._c or closed(pd)
        if not isinstance(length, int):
            self._memory, length = buffer_of(length, access)
        elif address is not None:
            self._memory = ffi.cast("char *", address)
        elif length > 0:
            self._memory = ffi.from_buffer(allocate(length, access))
        elif length < 0:
            raise PyverbsUserError(f"A region cannot have a length of {length} bytes")
        pointer = ffi.NULL if self._memory is None else self._memory
        self._buf = int(ffi.cast("uintptr_t", pointer))
        if iova is None:
            iova = 0 if access & IBV_ACCESS_ZERO_BASED else self._buf
        if handle is not None:
            c = made(lib.nupa_import_mr(parent, handle), f"Failed to import MR {handle}")
            length = int(c.length)
        elif implicit:
            c = lib.nupa_reg_mr(parent, ffi.NULL, _SIZE_MAX, 0, int(access))
        else:
            c = lib.nupa_reg_mr(parent, pointer, length, iova, int(access))
        if not c:
            refuse(
                f"Failed to register a MR. length: {length}, access flags: "
                f"{ibv_access_flags(access)!r}",
                remedy=""
                if access & IBV_ACCESS_LOCAL_WRITE or not access & WRITING
                else "remote write and remote atomic access need local write too",
            )
        self._imported = handle is not None
        self._belong(pd, c, length)

    def _belong(self, pd: PD, c: Any, length: int) -> None:
        self._c = c
        self._length = length
        self.pd: PD | None = pd
        pd._adopt(self)

    def _destroy(self, c: Any) -> int:
        if self._imported:
            lib.nupa_unimport_mr(c)
            return 0
        return int(lib.nupa_dereg_mr(c))

    def _forget(self) -> None:
        # Views keep the memory, which goes with the last of them.
        self.pd = None
        self._memory = None
        self._buf = 0

    def unimport(self) -> None:
        """Drops this handle (man 3 ibv_unimport_mr); the region itself stays."""
        self._imported = True
        self.close()

    def rereg(
        self, flags: int, pd: PD | None = None, addr: int = 0, length: int = 0, access: int = 0
    ) -> None:
        """Changes the region in place and keeps its keys; *flags*: ibv_rereg_mr_flags.

        PyverbsRDMAError: EINVAL, EFAULT, EOPNOTSUPP as for a new region, EBUSY while windows are
        bound to it; the region is then unchanged.
        """
        c = self._c or closed(self)
        parent = ffi.NULL if pd is None else pd._c or closed(pd)
        rc = lib.nupa_rereg_mr(c, flags, parent, ffi.cast("void *", addr), length, int(access))
        if rc:
            code = ffi.errno
            raise PyverbsRDMAError(f"Failed to rereg MR: {rereg_error_to_str(rc)}", code)
        if flags & IBV_REREG_MR_CHANGE_TRANSLATION:
            self._memory = ffi.cast("char *", addr)
            self._buf = addr
            self._length = length
        if flags & IBV_REREG_MR_CHANGE_PD and pd is not None:
            if self.pd is not None:
                self.pd._disown(self)
            self.pd = pd
            pd._adopt(self)

    @property
    def buf(self) -> int:
        """Address of the first byte, 0 when closed."""
        return self._buf

    lkey = WhileOpen("lkey")
    rkey = WhileOpen("rkey")
    #: in bytes
    length = WhileOpen("length")
    handle = WhileOpen("handle")

    @property
    def view(self) -> memoryview:
        """The memory as writable bytes, without a copy.

        With Python 3.12 and newer memoryview(mr) is the same; numpy.asarray(mr) works with all.
        The memory of a region that allocated it stays as long as any view.
        """
        if self._c is None:
            closed(self)
        if self._memory is None:
            return memoryview(bytearray())
        return memoryview(ffi.buffer(self._memory, self._length))

    def __buffer__(self, flags: int) -> memoryview:
        return self.view

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        array = np.frombuffer(self.view, np.uint8 if dtype is None else dtype)
        return array.copy() if copy else array

    def __len__(self) -> int:
        return self._length

    def write(self, data: str | Buffer, length: int | None = None, offset: int = 0) -> None:
        """Copies the first *length* bytes of *data* (None: all) to *offset* bytes in."""
        source = memoryview(data.encode() if isinstance(data, str) else data).cast("B")
        length = len(source) if length is None else length
        if length > len(source):
            raise PyverbsUserError(f"Asked to write {length} bytes of data that has {len(source)}")
        if length:
            ffi.memmove(self._at(offset, length, "write"), source, length)

    def read(self, length: int | None = None, offset: int = 0) -> bytes:
        """Returns *length* bytes (None: all that follow) from *offset* on."""
        if length is None and self._c is not None:
            length = max(0, self._length - offset)
        length = length or 0
        return bytes(ffi.buffer(self._at(offset, length, "read"), length)) if length else b""

    def _at(self, offset: int, length: int, verb: str) -> Any:
        if self._memory is None or length < 0:
            raise PyverbsUserError(f"The MR buffer isn't allocated or length {length} is invalid")
        self._check_inside(offset, length, verb)
        return self._memory + offset

    def _check_inside(self, offset: int, length: int, verb: str) -> None:
        if offset < 0 or length < 0 or offset + length > self._length:
            raise PyverbsUserError(
                f"Invalid offset {offset}: cannot {verb} {length} bytes there in a region of "
                f"{self._length}"
            )

    def sge(self, offset: int = 0, length: int | None = None) -> SGE:
        """Returns a scatter-gather element of this region: *length* bytes (None: the rest)."""
        length = self._length - offset if length is None else length
        return SGE(self._buf + offset, length, self.lkey)

    def __str__(self) -> str:
        return "MR:\n" + table(
            {
                "lkey": self.lkey,
                "rkey": self.rkey,
                "length": self.length,
                "buf": self.buf,
                "handle": self.handle,
            }
        )


class DMMR(MR):
    """A region of *length* bytes of device memory, from *offset* bytes into *dm* on.

    Addresses in work requests count from its start: access has IBV_ACCESS_ZERO_BASED.
    """

    def __init__(self, pd: PD, length: float, access: int, dm: DM, offset: float) -> None:
        expect(pd, PD, "pd")
        length, offset = int(length), int(offset)  # pyverbs takes floats
        parent = pd._c or closed(pd)
        c = lib.nupa_reg_dm_mr(parent, dm._c or closed(dm), offset, length, int(access))
        if not c:
            refuse(
                f"Failed to register a device MR. length: {length}, access flags: "
                f"{ibv_access_flags(access)!r}",
                remedy=""
                if access & IBV_ACCESS_ZERO_BASED
                else "device memory needs IBV_ACCESS_ZERO_BASED",
            )
        self._offset = offset
        self.dm: DM | None = dm
        self._belong(pd, c, length)
        dm._adopt(self)

    def _forget(self) -> None:
        super()._forget()
        self.dm = None

    def write(self, data: str | Buffer, length: int | None = None, offset: int = 0) -> None:
        """Writes as MR.write() does; offsets and lengths are multiples of 4."""
        source = memoryview(data.encode() if isinstance(data, str) else data).cast("B")
        length = len(source) if length is None else length
        (self.dm or closed(self)).copy_to_dm(self._offset + offset, source, length)

    def read(self, length: int | None = None, offset: int = 0) -> bytes:
        """Reads as MR.read() does; offsets and lengths are multiples of 4."""
        length = max(0, self._length - offset) if length is None else length
        return (self.dm or closed(self)).copy_from_dm(self._offset + offset, length)


class DmaBufMR(MR):
    """A region of *length* bytes of a dma-buf, from *offset* bytes into it on.

    dmabuf: a DmaBuf, the descriptor of any dma-buf that can be mapped, or None: memory of its own.
    Addresses in work requests count from the dma-buf's start: the region's first byte is *offset*.
    PyverbsRDMAError: EBADF, EINVAL for another file or beyond its end, EOPNOTSUPP for memory that
    processors cannot map.
    """

    dmabuf: DmaBuf | int | None
    offset: int

    def __init__(
        self,
        pd: PD,
        length: int,
        access: int,
        dmabuf: DmaBuf | int | None = None,
        offset: int = 0,
        gpu: int = 0,
        gtt: int = 0,
    ) -> None:
        expect(pd, PD, "pd")
        parent = pd._c or closed(pd)
        self._own = DmaBuf(length + offset, gpu, gtt) if dmabuf is None else None
        dmabuf = self._own if dmabuf is None else dmabuf
        if isinstance(dmabuf, DmaBuf):
            self._fd = dmabuf._c or closed(dmabuf)
        else:
            self._fd = dmabuf
        c = lib.nupa_reg_dmabuf_mr(parent, offset, length, offset, self._fd, int(access))
        if not c:
            refuse(
                f"Failed to register a dma-buf MR. length: {length}, access flags: "
                f"{ibv_access_flags(access)!r}"
            )
        self.dmabuf, self.offset = dmabuf, offset
        self._belong(pd, c, length)
        if isinstance(dmabuf, DmaBuf):
            dmabuf._adopt(self)

    def _forget(self) -> None:
        super()._forget()
        self.dmabuf = None
        if self._own is not None:
            self._own.close()

    def write(self, data: str | Buffer, length: int | None = None, offset: int = 0) -> None:
        """Writes as MR.write() does, through a mapping of its own."""
        source = memoryview(data.encode() if isinstance(data, str) else data).cast("B")
        length = len(source) if length is None else length
        if length > len(source):
            raise PyverbsUserError(f"Asked to write {length} bytes of data that has {len(source)}")
        at = self._start(offset, length, "write")
        if length:
            with mapped(self._fd, at + length, writing=True) as memory:
                memory[at : at + length] = source[:length]

    def read(self, length: int | None = None, offset: int = 0) -> bytes:
        """Reads as MR.read() does, through a mapping of its own."""
        length = max(0, self._length - offset) if length is None else length
        at = self._start(offset, length, "read")
        if not length:
            return b""
        with mapped(self._fd, at + length, writing=False) as memory:
            return memory[at : at + length]

    def _start(self, offset: int, length: int, verb: str) -> int:
        if self._c is None:
            closed(self)
        self._check_inside(offset, length, verb)
        return self.offset + offset

    def sge(self, offset: int = 0, length: int | None = None) -> SGE:
        """Returns a scatter-gather element of this region: *length* bytes (None: the rest)."""
        length = self._length - offset if length is None else length
        return SGE(self.offset + offset, length, self.lkey)


class NullMR(MR):
    """A region that reads as zeros and ignores writes, at any address; lkey only."""

    def __init__(self, pd: PD) -> None:
        expect(pd, PD, "pd")
        c = made(lib.nupa_alloc_null_mr(pd._c or closed(pd)), "Failed to allocate a null MR")
        self._belong(pd, c, 0)


def _of_id(creator: object, access: int) -> tuple[PD, int]:
    """Returns the PD of a CMID, and the access as rdma_reg_read and rdma_reg_write have it."""
    pd = getattr(creator, "pd", None)
    return expect(creator if pd is None else pd, PD, "creator"), access | IBV_ACCESS_LOCAL_WRITE
