# SPDX-License-Identifier: BSD-3-Clause
"""A server in memory, and clients of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.testclient import TestClient

from nupa.serve.app import make_app

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from nupa.serve.service import Service

ADMIN = ("admin", "correct horse")


class OwnUser:
    """Marks requests as those of a process of the server's user, as nupa.serve.server does."""

    def __init__(self, service: Service) -> None:
        self._app = make_app(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["own_user"] = True
        await self._app(scope, receive, send)


def own(service: Service) -> TestClient:
    """Returns a client that is a process of the server's user."""
    return TestClient(OwnUser(service), raise_server_exceptions=False)


def stranger(service: Service, account: tuple[str, str] | None = None) -> TestClient:
    """Returns a client of another user, who may log in as *account*."""
    client = TestClient(make_app(service), raise_server_exceptions=False)
    client.auth = account
    return client
