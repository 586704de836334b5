# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model`: predictions for real fabrics."""

from nupa.cli.model.command import add_parser

__all__ = ["add_parser"]
