# SPDX-License-Identifier: BSD-3-Clause
"""XRC domains, under pyverbs' module name."""

from nupa.verbs.unsupported import XRCD, XRCDInitAttr

__all__ = ["XRCD", "XRCDInitAttr"]
