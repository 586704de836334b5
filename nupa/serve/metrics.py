# SPDX-License-Identifier: BSD-3-Clause
"""Route of `/metrics`, in the text format of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from nupa.serve.service import Service


def routes(_service: Service) -> list[BaseRoute]:
    """Returns the route of the metrics."""
    return []
