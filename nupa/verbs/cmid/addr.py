# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of connection management (rdma_getaddrinfo(3))."""

from __future__ import annotations

from typing import Any

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsObject, expect
from nupa.verbs.base.errors import PyverbsUserError, refuse
from nupa.verbs.base.fields import Field
from nupa.verbs.cm_enums import RAI_PASSIVE


class AddrInfo(PyverbsObject):
    """An address to listen at (RAI_PASSIVE in flags: *src*), or to reach (*dst*), from *src*.

    Hosts are names or addresses of the fabric (10.0.0.N), services are ports, all as text.
    PyverbsRDMAError: they do not resolve.
    """

    _c: Any = None

    def __init__(
        self,
        src: str | bytes | None = None,
        dst: str | bytes | None = None,
        src_service: str | bytes | None = None,
        dst_service: str | bytes | None = None,
        port_space: int = 0,
        flags: int = 0,
    ) -> None:
        hints = ffi.new("struct rdma_addrinfo *")
        hints.ai_port_space = int(port_space)
        hints.ai_flags = int(flags)
        if flags & RAI_PASSIVE:
            self._c = _resolve(src, src_service, hints)
            return
        ours = ffi.NULL
        if src:
            hints.ai_flags = int(flags) | RAI_PASSIVE
            ours = _resolve(src, src_service, hints)
            hints.ai_src_addr, hints.ai_src_len = ours.ai_src_addr, ours.ai_src_len
            hints.ai_flags = int(flags)
        try:
            self._c = _resolve(dst, dst_service, hints)
        finally:
            if ours:
                lib.rdma_freeaddrinfo(ours)

    def close(self) -> None:
        if self._c is not None:
            lib.rdma_freeaddrinfo(self._c)
            self._c = None

    def __del__(self) -> None:
        self.close()

    def _addr(self) -> Any:
        if self._c is None:
            raise PyverbsUserError("This AddrInfo is closed")
        return self._c


def _resolve(node: str | bytes | None, service: str | bytes | None, hints: Any) -> Any:
    found = ffi.new("struct rdma_addrinfo **")
    if lib.rdma_getaddrinfo(_text(node), _text(service), hints, found):
        refuse(f"Failed to get Address Info of {node!r}, service {service!r}")
    return found[0]


def _text(value: str | bytes | None) -> Any:
    if not value:
        return ffi.NULL
    return value.encode() if isinstance(value, str) else value


class JoinMCAttrEx(PyverbsObject):
    """A multicast group to join, and the way of joining it: rdma_cm_mc_join_flags."""

    def __init__(self, addr: AddrInfo, comp_mask: int = 0, join_flags: int = 0) -> None:
        self._addr = expect(addr, AddrInfo, "addr")
        self._c = ffi.new("struct rdma_cm_join_mc_attr_ex *")
        self._c.addr = addr._addr().ai_src_addr
        self.comp_mask = comp_mask
        self.join_flags = join_flags

    comp_mask = Field("comp_mask")
    join_flags = Field("join_flags")
