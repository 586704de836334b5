# SPDX-License-Identifier: BSD-3-Clause
"""Work requests: sends and receives to post."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi
from nupa.verbs.addr import AH
from nupa.verbs.base import PyverbsValue, closed, inc_rkey
from nupa.verbs.base.errors import PyverbsUserError
from nupa.verbs.base.fields import Field, table
from nupa.verbs.enums import IBV_SEND_SIGNALED, IBV_WR_SEND, ibv_wr_opcode
from nupa.verbs.utils import send_flags_to_str

if TYPE_CHECKING:
    from nupa.verbs.mw import MW, MWBindInfo

_SGE = ffi.typeof("struct ibv_sge *")
_SGES = ffi.typeof("struct ibv_sge[]")
_SEND_WR = ffi.typeof("struct ibv_send_wr *")
_RECV_WR = ffi.typeof("struct ibv_recv_wr *")
_OPCODES: dict[int, Any] = dict(ibv_wr_opcode._value2member_map_)


class SGE(PyverbsValue):
    """*length* bytes at *addr*, in the region whose key is *lkey*."""

    __slots__ = ("_c",)

    def __init__(self, addr: int, length: int, lkey: int) -> None:
        self._c = ffi.new(_SGE, (addr, length, lkey))

    addr = Field("addr")
    length = Field("length")
    lkey = Field("lkey")

    def read(self, length: int, offset: int) -> bytes:
        """Returns *length* bytes from *offset* on.  PyverbsUserError: beyond the element's end."""
        if offset < 0 or length < 0 or offset + length > self._c.length:
            raise PyverbsUserError(
                f"Cannot read {length} bytes at offset {offset} of an SGE of {self._c.length}"
            )
        return bytes(ffi.buffer(ffi.cast("char *", self._c.addr + offset), length))

    def __str__(self) -> str:
        return table({"Address": hex(self.addr), "Length": self.length, "Key": hex(self.lkey)})

    def __repr__(self) -> str:
        return f"SGE({self.addr:#x}, {self.length}, {self.lkey:#x})"


def sg_array(sg: Sequence[SGE] | None, num_sge: int) -> tuple[Any, int]:
    """Makes the C array of the first *num_sge* elements (0: all) of *sg*; returns it, its
    length."""
    num_sge = num_sge or len(sg or ())
    if num_sge < 0 or num_sge > len(sg or ()):
        raise PyverbsUserError(
            f"A WR needs at least one SGE for each of num_sge={num_sge}, got {len(sg or ())}"
        )
    return ffi.new(_SGES, [sge._c[0] for sge in (sg or ())[:num_sge]]), num_sge


class RecvWR(PyverbsValue):
    """A receive: the bytes of one message go to the SGEs in turn.

    num_sge may be left out.  The SGEs are copied: later changes of them have no effect.
    """

    __slots__ = ("_c", "_next", "_sges")

    def __init__(
        self,
        wr_id: int = 0,
        num_sge: int = 0,
        sg: Sequence[SGE] | None = None,
        next_wr: RecvWR | None = None,
    ) -> None:
        self._sges, num_sge = sg_array(sg, num_sge)
        self._c = ffi.new(_RECV_WR)
        self._c.wr_id = wr_id
        self._c.num_sge = num_sge
        self._c.sg_list = self._sges
        self._next: RecvWR | None = None
        if next_wr is not None:
            self.next_wr = next_wr

    wr_id = Field("wr_id")
    num_sge = Field("num_sge")

    @property
    def next_wr(self) -> RecvWR | None:
        """The request that is posted after it, in the same call."""
        return self._next

    @next_wr.setter
    def next_wr(self, val: RecvWR) -> None:
        self._c.next = val._c
        self._next = val

    def __str__(self) -> str:
        return table({"WR ID": self.wr_id, "Num SGE": self.num_sge})


