# SPDX-License-Identifier: BSD-3-Clause
"""The HTTP server: sockets, TLS, peers; uvicorn runs the application."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import uvicorn
from starlette.concurrency import run_in_threadpool
from uvicorn.protocols.http.h11_impl import H11Protocol

from nupa.base.errors import LocalError
from nupa.serve.access.certificate import make_certificate
from nupa.serve.access.peer import is_own_peer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from starlette.types import ASGIApp

_CONNECTIONS_MAX = 256
_HEADERS_BYTES_MAX = 16 << 10
#: A connection that has not asked anything for so long is closed.
_FIRST_REQUEST_S = 10


class Place(NamedTuple):
    """A place to listen at: an address and port, or the path of a Unix socket."""

    address: str = "127.0.0.1"
    port: int = 8000
    path: str | None = None

    @property
    def is_local(self) -> bool:
        """Tells whether only this machine reaches it."""
        return self.path is not None or ip_address(self.address).is_loopback


class Tls(NamedTuple):
    """Files of a certificate and its key; None: a self-signed one is made."""

    cert: str | None = None
    key: str | None = None


class HttpServer:
    """A server that listens from the start: `url` says where; run() serves until stop()."""

    def __init__(self, app: ASGIApp, place: Place, tls: Tls | None = None) -> None:
        self._closing = ExitStack()
        self.place = place
        self.fingerprint = ""
        self._tls = self._certificate(tls) if tls is not None else None
        self._socket = self._closing.enter_context(_listen(place))
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS_MAX,
            h11_max_incomplete_event_size=_HEADERS_BYTES_MAX,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
            ssl_certfile=self._tls.cert if self._tls else None,
            ssl_keyfile=self._tls.key if self._tls else None,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            self.close()
            raise LocalError(
                f"the certificate {config.ssl_certfile} and key {config.ssl_keyfile} cannot be "
                f"used: {error}"
            ) from error
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        self._server = _Uvicorn(config)

    @property
    def url(self) -> str:
        """The address to open; of a Unix socket, its path."""
        if self.place.path is not None:
            return f"unix:{self.place.path}"
        address, port = self.address
        shown = f"[{address}]" if ":" in address else address
        return f"{'https' if self._tls else 'http'}://{shown}:{port}"

    @property
    def address(self) -> tuple[str, int]:
        """The address and port; of a Unix socket, its path and 0."""
        if self.place.path is not None:
            return self.place.path, 0
        found: tuple[str, int] = self._socket.getsockname()[:2]
        return found

    def run(
        self,
        started: Callable[[], None] = lambda: None,
        ending: Callable[[], None] = lambda: None,
    ) -> None:
        """Serves until stop(), then closes.

        *started* is called once it serves; *ending*, in a thread, when it stops: it ends streams.
        """
        self._server.at_start, self._server.at_end = started, ending
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.close()

    def stop(self) -> None:
        """Ends run(); may be called by any thread or signal handler."""
        self._server.should_exit = True

    def close(self) -> None:
        self._closing.close()

    def _certificate(self, tls: Tls) -> Tls:
        if tls.cert is not None:
            return tls
        folder = self._closing.enter_context(TemporaryDirectory(prefix="nupa-serve-"))
        address = self.place.address
        names = [socket.gethostname(), "localhost", "127.0.0.1", "::1"]
        if not ip_address(address).is_unspecified and address not in names:
            names.insert(0, address)
        made = make_certificate(names, Path(folder))
        self.fingerprint = made.fingerprint
        return Tls(str(made.cert), str(made.key))


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own: the caller has them."""

    at_start: Callable[[], None]
    at_end: Callable[[], None]

    def capture_signals(self) -> ExitStack:  # type: ignore[override]
        return ExitStack()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.at_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await run_in_threadpool(self.at_end)
        await super().shutdown(sockets)


class _Protocol(H11Protocol):
    """A connection whose peer is known: `scope["state"]["own_user"]`."""

    _first: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        self.app_state = {**self.app_state, "own_user": is_own_peer(connection)}
        self._first = self.loop.call_later(_FIRST_REQUEST_S, self._close_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._first is not None:
            self._first.cancel()
        super().connection_lost(exc)

    def _close_idle(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def _listen(place: Place) -> socket.socket:
    try:
        if place.path is not None:
            return _listen_unix(place.path)
        family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
        found = socket.create_server((place.address, place.port), family=family, backlog=128)
    except OSError as error:
        where = place.path or f"{place.address}:{place.port}"
        raise LocalError(
            f"cannot listen at {where}: {error.strerror or error}; choose another place by "
            "--listen or --unix",
            error.errno or 0,
        ) from error
    return found


class _UnixSocket(socket.socket):
    """A listening Unix socket whose path goes with it."""

    path: str

    def __exit__(self, *_: Any) -> None:
        self.close()
        Path(self.path).unlink(missing_ok=True)


def _listen_unix(path: str) -> socket.socket:
    """Listens at *path*, with rights of this user alone; replaces a socket that nobody serves."""
    listening = _UnixSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.path = path
    mask = os.umask(0o177)
    try:
        if _is_left_behind(path):
            Path(path).unlink()
        listening.bind(path)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(mask)
    listening.listen(128)
    return listening


def _is_left_behind(path: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
