# SPDX-License-Identifier: BSD-3-Clause
"""`nupa run`: programs on a host of a fabric."""

from nupa.cli.run.command import add_parser

__all__ = ["add_parser"]