class SendWR(PyverbsValue):
    """A send, RDMA or atomic work request; see set_wr_rdma(), set_wr_atomic() and set_wr_ud().

    imm_data is big endian, as on the wire.  num_sge may be left out.  The SGEs are copied.
    """

    __slots__ = ("_bound", "_c", "_next", "_sges", "ah")

    def __init__(
        self,
        wr_id: int = 0,
        opcode: int = IBV_WR_SEND,
        num_sge: int = 0,
        imm_data: int = 0,
        sg: Sequence[SGE] | None = None,
        send_flags: int = IBV_SEND_SIGNALED,
        next_wr: SendWR | None = None,
    ) -> None:
        self._sges, num_sge = sg_array(sg, num_sge)
        c = self._c = ffi.new(_SEND_WR)
        c.wr_id = wr_id
        c.num_sge = num_sge
        c.sg_list = self._sges
        c.opcode = opcode
        c.send_flags = send_flags
        c.imm_data = imm_data
        self.ah: AH | None = None
        self._next: SendWR | None = None
        if next_wr is not None:
            self.next_wr = next_wr

    wr_id = Field("wr_id")
    num_sge = Field("num_sge")
    imm_data = Field("imm_data")
    invalidate_rkey = Field("invalidate_rkey")
    opcode = Field("opcode", _OPCODES)
    send_flags = Field("send_flags")

    @property
    def next_wr(self) -> SendWR | None:
        """The request that is posted after it, in the same call."""
        return self._next

    @next_wr.setter
    def next_wr(self, val: SendWR) -> None:
        self._c.next = val._c
        self._next = val

    def _set_sg_list(self, val: SGE) -> None:
        self._sges = val._c
        self._c.sg_list = val._c

    sg_list = property(None, _set_sg_list, doc="Replaces the elements by one SGE; write only.")

    def set_wr_ud(self, ah: AH, rqpn: int, rqkey: int) -> None:
        """Sets the destination (UD): QP *rqpn* at *ah*, with that QP's Q_Key."""
        self.ah = ah
        ud = self._c.wr.ud
        ud.ah = ah._c or closed(ah)
        ud.remote_qpn = rqpn
        ud.remote_qkey = rqkey

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """Sets the target (RDMA): *addr* in the peer's region *rkey*."""
        rdma = self._c.wr.rdma
        rdma.remote_addr = addr
        rdma.rkey = rkey

    def set_bind_wr(self, mw: MW, bind_info: MWBindInfo) -> None:
        """Sets the range of a type 2 window (IBV_WR_BIND_MW): that in *bind_info*.

        The window's key becomes `rkey`: the one after its own.
        """
        bind = self._c.bind_mw
        bind.mw = mw._c or closed(mw)
        bind.bind_info = bind_info._c[0]
        bind.rkey = inc_rkey(mw.rkey)
        self._bound = (mw, bind_info)

    @property
    def rkey(self) -> int:
        """IBV_WR_BIND_MW: the key that the window will have."""
        return int(self._c.bind_mw.rkey)

    @rkey.setter
    def rkey(self, val: int) -> None:
        self._c.bind_mw.rkey = val

    def set_qp_type_xrc(self, remote_srqn: int) -> None:
        """Sets the destination (XRC): the peer's SRQ of this number (SRQ.get_srq_num())."""
        self._c.qp_type.xrc.remote_srqn = remote_srqn

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        """Sets 8 bytes at *addr* to compare with compare_add and swap, or to add compare_add to."""
        atomic = self._c.wr.atomic
        atomic.remote_addr = addr
        atomic.rkey = rkey
        atomic.compare_add = compare_add
        atomic.swap = swap

    def __str__(self) -> str:
        return table(
            {
                "WR ID": self.wr_id,
                "Num SGE": self.num_sge,
                "Opcode": int(self.opcode),
                "Send flags": send_flags_to_str(self.send_flags),
                "Imm Data": self.imm_data,
            }
        )
