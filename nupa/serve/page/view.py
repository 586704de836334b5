# SPDX-License-Identifier: BSD-3-Clause
"""A snapshot as the page reads it: within bounds, without what the page leaves out.

JavaScript's numbers are doubles, so keys and addresses are text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: Rows of one list in a snapshot; `totals` has the number of all.
ROWS_MAX = 2000
_HOST = (
    *("name", "ipv4", "mac", "lid", "link_layer", "port", "state"),
    *("tenant", "control_state", "pkeys"),
)
_PROCESS = ("pid", "comm", "uid", "state", "qps", "mrs")
_QP = ("host", "pid", "comm", "number", "type", "state", "partner", "mover", "pkey")
_MR = ("host", "pid", "comm", "number", "length", "window", "access", "movers")
_REGION = (
    *("id", "tag", "size", "host", "home", "share", "ways", "granularity", "mapped"),
    *("published", "orphan", "revoked", "tenant"),
)
_RATE = ("xmit_bytes", "rcv_bytes", "xmit_packets", "rcv_packets")
_LISTS = ("hosts", "ports", "qps", "mrs", "regions", "faults", "tenants", "partitions")


def view(shown: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Returns what the page reads of nupa.live.snapshot.Snapshot.as_dict()."""
    rates = (shown.get("rates") or {}).get("ports", {})
    return {
        "number": number,
        "time_ns": shown["time_ns"],
        "error": shown.get("error", ""),
        "fabric": shown["name"],
        "generation": str(shown.get("generation", "")),
        "totals": {name: len(shown.get(name, ())) for name in _LISTS},
        "hosts": [_host(host) for host in shown["hosts"]],
        "ports": shown["ports"],
        "rates": {name: [round(rate[field], 1) for field in _RATE] for name, rate in rates.items()},
        "qps": [_chosen(qp, _QP) for qp in shown["qps"][:ROWS_MAX]],
        "mrs": [_mr(mr) for mr in shown["mrs"][:ROWS_MAX]],
        "regions": [_chosen(region, _REGION) for region in shown["regions"][:ROWS_MAX]],
        **{name: shown.get(name, [])[:ROWS_MAX] for name in ("faults", "tenants", "partitions")},
    }


def _host(host: Mapping[str, Any]) -> dict[str, Any]:
    counts = {name: count for name, count in host["hw_counters"].items() if count}
    processes = [_chosen(process, _PROCESS) for process in host["processes"][:ROWS_MAX]]
    return _chosen(host, _HOST) | {"processes": processes, "hw_counters": counts}


def _mr(mr: Mapping[str, Any]) -> dict[str, Any]:
    return _chosen(mr, _MR) | {"key": f"{mr['key']:#x}", "iova": f"{mr['iova']:#x}"}


def _chosen(row: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in fields if name in row}
