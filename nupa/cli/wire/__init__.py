# SPDX-License-Identifier: BSD-3-Clause
"""`nupa wire`: hosts of a fabric that are reached by RoCE v2 at an address."""

from nupa.cli.wire.command import add_parser

__all__ = ["add_parser"]
