# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm`: ports, bindings, and what hosts see of the switch."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nupa.cxl.fm.client.fabric_manager import FabricManager

_MODES = {"link-down": 0, "managed": 1, "surprise": 2}


def ls(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cli.common.text import print_json, table

    ports, switches = fm.ports(), fm.virtual_switches()
    if args.json:
        print_json(
            {
                "ports": [port._asdict() | {"state": port.state.name.lower()} for port in ports],
                "virtual_switches": [
                    switch._asdict()
                    | {
                        "vppbs": [
                            vppb._asdict() | {"status": vppb.status.name.lower()}
                            for vppb in switch.vppbs
                        ]
                    }
                    for switch in switches
                ],
            }
        )
        return
    rows = [
        [
            port.port,
            port.state.name.lower(),
            port.device or "-",
            "reset" if port.in_reset else f"x{port.width}" if port.up else "down",
        ]
        for port in ports
    ]
    print(table(["PORT", "STATE", "DEVICE", "LINK"], rows))
    bound = [
        [
            switch.number,
            vppb.vppb,
            vppb.status.name.lower().replace("_", " "),
            *("-" if number is None else number for number in (vppb.port, vppb.ld)),
        ]
        for switch in switches
        for vppb in switch.vppbs
    ]
    print("\n" + table(["VCS", "VPPB", "BOUND TO", "PORT", "LD"], bound))


def bind(args: argparse.Namespace, fm: FabricManager) -> None:
    fm.bind(args.vcs, args.vppb, args.port, args.ld)


def unbind(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cxl.switch.physical_port import UnbindMode

    fm.unbind(args.vcs, args.vppb, UnbindMode(_MODES[args.how]))


def port(args: argparse.Namespace, fm: FabricManager) -> None:
    if args.action == "reset":
        fm.reset(args.port)
    else:
        fm.assert_reset(args.port, args.action == "hold")


def abort(_args: argparse.Namespace, fm: FabricManager) -> None:
    fm.abort()


def aer(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.base.errors import LocalError
    from nupa.cxl.switch.vppb import Severity

    if args.vppb != "upstream" and not args.vppb.isdecimal():
        raise LocalError(f"{args.vppb!r}: write the number of a vPPB, or upstream")
    vppb = None if args.vppb == "upstream" else int(args.vppb)
    severity = Severity.CORRECTABLE if args.correctable else Severity.UNCORRECTABLE
    fm.generate_aer(args.vcs, vppb, args.bit, severity)


def secret(args: argparse.Namespace, fm: FabricManager) -> None:
    if args.set is not None:
        fm.set_secret(args.vcs, args.set)
    print(fm.secret(args.vcs) or "not set")
