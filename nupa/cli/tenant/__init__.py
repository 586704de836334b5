# SPDX-License-Identifier: BSD-3-Clause
"""`nupa tenant`: the tenants of a fabric."""

from nupa.cli.tenant.command import add_parser

__all__ = ["add_parser"]
