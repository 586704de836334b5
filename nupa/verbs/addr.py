# SPDX-License-Identifier: BSD-3-Clause
"""Addresses: GIDs, global routes, address handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsCM, PyverbsObject, closed, expect
from nupa.verbs.base.errors import PyverbsUserError, refuse
from nupa.verbs.base.fields import Attribute, Field, table
from nupa.verbs.pd import PD
from nupa.verbs.utils import gid_bytes
from nupa.verbs.utils.gid import GID, read_gid

if TYPE_CHECKING:
    from nupa.verbs.cq import WC

__all__ = ["AH", "GID", "GRH", "AHAttr", "GlobalRoute"]


def _gid(name: str) -> Attribute[str, str]:
    """Makes a GID in C, read and assigned as text."""

    def write(obj: Any, text: str) -> None:
        getattr(obj._c, name).raw = gid_bytes(text)

    return Attribute(lambda obj: read_gid(getattr(obj._c, name)), write)


class GRH(PyverbsObject):
    """Global routing header: the first 40 bytes that a UD receive writes to its buffer.

    version_tclass_flow (32 bits) and paylen (16 bits, bytes) are as on the wire, big endian.
    """

    def __init__(
        self,
        sgid: GID | None = None,
        dgid: GID | None = None,
        version_tclass_flow: int = 0,
        paylen: int = 0,
        next_hdr: int = 0,
        hop_limit: int = 1,
    ) -> None:
        self._c = ffi.new("struct ibv_grh *", (version_tclass_flow, paylen, next_hdr, hop_limit))
        if sgid is not None:
            self._c.sgid = sgid._c[0]
        if dgid is not None:
            self._c.dgid = dgid._c[0]

    version_tclass_flow = Field("version_tclass_flow")
    paylen = Field("paylen")
    next_hdr = Field("next_hdr")
    hop_limit = Field("hop_limit")
    dgid = _gid("dgid")
    sgid = _gid("sgid")

    def __str__(self) -> str:
        return table(
            {
                "DGID": self.dgid,
                "SGID": self.sgid,
                "version tclass flow": self.version_tclass_flow,
                "paylen": self.paylen,
                "next header": self.next_hdr,
                "hop limit": self.hop_limit,
            }
        )


class GlobalRoute(PyverbsObject):
    """The global route of outgoing packets, from which their GRH is made (ibv_global_route)."""

    def __init__(
        self,
        dgid: GID | None = None,
        flow_label: int = 0,
        sgid_index: int = 0,
        hop_limit: int = 1,
        traffic_class: int = 0,
    ) -> None:
        values: tuple[Any, ...] = ({}, flow_label, sgid_index, hop_limit, traffic_class)
        self._c = ffi.new("struct ibv_global_route *", values)
        if dgid is not None:
            self._c.dgid = dgid._c[0]

    flow_label = Field("flow_label")
    sgid_index = Field("sgid_index")
    hop_limit = Field("hop_limit")
    traffic_class = Field("traffic_class")
    dgid = _gid("dgid")

    def __str__(self) -> str:
        return table(
            {
                "DGID": self.dgid,
                "flow label": self.flow_label,
                "sgid index": self.sgid_index,
                "hop limit": self.hop_limit,
                "traffic class": self.traffic_class,
            }
        )


def _of_route(name: str) -> Attribute[int | None, int]:
    """Makes a field of an AHAttr's route; None if the address is not global."""

    def read(attr: AHAttr) -> int | None:
        return int(getattr(attr._c.grh, name)) if attr._c.is_global else None

    def write(attr: AHAttr, value: int) -> None:
        setattr(attr._c.grh, name, value)

    return Attribute(read, write)


class AHAttr(PyverbsObject):
    """The path to a port (ibv_ah_attr).  *gr* is ignored unless is_global is set."""

    def __init__(
        self,
        dlid: int = 0,
        sl: int = 0,
        src_path_bits: int = 0,
        static_rate: int = 0,
        is_global: int = 0,
        port_num: int = 1,
        gr: GlobalRoute | None = None,
    ) -> None:
        values: tuple[Any, ...] = ({}, dlid, sl, src_path_bits, static_rate, is_global, port_num)
        self._c = ffi.new("struct ibv_ah_attr *", values)
        if is_global:
            if gr is None:
                raise PyverbsUserError("Global AH Attr is created but gr parameter is None")
            self._c.grh = gr._c[0]

    dlid = Field("dlid")
    sl = Field("sl")
    src_path_bits = Field("src_path_bits")
    static_rate = Field("static_rate")
    is_global = Field("is_global")
    port_num = Field("port_num")

    @property
    def dgid(self) -> str | None:
        """The destination GID; None, as all that follow, if the address is not global."""
        return read_gid(self._c.grh.dgid) if self._c.is_global else None

    @dgid.setter
    def dgid(self, val: str) -> None:
        if self._c.is_global:
            self._c.grh.dgid.raw = gid_bytes(val)

    flow_label = _of_route("flow_label")
    sgid_index = _of_route("sgid_index")
    hop_limit = _of_route("hop_limit")
    traffic_class = _of_route("traffic_class")

    def __str__(self) -> str:
        rows = {
            "port num": self.port_num,
            "sl": self.sl,
            "source path bits": self.src_path_bits,
            "dlid": self.dlid,
            "static rate": self.static_rate,
            "is global": self.is_global,
        }
        return table({**rows, **self._route_rows()}, indent="  ")

    def _route_rows(self) -> dict[str, object]:
        if not self.is_global:
            return {}
        return {
            "dgid": self.dgid,
            "flow label": self.flow_label,
            "sgid index": self.sgid_index,
            "hop limit": self.hop_limit,
            "traffic_class": self.traffic_class,
        }


class AH(PyverbsCM):
    """An address handle: the destination of a UD work request.

    AH(pd, attr=AHAttr), or AH(pd, wc=WC, grh=..., port_num=N) to answer a UD receive.  *grh* is a
    GRH, or the address of the 40 bytes that the receive wrote.  PyverbsRDMAError: the device
    refuses.
    """

    _rank = PyverbsCM.RANK_AH

    def __init__(
        self,
        pd: PD,
        attr: AHAttr | None = None,
        wc: WC | None = None,
        grh: GRH | int | None = None,
        port_num: int = 1,
    ) -> None:
        self.pd: PD | None = expect(pd, PD, "pd")
        parent = pd._c or closed(pd)
        if attr is not None:
            c = lib.nupa_create_ah(parent, attr._c)
        elif wc is not None:
            header = grh._c if isinstance(grh, GRH) else ffi.cast("struct ibv_grh *", grh or 0)
            c = lib.nupa_create_ah_from_wc(parent, wc._c, header, port_num)
        else:
            raise PyverbsUserError("An AH is made from attr=AHAttr(...), or from wc= and grh=")
        if not c:
            refuse("Failed to create AH")
        self._c = c
        pd._adopt(self)

    def _destroy(self, c: Any) -> int:
        return int(lib.nupa_destroy_ah(c))

    def _forget(self) -> None:
        self.pd = None
