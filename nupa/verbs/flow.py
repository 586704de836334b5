# SPDX-License-Identifier: BSD-3-Clause
"""Flow steering, under pyverbs' module name: this device has none."""

from nupa.verbs.unsupported import Flow, FlowAction, FlowAttr

__all__ = ["Flow", "FlowAction", "FlowAttr"]
