# SPDX-License-Identifier: BSD-3-Clause
"""Protection domains: the scope in which QPs may use memory."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsCM, closed
from nupa.verbs.base.errors import PyverbsUserError, refuse
from nupa.verbs.device import Context

if TYPE_CHECKING:
    from nupa.verbs.parent_domain import ParentDomain, ParentDomainContext, ParentDomainInitAttr
    from nupa.verbs.wr import SGE

__all__ = ["PD", "ParentDomain", "ParentDomainContext", "ParentDomainInitAttr"]


def __getattr__(name: str) -> Any:
    # pyverbs has them in this module, on which their own module depends.
    if name.startswith("ParentDomain") and name in __all__:
        return getattr(import_module("nupa.verbs.parent_domain"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class PD(PyverbsCM):
    """A protection domain of *creator*, a Context.

    handle: another handle of a PD that *creator* was imported with; closing it is unimport().
    Closing a PD closes its QPs, AHs, MWs, MRs and SRQs.  PyverbsRDMAError: the limit is reached,
    or no PD has the handle.
    """

    _rank = PyverbsCM.RANK_PD

    def __init__(self, creator: Context, handle: int | None = None) -> None:
        if not isinstance(creator, Context):
            raise PyverbsUserError(f"Cannot create PD from {type(creator)}: it takes a Context")
        parent = creator._c or closed(creator)
        self._imported = handle is not None
        c = lib.nupa_alloc_pd(parent) if handle is None else lib.nupa_import_pd(parent, handle)
        if not c:
            refuse(
                "Failed to allocate PD" if handle is None else f"Failed to import PD {handle:#x}"
            )
        self._c = c
        self.ctx: Context | None = creator
        creator._adopt(self)

    def _destroy(self, c: Any) -> int:
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

        PyverbsRDMAError: EFAULT where there is no memory, EPERM, EINVAL as in the man page.
        """
        sges = ffi.new("struct ibv_sge[]", [sge._c[0] for sge in sg_list])
        rc = lib.nupa_advise_mr(self._c or closed(self), int(advise), flags, sges, len(sges))
        if rc:
            refuse("Failed to advise MR", rc)
        return 0

    def _forget(self) -> None:
        self.ctx = None

    @property
    def handle(self) -> int:
        return int((self._c or closed(self)).handle)
