# SPDX-License-Identifier: BSD-3-Clause
"""`nupa vm`: virtual machines whose CXL memory is the fabric."""

from nupa.cli.vm.command import add_parser

__all__ = ["add_parser"]
