# SPDX-License-Identifier: BSD-3-Clause
"""CXL devices and decoders of a fabric: what its fabric manager says, and what hosts decode."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any

from nupa.base.errors import NupaError

if TYPE_CHECKING:
    from nupa.cxl.fm.client.fabric_manager import FabricManager
    from nupa.live.snapshots import Snapshots

#: Seconds for which an answer of the fabric manager is given again.
FRESH_S = 1.0


class Devices:
    """Devices behind the switch of the fabric *name*, asked of `nupa fm serve`.

    snapshots: of that fabric, for its decoders.
    """

    def __init__(self, name: str, snapshots: Snapshots) -> None:
        self._name, self._snapshots = name, snapshots
        self._lock = Lock()
        self._found: dict[str, Any] = {}
        self._until_s = 0.0

    def shown(self) -> dict[str, Any]:
        """Returns what switch() does, and decoders, which need no fabric manager."""
        return self.switch() | {"decoders": self._decoders()}

    def switch(self) -> dict[str, Any]:
        """Returns the switch, its ports, virtual switches and logical devices.

        served: whether a fabric manager answers; else `why` has the reason.
        """
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._found = self._asked()
                self._until_s = time.monotonic() + FRESH_S
            return self._found

    def _asked(self) -> dict[str, Any]:
        from nupa.cxl.fm.client.fabric_manager import FabricManager

        nothing: dict[str, Any] = {"ports": [], "virtual_switches": [], "logical_devices": []}
        try:
            with FabricManager.open(self._name) as fm:
                return {"served": True, "why": ""} | _state(fm)
        except NupaError as error:
            return nothing | {"served": False, "why": str(error)}

    def _decoders(self) -> list[dict[str, Any]]:
        """Lists ranges of host addresses that decoders map: regions that the switch published."""
        found = []
        for region in self._snapshots.latest(FRESH_S).fabric["regions"]:
            host, _, hpa = region["tag"].partition(":")
            if region["published"] and hpa.startswith("0x"):
                found.append(
                    {
                        "host": host,
                        "hpa": hpa,
                        "size": region["size"],
                        "ways": region["ways"],
                        "granularity": region["granularity"],
                        "mapped": region["mapped"],
                    }
                )
        return found


def _state(fm: FabricManager) -> dict[str, Any]:
    ports = fm.ports()
    switch = fm.switch()
    several = [port.port for port in ports if "mld" in (port.device or "").lower()]
    return {
        "switch": {
            "virtual_switches": switch.virtual_switches,
            "vppbs": switch.vppbs,
            "bound_vppbs": switch.bound_vppbs,
            "decoders": switch.decoders,
        },
        "ports": [port._asdict() | {"state": port.state.name.lower()} for port in ports],
        "virtual_switches": [
            {
                "number": virtual.number,
                "enabled": virtual.enabled,
                "upstream_port": virtual.upstream_port,
                "vppbs": [
                    vppb._asdict() | {"status": vppb.status.name.lower()} for vppb in virtual.vppbs
                ],
            }
            for virtual in fm.virtual_switches()
        ],
        "logical_devices": [
            {
                "port": port,
                "memory_bytes": found.memory_bytes,
                "lds": list(found.lds),
                "dynamic_bytes": _dynamic(fm, port, len(found.lds)),
                "bandwidth_256ths": list(fm.bandwidth(port)),
                "limit_256ths": list(fm.bandwidth(port, limit=True)),
            }
            for port in several
            for found in [fm.logical_devices(port)]
        ],
    }


def _dynamic(fm: FabricManager, port: int, lds: int) -> list[int]:
    """Returns the dynamic capacity that the host of each LD has accepted, in bytes."""
    from nupa.cxl.function.cci import CommandError

    capacity = fm.capacity(port)
    try:
        return [sum(extent.size for extent in capacity.extents(ld)) for ld in range(lds)]
    except CommandError:  # a device without dynamic capacity
        return [0] * lds
