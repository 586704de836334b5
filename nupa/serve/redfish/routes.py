# SPDX-License-Identifier: BSD-3-Clause
"""Routes of the Redfish service: `/redfish`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse
from starlette.routing import Route

from nupa.serve.redfish.errors import error_body

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from nupa.serve.service import Service

_PUBLIC = {"/redfish", "/redfish/", "/redfish/v1", "/redfish/v1/", "/redfish/v1/$metadata"}


def is_public(method: str, path: str) -> bool:
    """Tells whether a request needs no account: DSP0266 13.3.1."""
    if method == "POST":
        return path in (
            "/redfish/v1/SessionService/Sessions",
            "/redfish/v1/SessionService/Sessions/",
            "/redfish/v1/SessionService/Sessions/Members",
        )
    return method in ("GET", "HEAD") and path in _PUBLIC | {"/redfish/v1/odata"}


def refusal(message_id: str, text: str) -> object:
    """Returns the body of a refusal by the guard."""
    return error_body(message_id, [], text=text)


def routes(_service: Service) -> list[BaseRoute]:
    """Returns the routes of the Redfish service."""

    async def versions(_request: Request) -> JSONResponse:
        return JSONResponse({"v1": "/redfish/v1/"})

    return [Route("/redfish", versions)]
