# SPDX-License-Identifier: BSD-3-Clause
"""Orders to this machine's part of a cluster, as `nupa trunk part` takes them.

An order is a JSON object: `nupa`, the version; `do`, one of look, up, down; `fabric`, a name.  To
look is to tell what is here.  `up` has the cluster's files and the name of this machine.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import nupa
from nupa.base.errors import LocalError, NupaError
from nupa.base.state_file import field
from nupa.trunk import down, state, up, view
from nupa.trunk.file import ClusterText

ORDER_BYTES_MAX = 4 << 20
WAIT_S_MAX = 600.0


class UpOrder(NamedTuple):
    """*files*: the cluster's; *wait_s*: how long to wait for the other machines."""

    files: ClusterText
    machine: str
    session: str
    wait_s: float


def order(do: str, fabric: str, **values: Any) -> dict[str, Any]:
    return {"nupa": nupa.__version__, "do": do, "fabric": fabric} | values


def obey(text: bytes) -> dict[str, Any]:
    """Carries an order out; returns the answer.  LocalError: it is not an order."""
    try:
        if len(text) > ORDER_BYTES_MAX:
            raise ValueError(f"it has more than {ORDER_BYTES_MAX} bytes")
        value = json.loads(text)
        version = field(str, value, "nupa")
        if version != nupa.__version__:
            return {
                "error": f"NUPA {nupa.__version__} is here, and {version} was asked for: install "
                f"the same on all machines"
            }
        work = _ORDERS.get(field(str, value, "do"))
        if work is None:
            raise ValueError(f"`do` is {value['do']!r}")
        return work(field(str, value, "fabric"), value)
    except (ValueError, RecursionError) as error:
        raise LocalError(
            f"no order that `nupa trunk part` knows: {error}; it is for `nupa trunk up`",
            errno.EINVAL,
        ) from error


def _look(name: str, _value: Any) -> dict[str, Any]:
    try:
        found = state.load(name)
        if found is None:
            return {"session": "", "alive": False}
        return {
            "machine": found.machine,
            "session": found.session,
            "alive": found.process.alive,
            "machines": view.part(name)["machines"],
        }
    except NupaError as error:
        return {"error": str(error)}


def _up(name: str, value: Any) -> dict[str, Any]:
    files = ClusterText(*(field(str, value, key) for key in ClusterText._fields))
    wanted = UpOrder(
        files,
        field(str, value, "machine"),
        field(str, value, "session"),
        min(field(float, value, "wait_s"), WAIT_S_MAX),
    )
    cluster = wanted.files.parse()
    if cluster.name != name:
        raise ValueError(f"`fabric` is {name!r}, and the file's is {cluster.name!r}")
    report = up.up(cluster, cluster.machine(wanted.machine), wanted.session, "ssh")
    missing = up.await_peers(name, wanted.wait_s) if wanted.wait_s > 0 else []
    return {"made": report.made, "started": report.started, "missing": missing}


def _down(name: str, value: Any) -> dict[str, Any]:
    try:
        report = down.down(name, force=field(bool, value, "force"))
    except LocalError as error:
        if error.errno != errno.ENOENT:
            raise
        return {"fabric_is": "absent"}
    return {"fabric_is": report.fabric_is}


_ORDERS: Mapping[str, Callable[[str, Any], dict[str, Any]]] = {
    "look": _look,
    "up": _up,
    "down": _down,
}
