# SPDX-License-Identifier: BSD-3-Clause
"""Memory of a GPU, under pyverbs' module name: this device has none."""

from nupa.verbs.unsupported import DmaBuf

__all__ = ["DmaBuf"]
