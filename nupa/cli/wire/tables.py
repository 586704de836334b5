# SPDX-License-Identifier: BSD-3-Clause
"""Wires as text."""

from __future__ import annotations

from typing import Any

from nupa.cli.common.text import table


def wire_table(wires: list[dict[str, Any]]) -> str:
    """Returns the table of wires, as WireEntry.as_json() has them, and hints behind it."""
    head = ["WIRE", "ADDRESS", "LISTENS ON", "STATE", "MEDIUM", "WRONG PACKETS", "MTU"]
    head += ["ROUND TRIP", "LOSS", "SENT AGAIN"]
    rows = [
        [
            wire["host"],
            wire["address"],
            wire["listen"],
            wire["state"],
            wire["medium"],
            "none passes" if wire["icrc"] == "exact" else "1 of 65,536 passes",
            wire["mtu_bytes"],
            _time(wire["rtt_ns"]),
            f"{wire['loss']:.2%}",
            wire["retransmitted"],
        ]
        for wire in wires
    ]
    hints = [hint for wire in wires for hint in _hints(wire)]
    return "\n".join([table(head, rows), *hints])


def _time(ns: int | None) -> str:
    if ns is None:
        return "-"
    return f"{ns / 1e3:.0f} us" if ns < 10**6 else f"{ns / 1e6:.1f} ms"


def _hints(wire: dict[str, Any]) -> list[str]:
    """Returns what to do about a wire, if there is something."""
    name = wire["host"]
    hints = []
    if wire["state"] == "DEAD":
        hints.append(f"{name}: its keeper has died: `nupa wire add {name}` with its addresses")
    elif wire["error"] and wire["state"] == "DOWN":
        hints.append(f"{name}: {wire['error']}: is the wire there up, and UDP port 4791 let in?")
    if wire["nat"]:
        hints.append(
            f"{name}: {wire['address']} and {wire['nat']} are one machine behind NAT, which RoCE "
            f"does not pass: use a tunnel, as WireGuard, and its addresses"
        )
    return hints
