# SPDX-License-Identifier: BSD-3-Clause
"""A fabric, or snapshots that a test makes, served as `nupa serve` does, at a free port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from nupa.live.snapshots import Snapshots
from nupa.serve.app import make_app
from nupa.serve.server import HttpServer, Place
from nupa.serve.service import Options, Service


@contextmanager
def serving(
    name: str, *, allow_changes: bool = False, snapshots: Snapshots | None = None
) -> Iterator[str]:
    """Serves the fabric *name*, or *snapshots*; yields the address."""
    with Service(name, Options(allow_changes=allow_changes), snapshots=snapshots) as service:
        server = HttpServer(make_app(service), Place(port=0))
        started = Event()
        thread = Thread(target=server.run, args=(started.set,))
        thread.start()
        try:
            assert started.wait(30), "the server does not start"
            yield server.url
        finally:
            service.snapshots.close()
            server.stop()
            thread.join()
