# SPDX-License-Identifier: BSD-3-Clause
"""The application: all routes behind the guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from nupa.serve import metrics
from nupa.serve.access.guard import BodyTooLargeError, Guard
from nupa.serve.page import routes as page
from nupa.serve.redfish import routes as redfish

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from nupa.serve.service import Service


def make_app(service: Service) -> Starlette:
    """Returns the application of a service."""
    return Starlette(
        routes=[*redfish.routes(service), *metrics.routes(service), *page.routes(service)],
        middleware=[
            Middleware(
                Guard, service=service, is_public=redfish.is_public, error_body=redfish.refusal
            )
        ],
        exception_handlers={BodyTooLargeError: _too_large},
    )


def _too_large(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("the body is too large\n", 413)
