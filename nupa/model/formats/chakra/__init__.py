# SPDX-License-Identifier: BSD-3-Clause
"""Chakra execution traces (MLCommons): one file a rank, NAME.RANK.et.

A file is messages behind their lengths: GlobalMetadata, then Nodes.  Times of the schema are whole
microseconds; files of ours have the attribute `duration_ns` besides.
"""

from nupa.model.formats.chakra.read import read
from nupa.model.formats.chakra.write import write

__all__ = ["read", "write"]
