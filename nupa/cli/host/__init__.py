# SPDX-License-Identifier: BSD-3-Clause
"""`nupa host`: hosts that join and leave a fabric that is up."""

from nupa.cli.host.command import add_parser

__all__ = ["add_parser"]
