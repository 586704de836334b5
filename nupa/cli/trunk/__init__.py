# SPDX-License-Identifier: BSD-3-Clause
"""`nupa trunk`: one fabric over several machines."""

from nupa.cli.trunk.command import add_parser

__all__ = ["add_parser"]
