# SPDX-License-Identifier: BSD-3-Clause
"""Routes of the page: `/`, its files, and `/live`, a stream of updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from nupa.serve.service import Service


def routes(_service: Service) -> list[BaseRoute]:
    """Returns the routes of the page."""
    return []
