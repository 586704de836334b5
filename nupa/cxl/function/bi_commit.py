# SPDX-License-Identifier: BSD-3-Clause
"""Explicit commit of BI decoders and BI route tables (CXL 3.1 8.2.4.26, 8.2.4.27)."""

from __future__ import annotations

from collections.abc import Callable

from nupa.cxl.registers.block import Registers
from nupa.cxl.registers.component import ComponentRegisters


def follow_commits(component: ComponentRegisters) -> None:
    """Handles commits of the capabilities that *component* has and that need an explicit commit."""
    if "bi_route_table" in component:
        _follow(component["bi_route_table"], lambda: True)
    if "bi_decoder" in component and component["bi_decoder"]["capability.explicit_commit"]:
        decoder = component["bi_decoder"]
        # A port forwards to a switch below, or has a device of its own (8.2.4.27.2).
        _follow(decoder, lambda: not (decoder["control.forward"] and decoder["control.enable"]))


def _follow(block: Registers, may_be: Callable[[], bool]) -> None:
    """Handles Commit.  A transition from 0 to 1 sets exactly one bit of the status at once, so the
    timeout never expires."""

    def commit(written: int, old: int) -> None:
        if written and not old:
            done = may_be()
            block["status.committed"], block["status.error"] = int(done), int(not done)

    block.on_write("control.commit", commit)
