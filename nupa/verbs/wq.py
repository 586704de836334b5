# SPDX-License-Identifier: BSD-3-Clause
"""Receive work queues (receive side scaling), under pyverbs' name: this device has none."""

from nupa.verbs.unsupported import (
    WQ,
    RwqIndTable,
    RwqIndTableInitAttr,
    RxHashConf,
    WQAttr,
    WQInitAttr,
)

__all__ = ["WQ", "RwqIndTable", "RwqIndTableInitAttr", "RxHashConf", "WQAttr", "WQInitAttr"]
