# SPDX-License-Identifier: BSD-3-Clause
"""Files of the page, and the headers of its answers."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).with_name("static")
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: Headers of every answer.  The page loads nothing from elsewhere, and is no part of another page.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _File(NamedTuple):
    content: bytes
    type: str
    etag: str


@cache
def _files() -> dict[str, _File]:
    """Reads all files of the page, by name."""
    return {
        path.relative_to(FOLDER).as_posix(): _File(
            content, _TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        )
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _TYPES
        for content in [path.read_bytes()]
    }


async def index(request: Request) -> Response:
    """Answers `/`."""
    return _answer(request, "index.html")


async def static(request: Request) -> Response:
    """Answers `/page/NAME`; 404: the page has no such file."""
    return _answer(request, request.path_params["name"])


def _answer(request: Request, name: str) -> Response:
    file = _files().get(name)
    if file is None:
        return Response("the page has no such file\n", 404, HEADERS, "text/plain")
    headers = HEADERS | {"ETag": file.etag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, 200, headers, file.type)
