# SPDX-License-Identifier: BSD-3-Clause
"""The guard before all routes: caller, origin, size."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nupa.serve.access.accounts import OWN_USER, Caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nupa.serve.service import Service

BODY_BYTES_MAX = 64 << 10
_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"))


class Guard:
    """ASGI middleware: each request that passes has `scope["state"]["caller"]`.

    A request of a process of the server's own user needs no account, unless options.login.
    *is_public*: tells whether a method and path need none from anyone.
    *error_body*: makes the body of a refusal, from the id and the text of its message.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        is_public: Callable[[str, str], bool],
        error_body: Callable[[str, str], object],
    ) -> None:
        self._app, self._service = app, service
        self._is_public, self._error_body = is_public, error_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # no WebSockets here
        if scope["path"].startswith("//"):  # as of Sunfish, which joins URLs by "/"
            scope = {**scope, "path": f"/{scope['path'].lstrip('/')}"}
        headers = _headers(scope)
        caller, refusal = self._judge(scope, headers)
        if refusal is None:
            refusal = _judge_size(headers)
        if refusal is not None:
            await _refuse(send, scope, refusal[0], self._error_body(refusal[1], refusal[2]))
            return
        scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, _bounded(receive), _with_headers(send))

    def _judge(
        self, scope: Scope, headers: dict[str, str]
    ) -> tuple[Caller, tuple[int, str, str] | None]:
        """Returns the caller, and the status, message id and text of a refusal."""
        nobody = Caller("", "ReadOnly")
        given = self._given(headers)
        if given is not None:
            return given, None
        claims = "authorization" in headers or "x-auth-token" in headers
        if (
            not claims
            and scope.get("state", {}).get("own_user")
            and not self._service.options.login
        ):
            # A browser of this user runs scripts of strangers: these know no account, and their
            # requests tell where they come from.
            if not _is_own_origin(scope, headers):
                text = "a page of another site asked; open this server's own page, or log in"
                return nobody, (403, "InsufficientPrivilege", text)
            return OWN_USER, None
        # Credentials that are given must be right, also where none are needed.
        if not claims and self._is_public(scope["method"], scope["path"]):
            return nobody, None
        if claims and self._is_login(scope):
            return nobody, None
        text = "log in by basic authentication, or by a session: POST /redfish/v1/SessionService"
        return nobody, (401, "NoValidSession", f"{text}/Sessions")

    def _is_login(self, scope: Scope) -> bool:
        """Tells whether a request opens a session; an old token beside it is of no account."""
        return bool(scope["method"] == "POST" and self._is_public("POST", scope["path"]))

    def _given(self, headers: dict[str, str]) -> Caller | None:
        token = headers.get("x-auth-token")
        if token is not None:
            return self._service.accounts.find_session(token)
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            text = base64.b64decode(value.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        name, colon, password = text.partition(":")
        return self._service.accounts.login(name, password) if colon else None


def _headers(scope: Scope) -> dict[str, str]:
    """Returns the headers; of several of one name, the last."""
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
    }


def _is_own_origin(scope: Scope, headers: dict[str, str]) -> bool:
    """Tells whether no page of another site made it: DNS rebinding, cross-site requests."""
    server = scope.get("server")
    host = headers.get("host", "")
    if server and server[1] is not None:
        name = urlsplit(f"//{host}").hostname or ""
        if name not in ("localhost", server[0]):
            return False
    if scope["method"] in _SAFE:
        return True
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == host


def _judge_size(headers: dict[str, str]) -> tuple[int, str, str] | None:
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        return 400, "GeneralError", "Content-Length is not a number"
    if len(length) > 12 or int(length) > BODY_BYTES_MAX:
        return 413, "PayloadTooLarge", f"a body has at most {BODY_BYTES_MAX} bytes"
    return None


class BodyTooLargeError(Exception):
    """A body without Content-Length that passes the limit."""


def _bounded(receive: Receive) -> Receive:
    left = BODY_BYTES_MAX

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise BodyTooLargeError
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message["headers"]}
            more = [pair for pair in _HEADERS if pair[0] not in there]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


async def _refuse(send: Send, scope: Scope, status: int, content: object) -> None:
    body = json.dumps(content).encode()
    headers: list[tuple[bytes, Any]] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"odata-version", b"4.0"),
        (b"cache-control", b"no-store"),
        *_HEADERS,
    ]
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="nupa", charset="UTF-8"'))
    if status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
