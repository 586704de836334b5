# SPDX-License-Identifier: BSD-3-Clause
"""`nupa partition`: the partitions of a fabric, and their members."""

from nupa.cli.partition.command import add_parser

__all__ = ["add_parser"]
