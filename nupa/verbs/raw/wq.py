# SPDX-License-Identifier: BSD-3-Clause
"""Receive work queues, and the table and hash by which packets are spread among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from nupa._engine import ffi
from nupa.verbs.base import PyverbsObject, closed, expect
from nupa.verbs.base.errors import PyverbsUserError
from nupa.verbs.base.fields import Attribute, Field, link
from nupa.verbs.cq import CQ, CQEX
from nupa.verbs.device import Context
from nupa.verbs.enums import IBV_WQT_RQ, ibv_wq_state, ibv_wq_type
from nupa.verbs.pd import PD
from nupa.verbs.raw.refused import Refused
from nupa.verbs.srq import cq_pointer

if TYPE_CHECKING:
    from nupa.verbs.wr import RecvWR


_STATES = dict(ibv_wq_state._value2member_map_)


class WQInitAttr(PyverbsObject):
    """Attributes of a new WQ (ibv_wq_init_attr)."""

    def __init__(
        self,
        wq_context: object = None,
        wq_pd: PD | None = None,
        wq_cq: CQ | CQEX | None = None,
        wq_type: int = IBV_WQT_RQ,
        max_wr: int = 100,
        max_sge: int = 1,
        comp_mask: int = 0,
        create_flags: int = 0,
    ) -> None:
        self._c = ffi.new("struct ibv_wq_init_attr *")
        self._c.max_wr = max_wr
        self._c.max_sge = max_sge
        self._c.comp_mask = comp_mask
        self._c.create_flags = create_flags
        self.wq_context = wq_context
        self.wq_type = wq_type
        self.pd = wq_pd
        self.cq = wq_cq

    wq_type = Field("wq_type", dict(ibv_wq_type._value2member_map_))
    pd: Attribute[PD | None, PD | None] = link("pd")
    cq: Attribute[CQ | CQEX | None, CQ | CQEX | None] = link("cq", cq_pointer)


class WQAttr(PyverbsObject):
    """Attributes to modify a WQ (ibv_wq_attr); attr_mask says which are set."""

    def __init__(
        self,
        attr_mask: int = 0,
        wq_state: int = 0,
        curr_wq_state: int = 0,
        flags: int = 0,
        flags_mask: int = 0,
    ) -> None:
        values = (attr_mask, int(wq_state), int(curr_wq_state), flags, flags_mask)
        self._c = ffi.new("struct ibv_wq_attr *", values)

    attr_mask = Field("attr_mask")
    wq_state = Field("wq_state", _STATES)
    curr_wq_state = Field("curr_wq_state", _STATES)
    flags = Field("flags")
    flags_mask = Field("flags_mask")


class WQ(Refused):
    """A receive work queue.  PyverbsRDMAError, EOPNOTSUPP: the device has none."""

    def __init__(self, ctx: Context, attr: WQInitAttr) -> None:
        expect(ctx, Context, "ctx")
        expect(attr, WQInitAttr, "attr")
        self._refuse("Failed to create WQ")

    def add_ref(self, obj: object) -> NoReturn:  # noqa: ARG002
        closed(self)

    def modify(self, wq_attr: WQAttr) -> NoReturn:  # noqa: ARG002
        closed(self)

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> NoReturn:  # noqa: ARG002
        closed(self)

    @property
    def wqn(self) -> int:
        closed(self)


class RwqIndTableInitAttr(PyverbsObject):
    """Attributes of a table of 2 ** log_ind_tbl_size WQs.  PyverbsUserError: it is too small."""

    def __init__(
        self, log_ind_tbl_size: int = 5, wqs_list: Sequence[WQ] | None = None, comp_mask: int = 0
    ) -> None:
        self.wqs_list = list(wqs_list or ())
        if log_ind_tbl_size <= 0:
            raise PyverbsUserError("Invalid indirection table size. Log size must be > 0")
        if 1 << log_ind_tbl_size < len(self.wqs_list):
            raise PyverbsUserError(
                f"Requested table size ({1 << log_ind_tbl_size}) is smaller than the number of "
                f"wqs ({len(self.wqs_list)})"
            )
        values = (log_ind_tbl_size, ffi.NULL, comp_mask)
        self._c = ffi.new("struct ibv_rwq_ind_table_init_attr *", values)


class RwqIndTable(Refused):
    """A table of WQs.  PyverbsRDMAError, EOPNOTSUPP: the device has none."""

    def __init__(self, ctx: Context, attr: RwqIndTableInitAttr) -> None:
        expect(ctx, Context, "ctx")
        expect(attr, RwqIndTableInitAttr, "attr")
        self._refuse("Failed to create RwqIndTable")

    def add_ref(self, obj: object) -> NoReturn:  # noqa: ARG002
        closed(self)

    @property
    def wqs(self) -> list[WQ]:
        closed(self)


class RxHashConf(PyverbsObject):
    """The hash over header fields that chooses a WQ; *rx_hash_key* is a sequence of bytes.

    PyverbsUserError: the key has another length than *rx_hash_key_len*.
    """

    _key: Any = ()

    def __init__(
        self,
        rx_hash_function: int = 0,
        rx_hash_key_len: int = 0,
        rx_hash_key: Sequence[int] | None = None,
        rx_hash_fields_mask: int = 0,
    ) -> None:
        self._c = ffi.new("struct ibv_rx_hash_conf *")
        if rx_hash_key:
            if rx_hash_key_len != len(rx_hash_key):
                raise PyverbsUserError("Length of rx_hash_key not equal to rx_hash_key_len")
            self.rx_hash_key = rx_hash_key
        self.rx_hash_function = rx_hash_function
        self._c.rx_hash_key_len = rx_hash_key_len
        self.rx_hash_fields_mask = rx_hash_fields_mask

    rx_hash_function = Field("rx_hash_function")
    rx_hash_fields_mask = Field("rx_hash_fields_mask")

    @property
    def rx_hash_key_len(self) -> int:
        return int(self._c.rx_hash_key_len)

    @rx_hash_key_len.setter
    def rx_hash_key_len(self, val: int) -> None:
        if val <= 0:
            raise PyverbsUserError("Invalid rx_hash_key_len. Must be greater than 0")
        self._c.rx_hash_key_len = val

    @property
    def rx_hash_key(self) -> list[int]:
        return list(self._key)

    @rx_hash_key.setter
    def rx_hash_key(self, key: Sequence[int]) -> None:
        self._key = ffi.new("uint8_t[]", list(key))
        self._c.rx_hash_key = self._key
        self._c.rx_hash_key_len = len(key)
