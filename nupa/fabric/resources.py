# SPDX-License-Identifier: BSD-3-Clause
"""RDMA resources of all processes of a fabric as plain values: what `rdma res` shows of a host."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.base.printable import printable
from nupa.core.mover import Mover
from nupa.core.segment import check, text

if TYPE_CHECKING:
    from nupa.core.segment import HostInfo, SlotInfo

_AT_ONCE = 64
#: enum rdma_cm_state of the kernel's include/rdma/rdma_cm.h.
_CM_STATES = (
    *("IDLE", "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY", "ROUTE_RESOLVED", "CONNECT"),
    *("DISCONNECT", "ADDR_BOUND", "LISTEN", "DEVICE_REMOVAL", "DESTROYING"),
)
#: Movers by which peers reach a region, by its place.
_MOVERS = {
    lib.NUPA_MR_IN_PRIVATE: (str(Mover.CMA), str(Mover.RELAY)),
    lib.NUPA_MR_IN_POOL: (str(Mover.POOL),),
    lib.NUPA_MR_IN_SHARED: (str(Mover.SHARED),),
}


@lru_cache(1024)  # of thousands of rows, few differ
def _named(enum: str, prefix: str, value: int) -> str:
    """Returns the name of a value of a C enum, without *prefix*; the number where it has none."""
    name: str = ffi.typeof(f"enum {enum}").elements.get(value, str(value))
    return name.removeprefix(prefix)


@lru_cache(1024)  # of thousands of rows, few differ
def _access(value: int) -> tuple[str, ...]:
    return tuple(
        name.removeprefix("IBV_ACCESS_")
        for bit, name in sorted(ffi.typeof("enum ibv_access_flags").elements.items())
        if bit.bit_count() == 1 and value & bit
    )


def resources(
    handle: Any, hosts: Sequence[HostInfo], processes: Mapping[int, SlotInfo]
) -> dict[str, list[dict[str, Any]]]:
    """Returns all resources by kind: qps, mrs, pds, cqs, srqs, cm_ids, contexts.

    *handle*: the fabric's `struct nupa_fabric *`; *processes*: by slot.  Numbers are those of
    `rdma res`; a queue pair's is also that of `ibv_qp.qp_num`.  Addresses and sizes are in bytes.
    """

    def of(kind: int, *names: str) -> Iterator[tuple[Any, dict[str, Any]]]:
        for info in _rows(handle, kind):
            common = {
                "host": hosts[info.host].name,
                "pid": info.pid,
                "comm": printable(text(info.comm)),
                "slot": info.slot,
                "number": info.number,
            }
            yield info, common | {name: getattr(info, name) for name in names}

    def partner(info: Any) -> dict[str, Any] | None:
        if not info.dest_qpn or info.dest_host < 0:
            return None
        process = processes.get(info.dest_slot)
        return {
            "host": hosts[info.dest_host].name,
            "qpn": info.dest_qpn,
            "pid": process.pid if process else None,
            "comm": process.comm if process else None,
        }

    context = ("context",)
    return {
        "qps": [
            row
            | {
                "type": _named("ibv_qp_type", "IBV_QPT_", info.type),
                "state": _named("ibv_qp_state", "IBV_QPS_", info.state),
                "partner": partner(info),
                "mover": _named("nupa_mover", "NUPA_MOVER_", info.mover).lower()
                if info.mover
                else None,
                "path_mig_state": _named("ibv_mig_state", "IBV_MIG_", info.path_mig_state),
            }
            for info, row in of(
                lib.NUPA_RESOURCE_QP,
                *("context", "pd", "send_cq", "recv_cq", "srq", "rq_psn", "sq_psn"),
            )
        ],
        "mrs": [
            row
            | {
                "window": bool(info.window),
                "access": _access(info.access),
                "movers": _MOVERS[info.place],
            }
            for info, row in of(lib.NUPA_RESOURCE_MR, "pd", "key", "iova", "length")
        ],
        "pds": [row for _, row in of(lib.NUPA_RESOURCE_PD, *context, "users")],
        "cqs": [row for _, row in of(lib.NUPA_RESOURCE_CQ, *context, "users", "entries")],
        "srqs": [
            row | {"type": _named("ibv_srq_type", "IBV_SRQT_", info.type), "cq": info.recv_cq}
            for info, row in of(lib.NUPA_RESOURCE_SRQ, *context, "pd", "entries")
        ],
        "cm_ids": [row | _cm_id(info) for info, row in of(lib.NUPA_RESOURCE_CM_ID, "qpn")],
        "contexts": [row for _, row in of(lib.NUPA_RESOURCE_CTX)],
    }


def _rows(handle: Any, kind: int) -> Iterator[Any]:
    """Iterates over `struct nupa_resource_info`; each is valid until the next."""
    at, infos = ffi.new("uint64_t *"), ffi.new("struct nupa_resource_info[]", _AT_ONCE)
    while True:
        found = lib.nupa_fabric_resources(handle, kind, -1, at, infos, _AT_ONCE)
        check(min(found, 0), "cannot list the fabric's resources")
        if not found:
            return
        yield from infos[0:found]


def _cm_id(info: Any) -> dict[str, Any]:
    state = _CM_STATES[info.cm_state] if info.cm_state < len(_CM_STATES) else str(info.cm_state)

    def address(octets: Any, port: int) -> str | None:
        if info.family not in (socket.AF_INET, socket.AF_INET6) or not port:
            return None
        size = 4 if info.family == socket.AF_INET else 16
        host = socket.inet_ntop(info.family, bytes(octets)[:size])
        return f"{host}:{port}" if size == 4 else f"[{host}]:{port}"

    return {
        "space": _named("rdma_port_space", "RDMA_PS_", info.ps),
        "state": state,
        "type": _named("ibv_qp_type", "IBV_QPT_", info.type) if info.type else None,
        "source": address(info.src, info.src_port),
        "destination": address(info.dst, info.dst_port),
    }
