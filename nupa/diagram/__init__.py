# SPDX-License-Identifier: BSD-3-Clause
"""Tells the life of one transfer from a capture.  Knows capture files; never a fabric.

`index.read_index` finds the transfers of a file, in one pass and without scapy; `story.read_story`
makes of one of them actors and rows; `text`, `svg` and `listing` show them.
"""
