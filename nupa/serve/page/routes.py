# SPDX-License-Identifier: BSD-3-Clause
"""Routes of the page: `/`, its files, and `/live`: what it shows, and its changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from nupa import __version__
from nupa.base.errors import LocalError, NupaError
from nupa.serve.page import files
from nupa.serve.page.changes import Changes, Denial, check_own
from nupa.serve.page.feed import READERS_MAX, PageFeed
from nupa.serve.page.recordings import Recordings
from nupa.serve.page.tail import Tail

if TYPE_CHECKING:
    from starlette.requests import Request

    from nupa.serve.service import Service

_FRESH = files.HEADERS | {"Cache-Control": "no-store"}


def routes(service: Service) -> list[BaseRoute]:
    """Returns the routes of the page."""
    live, changes = _Live(service), Changes(service)
    return [
        Route("/", files.index),
        Route("/page/{name:path}", files.static),
        Route("/live/about", live.about),
        Route("/live/snapshot", live.snapshot),
        Route("/live/stream", live.stream),
        Route("/live/capture", live.capture),
        Route("/live/cxl", live.cxl),
        Route("/live/trace", live.transfers, methods=["GET"]),
        Route("/live/trace", live.record, methods=["POST"]),
        Route("/live/trace/{number:int}", live.diagram),
        Route("/live/port", changes.port, methods=["POST"]),
        Route("/live/fault", changes.fault, methods=["POST"]),
        Route("/live/fault/{number:int}", changes.clear, methods=["DELETE"]),
    ]


class _Live:
    """Handlers of what the page shows."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._feed = PageFeed(service.snapshots)
        self._tail = Tail(service.name)
        self._recordings = Recordings(service.name)

    async def about(self, request: Request) -> Response:
        """GET /live/about: the version, and what the reader may do."""
        from nupa.fabric.fault import KINDS

        kinds = {kind.value: {"what": i.what, "options": i.options} for kind, i in KINDS.items()}
        found = {
            "version": __version__,
            "fabric": self._service.name,
            "may_change": self._service.may_change(request),
            "fault_kinds": kinds,
        }
        return JSONResponse(found, headers=_FRESH)

    async def snapshot(self, _request: Request) -> Response:
        """GET /live/snapshot: the state now."""
        return Response(await self._feed.snapshot(), 200, _FRESH, "application/json")

    async def stream(self, request: Request) -> Response:
        """GET /live/stream: server-sent events, from the one after Last-Event-ID."""
        if self._feed.is_full:
            message = f"{READERS_MAX} pages are open already: close one"
            return Denial(503, "too_many", message).answer()
        after = request.headers.get("last-event-id", "")
        headers = _FRESH | {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._feed.stream(after), 200, headers, "text/event-stream")

    async def capture(self, request: Request) -> Response:
        """GET /live/capture?after=N: lines of packets above number N."""
        after = request.query_params.get("after", "0")
        number = int(after) if after.isascii() and after.isdecimal() and len(after) < 20 else 0
        return await _answer(self._tail.lines, number)

    async def cxl(self, _request: Request) -> Response:
        """GET /live/cxl: CXL devices, their bindings, and decoders."""
        return await _answer(self._service.devices.shown)

    async def transfers(self, _request: Request) -> Response:
        """GET /live/trace: the transfers of the latest recording."""
        return await _answer(self._recordings.latest)

    async def record(self, request: Request) -> Response:
        """POST /live/trace: records for a second; answers as GET does."""
        try:
            check_own(request)
        except Denial as refused:
            return refused.answer()
        return await _answer(self._recordings.record)

    async def diagram(self, request: Request) -> Response:
        """GET /live/trace/NUMBER: the sequence diagram of one transfer."""
        return await _answer(self._recordings.diagram, request.path_params["number"])


async def _answer(asked: Callable[..., dict[str, Any]], *args: object) -> Response:
    """Answers with what *asked* returns; it runs in a thread."""
    try:
        return JSONResponse(await asyncio.to_thread(asked, *args), headers=_FRESH)
    except LocalError as error:
        return Denial(409, "not_there", str(error)).answer()
    except NupaError as error:
        return Denial(503, "failed", str(error)).answer()
