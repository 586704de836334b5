# SPDX-License-Identifier: BSD-3-Clause
"""Changes by the page: ports and faults.  Refused unless the server was started with them allowed,
and the request is the page's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nupa.base.errors import LocalError, NupaError
from nupa.serve.page.files import HEADERS

if TYPE_CHECKING:
    from nupa.serve.service import Service

#: A header that no form and no other site's script can send without asking first.
HEADER = "x-nupa-request"
BODY_BYTES_MAX = 4096
_OPTIONS = ("probability", "count", "after", "duration", "rate", "seed", "for")
_WHOLE = ("count", "after", "seed")


class Denial(Exception):  # noqa: N818  # an answer, not a failure
    """A request that is not done: HTTP status, code and text."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    def answer(self) -> Response:
        found = {"error": {"code": self.code, "message": str(self)}}
        return JSONResponse(found, self.status, HEADERS)


def check_own(request: Request) -> None:
    """Raises Refused unless the page itself sends the request.

    A script of another site cannot send the header, and its Origin is another.  Names that resolve
    to this machine by a trick are refused before, by nupa.serve.access.guard.
    """
    if request.headers.get(HEADER) != "1":
        raise Denial(403, "header_missing", f"send the header {HEADER}: 1 with the request")
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None and urlsplit(origin).netloc != host:
        raise Denial(403, "other_origin", f"{origin} is not the origin of this page, {host}")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Denial(403, "other_origin", "the request comes from a page of another site")


class Changes:
    """Handlers of changes of the fabric."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def port(self, request: Request) -> Response:
        """POST /live/port {"port": NAME, "up": true}: takes a link up or down."""
        return await self._change(request, self._set_port)

    async def fault(self, request: Request) -> Response:
        """POST /live/fault {"port", "kind", "options"}: adds a fault; 201 and its id."""
        return await self._change(request, self._add_fault)

    async def clear(self, request: Request) -> Response:
        """DELETE /live/fault/ID: clears a fault."""
        return await self._change(request, self._clear_fault)

    async def _change(
        self, request: Request, act: Callable[[Request, dict[str, Any]], Response]
    ) -> Response:
        try:
            self._check_allowed(request)
            check_own(request)
            body = await _body(request) if request.method == "POST" else {}
            return await asyncio.to_thread(act, request, body)
        except Denial as refused:
            return refused.answer()
        except LocalError as error:
            return Denial(400, "invalid", str(error)).answer()
        except NupaError as error:
            return Denial(409, "failed", str(error)).answer()

    def _check_allowed(self, request: Request) -> None:
        if not self._service.options.allow_changes:
            message = "changes are not allowed: start `nupa serve` with --allow-changes"
            raise Denial(403, "changes_not_allowed", message)
        if not self._service.may_change(request):
            message = "this account may only read: log in as one that may change the fabric"
            raise Denial(403, "account_may_not", message)

    def _set_port(self, _request: Request, body: dict[str, Any]) -> Response:
        port, up = body.get("port"), body.get("up")
        if not isinstance(port, str) or not isinstance(up, bool):
            raise Denial(400, "invalid", "give port, a name, and up, true or false")
        with self._service.changing() as fabric:
            fabric.set_port(port, up)
        return JSONResponse({"port": port, "up": up}, headers=HEADERS)

    def _add_fault(self, _request: Request, body: dict[str, Any]) -> Response:
        from nupa.fabric.fault import Fault

        port, kind, options = body.get("port"), body.get("kind"), body.get("options", {})
        if not (isinstance(port, str) and isinstance(kind, str) and isinstance(options, dict)):
            raise Denial(400, "invalid", "give port and kind, names, and options, an object")
        fault = Fault(kind, **_options(options))
        with self._service.changing() as fabric:
            entry = fabric.add_fault(port, fault)
        return JSONResponse({"id": entry.id, "port": entry.port}, 201, HEADERS)

    def _clear_fault(self, request: Request, _body: dict[str, Any]) -> Response:
        number = int(request.path_params["number"])
        with self._service.changing() as fabric:
            if not fabric.clear_fault(number):
                raise Denial(404, "no_fault", f"{fabric.name} has no fault {number}")
        return Response(status_code=204, headers=HEADERS)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Returns options as parameters of Fault.  Denial: one that is none."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _OPTIONS or not isinstance(value, str | int | float):
            raise Denial(400, "invalid", f"{name} is no option of a fault, or has no such value")
        if name in _WHOLE:
            try:
                value = int(value)
            except ValueError:
                raise Denial(400, "invalid", f"{name} is {value!r}: give a number") from None
        found["for_" if name == "for" else name] = value
    return found


async def _body(request: Request) -> dict[str, Any]:
    """Returns the object in the body.  Denial: too long, or no JSON object."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Denial(415, "not_json", "send the change as application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise Denial(413, "too_long", f"a change has at most {BODY_BYTES_MAX} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Denial(400, "not_json", "the body is not a JSON object")
    return found
