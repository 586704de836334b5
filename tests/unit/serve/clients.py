# SPDX-License-Identifier: BSD-3-Clause
"""A server in memory, and clients of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from starlette.testclient import TestClient

from nupa.serve.app import make_app
from nupa.serve.server import HttpServer, Place, Tls

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


class Served(NamedTuple):
    """A server of this process that listens at *address*."""

    server: HttpServer
    address: tuple[str, int]


_ANY_PORT = Place("127.0.0.1", 0)


@contextmanager
def served(service: Service, place: Place = _ANY_PORT, tls: Tls | None = None) -> Iterator[Served]:
    """Serves at a port of its own, in a thread."""
    server, started = HttpServer(make_app(service), place, tls), threading.Event()
    thread = threading.Thread(target=server.run, args=(started.set, service.close))
    thread.start()
    try:
        assert started.wait(30)
        service.started(server.url)
        yield Served(server, server.address)
    finally:
        server.stop()
        thread.join()
