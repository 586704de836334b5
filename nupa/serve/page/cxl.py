# SPDX-License-Identifier: BSD-3-Clause
"""CXL devices and decoders of a fabric: what its fabric manager says, and what hosts decode."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any

from nupa.base.errors import NupaError

if TYPE_CHECKING:
    from nupa.cxl.fm.client.fabric_manager import FabricManager
    from nupa.serve.service import Service

#: Seconds for which an answer of the fabric manager is given again.
FRESH_S = 1.0


class Devices:
    """Devices behind the switch of a service's fabric, asked of `nupa fm serve`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = Lock()
        self._found: dict[str, Any] = {}
        self._until_s = 0.0

    def shown(self) -> dict[str, Any]:
        """Returns ports, virtual switches, logical devices and decoders.

        served: whether a fabric manager answers; else `why` has the reason, and only decoders are
        there.
        """
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._found = self._asked() | {"decoders": self._decoders()}
                self._until_s = time.monotonic() + FRESH_S
            return self._found

    def _asked(self) -> dict[str, Any]:
        from nupa.cxl.fm.client.fabric_manager import FabricManager

        nothing: dict[str, Any] = {"ports": [], "virtual_switches": [], "logical_devices": []}
        try:
            with FabricManager.open(self._service.name) as fm:
                return {"served": True, "why": ""} | _state(fm)
        except NupaError as error:
            return nothing | {"served": False, "why": str(error)}

    def _decoders(self) -> list[dict[str, Any]]:
        """Lists ranges of host addresses that decoders map: regions that the switch published."""
        found = []
        for region in self._service.snapshots.latest(FRESH_S).fabric["regions"]:
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
    several = [port.port for port in ports if "mld" in (port.device or "").lower()]
    return {
        "ports": [port._asdict() | {"state": port.state.name.lower()} for port in ports],
        "virtual_switches": [
            {
                "number": switch.number,
                "vppbs": [
                    vppb._asdict() | {"status": vppb.status.name.lower()} for vppb in switch.vppbs
                ],
            }
            for switch in fm.virtual_switches()
        ],
        "logical_devices": [
            {
                "port": port,
                "memory_bytes": found.memory_bytes,
                "lds": list(found.lds),
                "bandwidth_256ths": list(fm.bandwidth(port)),
            }
            for port in several
            for found in [fm.logical_devices(port)]
        ],
    }
