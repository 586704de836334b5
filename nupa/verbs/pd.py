# SPDX-License-Identifier: BSD-3-Clause
"""Protection domains: the scope in which QPs may use memory.

Parent domains are PDs with allocators for queues' memory (man 3 ibv_alloc_parent_domain).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsCM, PyverbsObject, address_of, closed, expect
from nupa.verbs.base.errors import PyverbsUserError, check, made
from nupa.verbs.base.fields import WhileOpen
from nupa.verbs.device import Context
from nupa.verbs.enums import (
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
)

if TYPE_CHECKING:
    from nupa.verbs.cmid import CMID
    from nupa.verbs.wr import SGE

__all__ = ["PD", "ParentDomain", "ParentDomainContext", "ParentDomainInitAttr", "ThreadDomain"]


class PD(PyverbsCM):
    """A protection domain of *creator*, a Context; or a CMID's own, which stays after a close.

    handle: another handle of a PD that *creator* was imported with; closing it is unimport().
    Closing a PD closes its QPs, AHs, MWs, MRs and SRQs.  PyverbsRDMAError: the limit is reached,
    or no PD has the handle.
    """

    _rank = PyverbsCM.RANK_PD
    _of_id = False
    _imported = False

    def __init__(self, creator: Context | CMID, handle: int | None = None) -> None:
        if not isinstance(creator, Context):
            self._share(creator)
            return
        parent = creator._c or closed(creator)
        self._imported = handle is not None
        c = lib.nupa_alloc_pd(parent) if handle is None else lib.nupa_import_pd(parent, handle)
        self._c = made(
            c, "Failed to allocate PD" if handle is None else f"Failed to import PD {handle:#x}"
        )
        self.ctx: Context | None = creator
        creator._adopt(self)

    def _share(self, creator: object) -> None:
        """Becomes the PD that *creator*, a CMID, has."""
        owner = getattr(creator, "pd", None)
        if not isinstance(owner, PD):
            raise PyverbsUserError(
                f"Cannot create PD from {type(creator)}: it takes a Context or a CMID"
            )
        self._c = owner._c or closed(owner)
        self._of_id = True
        self.ctx = owner.ctx
        owner._adopt(self)

    def _destroy(self, c: Any) -> int:
        if self._of_id:
            return 0
        if self._imported:
            lib.nupa_unimport_pd(c)
            return 0
        return int(lib.nupa_dealloc_pd(c))

    def unimport(self) -> None:
        """Closes the objects made with this handle, and drops it; the PD itself stays."""
        self._imported = True
        self.close()

    def advise_mr(self, advise: int, flags: int, sg_list: Sequence[SGE]) -> int:
        """Makes pages of on-demand regions present (man 3 ibv_advise_mr); returns 0.

        PyverbsRDMAError: EFAULT where memory is missing, EPERM, EINVAL as in the man page.
        """
        sges = ffi.new("struct ibv_sge[]", [sge._c[0] for sge in sg_list])
        rc = lib.nupa_advise_mr(self._c or closed(self), int(advise), flags, sges, len(sges))
        check(rc, "Failed to advise MR")
        return 0

    def _forget(self) -> None:
        self.ctx = None

    handle = WhileOpen("handle")

    @property
    def pd(self) -> int:
        """The address of its `struct ibv_pd`, for ctypes and other bindings."""
        return address_of(self._c or closed(self))


# (pd, context, size, alignment, resource_type) -> address; 0: there is none;
# _IBV_ALLOCATOR_USE_DEFAULT: the library allocates.
Alloc = Callable[[PD, "ParentDomainContext", int, int, int], int]
# (pd, context, address, resource_type)
Free = Callable[[PD, "ParentDomainContext", int, int], object]


class ParentDomainContext(PyverbsObject):
    """Allocators for the queues of a ParentDomain; user_data is theirs.

    alloc_func returns zeroed memory of *size* bytes; an exception counts as no memory.
    """

    user_data: Any

    def __init__(self, pd: PD, alloc_func: Alloc, free_func: Free, user_data: Any = None) -> None:
        self.pd = pd
        self.p_alloc = alloc_func
        self.p_free = free_func
        self.user_data = user_data

    def _alloc(self, _pd: Any, _context: Any, size: int, alignment: int, kind: int) -> Any:
        try:
            found = int(self.p_alloc(self.pd, self, size, alignment, kind))
        except Exception:
            # An exception cannot pass C: the caller is told that there is no memory.
            logging.getLogger("ParentDomain").exception("The allocator failed")
            found = 0
        return ffi.cast("void *", found)

    def _free(self, _pd: Any, _context: Any, address: Any, kind: int) -> None:
        try:
            self.p_free(self.pd, self, int(ffi.cast("uintptr_t", address)), kind)
        except Exception:
            logging.getLogger("ParentDomain").exception("Freeing memory of a queue failed")


class ThreadDomain(PyverbsCM):
    """A thread domain (man 3 ibv_alloc_td): one thread at a time uses its objects."""

    _rank = PyverbsCM.RANK_PD

    def __init__(self, context: Context) -> None:
        expect(context, Context, "context")
        attr = ffi.new("struct ibv_td_init_attr *")
        c = lib.nupa_alloc_td(context._c or closed(context), attr)
        self._c = made(c, "Failed to allocate thread domain")
        self.context: Context | None = context
        context._adopt(self)

    def _destroy(self, c: Any) -> int:
        return int(lib.nupa_dealloc_td(c))

    def _forget(self) -> None:
        self.context = None


class ParentDomainInitAttr(PyverbsObject):
    """Attributes of ParentDomain(context, ...): its PD, allocators and a thread domain."""

    def __init__(
        self,
        pd: PD,
        pd_context: ParentDomainContext | None = None,
        td: ThreadDomain | None = None,
    ) -> None:
        self.pd = expect(pd, PD, "pd")
        self.td = td
        self.pd_context = pd_context
        self._callbacks: tuple[Any, ...] = ()
        self._c = ffi.new("struct ibv_parent_domain_init_attr *")
        self._c.pd = pd._c or closed(pd)
        if td is not None:
            self._c.td = td._c or closed(td)
        if pd_context is not None:
            self._callbacks = (
                ffi.callback(
                    "void *(struct ibv_pd *, void *, size_t, size_t, uint64_t)", pd_context._alloc
                ),
                ffi.callback("void(struct ibv_pd *, void *, void *, uint64_t)", pd_context._free),
            )
            self._c.alloc, self._c.free = self._callbacks
            self._c.comp_mask = (
                IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
            )

    @property
    def comp_mask(self) -> int:
        return int(self._c.comp_mask)


class ParentDomain(PD):
    """A PD that stands for another one.  Closing it closes the objects made from it."""

    def __init__(self, context: Context, attr: ParentDomainInitAttr) -> None:
        expect(context, Context, "context")
        expect(attr, ParentDomainInitAttr, "attr")
        c = lib.nupa_alloc_parent_domain(context._c or closed(context), attr._c)
        self._c = made(c, "Failed to allocate Parent Domain")
        self._imported = False
        self._attr: ParentDomainInitAttr | None = attr  # C calls its functions
        self.protection_domain: PD | None = attr.pd
        self.ctx: Context | None = context
        for parent in (context, attr.pd, attr.td):
            if parent is not None:
                parent._adopt(self)

    def _forget(self) -> None:
        super()._forget()
        self.protection_domain = None
        self._attr = None
