# SPDX-License-Identifier: BSD-3-Clause
"""Protection domains: which memory and which QPs may meet."""

from __future__ import annotations

from typing import Any

from nupa._engine import lib
from nupa.verbs.base import PyverbsCM, closed
from nupa.verbs.device import Context
from nupa.verbs.errors import PyverbsUserError, refuse
from nupa.verbs.unsupported import ParentDomain, ParentDomainContext, ParentDomainInitAttr

__all__ = ["PD", "ParentDomain", "ParentDomainContext", "ParentDomainInitAttr"]


class PD(PyverbsCM):
    """A protection domain of *creator*, a Context.

    Closing it closes its QPs, AHs, MRs and SRQs.  PyverbsRDMAError if there can be no more.
    """

    _rank = PyverbsCM.RANK_PD

    def __init__(self, creator: Context) -> None:
        if not isinstance(creator, Context):
            raise PyverbsUserError(f"Cannot create PD from {type(creator)}: it takes a Context")
        c = lib.nupa_alloc_pd(creator._c or closed(creator))
        if not c:
            refuse("Failed to allocate PD")
        self._c = c
        self.ctx: Context | None = creator
        creator._adopt(self)

    def _destroy(self, c: Any) -> int:
        return int(lib.nupa_dealloc_pd(c))

    def _forget(self) -> None:
        self.ctx = None

    @property
    def handle(self) -> int:
        return int((self._c or closed(self)).handle)
