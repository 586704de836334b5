# SPDX-License-Identifier: BSD-3-Clause
"""A peer's commands for windows, device memory, and memory that comes and goes."""

from __future__ import annotations

import ctypes
import mmap
import os

from nupa.verbs import MR, PD, Context, QPAttr, SendWR
from nupa.verbs import enums as e
from nupa.verbs.device import DM, AllocDmAttr
from nupa.verbs.mr import DMMR, MW, MWBind, MWBindInfo
from tests.cross.peers.node import ALL_ACCESS, Done, Region, Verbs

BINDABLE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_MW_BIND
MAP_FIXED = 0x10
PROT_NONE = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]


def _map(at: int | None, length: int, prot: int, flags: int) -> int:
    flags |= mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    found = int(_libc.mmap(at, length, prot, flags, -1, 0))
    assert at in (None, found)
    return found


class Memory(Verbs):
    """Commands for the tests of memory."""

    _mws: list[MW]
    _dms: list[DM]

    def make_mw(self, mw_type: int) -> int:
        """Returns a window of this type, unbound; its rkey."""
        self._mws = [*getattr(self, "_mws", []), MW(self._pds[-1], mw_type)]
        return self._mws[-1].rkey

    def bind_mw(
        self, region: int, offset: int, length: int, access: int = ALL_ACCESS
    ) -> tuple[Done, Region]:
        """Binds the last window, by its type's way: the completion, and what peers may use."""
        mw, mr = self._mws[-1], self._mrs[region]
        info = MWBindInfo(mr, mr.buf + offset, length, access & ~e.IBV_ACCESS_LOCAL_WRITE)
        if mw.type == e.IBV_MW_TYPE_1:
            self._qps[-1].bind_mw(mw, MWBind(info, e.IBV_SEND_SIGNALED, 77))
            rkey = mw.rkey
        else:
            wr = SendWR(77, e.IBV_WR_BIND_MW)
            wr.set_bind_wr(mw, info)
            self._qps[-1].post_send(wr)
            rkey = wr.rkey
        return self.wait()[0], Region(-1, mr.buf + offset, rkey, length)

    def invalidate(self, rkey: int) -> Done:
        wr = SendWR(78, e.IBV_WR_LOCAL_INV)
        wr.invalidate_rkey = rkey
        self._qps[-1].post_send(wr)
        return self.wait()[0]

    def close_mw(self) -> None:
        self._mws[-1].close()

    def make_dm(self, length: int, offset: int = 0) -> Region:
        """Returns a region of device memory, zero based, from *offset* on."""
        dm = DM(self._contexts[-1], AllocDmAttr(length))
        self._dms = [*getattr(self, "_dms", []), dm]
        access = ALL_ACCESS | e.IBV_ACCESS_ZERO_BASED
        mr = DMMR(self._pds[-1], length - offset, access, dm, offset)
        self._mrs.append(mr)
        return Region(len(self._mrs) - 1, 0, mr.rkey, mr.length)

    def register_on_demand(self, length: int) -> Region:
        """Returns memory on demand that take_away() and give_back() can change."""
        at = _map(None, length, mmap.PROT_READ | mmap.PROT_WRITE, 0)
        mr = MR(self._pds[-1], length, ALL_ACCESS | e.IBV_ACCESS_ON_DEMAND, address=at)
        self._mrs.append(mr)
        return Region(len(self._mrs) - 1, mr.buf, mr.rkey, mr.length)

    def take_away(self, region: int, offset: int, length: int) -> None:
        """Unmaps the memory, and keeps its addresses reserved."""
        _map(self._mrs[region].buf + offset, length, PROT_NONE, MAP_FIXED)

    def give_back(self, region: int, offset: int, length: int) -> None:
        prot = mmap.PROT_READ | mmap.PROT_WRITE
        _map(self._mrs[region].buf + offset, length, prot, MAP_FIXED)

    def export(self, region: int) -> tuple[int, int, int, int]:
        """Returns where another process finds this context's descriptor, and what to import from
        it."""
        fd = self._contexts[-1].cmd_fd
        return os.getpid(), fd, self._pds[-1].handle, self._mrs[region].handle

    def import_region(self, pid: int, fd: int, pd: int, mr: int) -> Region:
        """Attaches by another process's descriptor, opened as if it had been sent here."""
        context = Context(cmd_fd=os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY))
        self._contexts.append(context)
        self._pds.append(PD(context, handle=pd))
        region = MR(self._pds[-1], handle=mr)
        self._mrs.append(region)
        return Region(len(self._mrs) - 1, 0, region.rkey, region.length)

    def rereg(self, region: int, access: int) -> None:
        self._mrs[region].rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=access)

    def reset(self) -> None:
        self._qps[-1].modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
