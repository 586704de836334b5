# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm`: the fabric manager of the CXL switch."""

from nupa.cli.fm.command import add_parser

__all__ = ["add_parser"]
