# SPDX-License-Identifier: BSD-3-Clause
"""A destination of events: an HTTP server of the test."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEADLINE_S = 30.0
Event = dict[str, Any]


class Sink(ThreadingHTTPServer):
    """Takes events, but for the first *refused* of them; *take* is called before the answer."""

    daemon_threads = True

    def __init__(self, refused: int, take: Callable[[Event], None]) -> None:
        self.refused, self.take = refused, take
        self.got: queue.Queue[tuple[dict[str, str], Event]] = queue.Queue()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next(self) -> Event:
        """Returns the next event."""
        return self.got.get(timeout=DEADLINE_S)[1]


class _Handler(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.server.refused > 0:
            self.server.refused -= 1
            self.send_error(503)
            return
        self.server.take(event)
        self.server.got.put(({**self.headers, "path": self.path}, event))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def sink(refused: int = 0, take: Callable[[Event], None] = lambda _: None) -> Iterator[Sink]:
    with Sink(refused, take) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()
