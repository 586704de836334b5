# SPDX-License-Identifier: BSD-3-Clause
"""Device memory: extents of the fabric's CXL pool (man 3 ibv_alloc_dm)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsCM, PyverbsValue, closed
from nupa.verbs.base.errors import PyverbsRDMAError, PyverbsUserError, check, made
from nupa.verbs.base.fields import Field, WhileOpen

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from nupa.verbs.device import Context


class AllocDmAttr(PyverbsValue):
    """The bytes of a DM, and its alignment in the pool as a power of two."""

    __slots__ = ("_c",)

    def __init__(self, length: float, log_align_req: int = 0, comp_mask: int = 0) -> None:
        self._c = ffi.new("struct ibv_alloc_dm_attr *", (int(length), log_align_req, comp_mask))

    length = Field("length")
    log_align_req = Field("log_align_req")
    comp_mask = Field("comp_mask")


class DM(PyverbsCM):
    """Memory of the fabric's pool, which every host can load from and store to.

    copy_from_dm() and copy_to_dm() read and write it, as do work requests through a DMMR.
    handle: another handle of a DM that *context* was imported with.  Closing it closes its DMMRs.
    PyverbsRDMAError: EINVAL beyond the device's limit, ENOMEM when the pool is full.
    """

    _rank = PyverbsCM.RANK_PD

    def __init__(
        self, context: Context, dm_attr: AllocDmAttr | None = None, *, handle: int | None = None
    ) -> None:
        parent = context._c or closed(context)
        self._imported = handle is not None
        if handle is not None:
            c = made(lib.nupa_import_dm(parent, handle), f"Failed to import DM {handle}")
        elif dm_attr is None:
            raise PyverbsUserError("A DM is made from an AllocDmAttr, or imported by its handle")
        else:
            c = lib.nupa_alloc_dm(parent, dm_attr._c)
            if not c:
                code = ffi.errno
                limit = context.query_device_ex().max_dm_size
                raise PyverbsRDMAError(
                    f"Failed to allocate device memory of size {dm_attr.length}. Max available "
                    f"size {limit}",
                    code,
                )
        self._c = c
        self.context: Context | None = context
        context._adopt(self)

    def _destroy(self, c: Any) -> int:
        if self._imported:
            lib.nupa_unimport_dm(c)
            return 0
        return int(lib.nupa_free_dm(c))

    def _forget(self) -> None:
        self.context = None

    def unimport(self) -> None:
        """Drops this handle; the DM stays until its allocator frees it."""
        self._imported = True
        self.close()

    handle = WhileOpen("handle")

    def copy_to_dm(self, dm_offset: int, data: Buffer, length: int) -> None:
        """Copies *length* bytes of *data* to *dm_offset*; both are multiples of 4."""
        c = self._c or closed(self)
        source = memoryview(data).cast("B")
        if length > len(source):
            raise PyverbsUserError(f"Asked to copy {length} bytes of data that has {len(source)}")
        rc = c.memcpy_to_dm(c, dm_offset, ffi.from_buffer(source), length)
        check(rc, f"Failed to copy to dm: {length} bytes at {dm_offset}")

    def copy_from_dm(self, dm_offset: int, length: int) -> bytes:
        """Returns *length* bytes at *dm_offset*; both are multiples of 4."""
        c = self._c or closed(self)
        data = bytearray(length)
        rc = c.memcpy_from_dm(ffi.from_buffer(data), c, dm_offset, length)
        check(rc, f"Failed to copy from dm: {length} bytes at {dm_offset}")
        return bytes(data)
