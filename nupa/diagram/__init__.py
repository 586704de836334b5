# SPDX-License-Identifier: BSD-3-Clause
"""Draws a transfer of a capture as a sequence diagram.  Knows capture files; never a fabric.

`find.index.read_index` finds the transfers of a file, in one pass and without scapy.
`draw.diagram.read_diagram` makes actors and rows of one of them; `draw.text`, `draw.svg` and
`draw.listing` print them.
"""
