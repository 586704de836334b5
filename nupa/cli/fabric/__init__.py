# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fabric`: the CXL model of a fabric."""

from nupa.cli.fabric.command import add_parser

__all__ = ["add_parser"]
