# SPDX-License-Identifier: BSD-3-Clause
"""`nupa show`: a fabric as tables or JSON, once or again and again."""

from nupa.cli.show.command import add_parser

__all__ = ["add_parser"]
