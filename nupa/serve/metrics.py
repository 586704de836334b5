# SPDX-License-Identifier: BSD-3-Clause
"""Route of `/metrics`, in the text format of Prometheus or that of OpenMetrics."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics

from nupa.serve.families import families
from nupa.serve.tenant_totals import TenantTotals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from nupa.live.snapshot import Snapshot
    from nupa.serve.service import Service

#: Several servers that scrape share a snapshot.
_MAX_AGE_S = 0.5


class Metrics:
    """Encodes snapshots of one fabric; keeps the sums of its tenants between them."""

    def __init__(self) -> None:
        self._totals = TenantTotals()
        self._lock = threading.Lock()
        self._found: list[Metric] = []

    def encode(self, snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
        """Returns the text, and its content type, by what the header *accept* prefers."""
        # Not prometheus_client's choose_encoder: it fails where a version is no number.
        form = openmetrics if openmetrics_wanted(accept) else exposition
        with self._lock:
            self._found = list(families(snapshot, self._totals))
            registry: Any = self
            return form.generate_latest(registry), form.CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        """Iterates over the families, as a registry of prometheus_client does."""
        yield from self._found


def openmetrics_wanted(accept: str) -> bool:
    """Tells whether the header names OpenMetrics, which readers of it prefer."""
    kinds = (word.partition(";")[0].strip() for word in accept.split(","))
    return "application/openmetrics-text" in kinds


def routes(service: Service) -> list[BaseRoute]:
    """Returns the route of the metrics."""
    from starlette.responses import Response as Answer
    from starlette.routing import Route

    metrics = Metrics()

    # Not a coroutine: Starlette runs it in a thread, as it waits for the snapshot.
    def scrape(request: Request) -> Response:
        snapshot = service.snapshots.latest(_MAX_AGE_S)
        body, content_type = metrics.encode(snapshot, request.headers.get("accept", ""))
        return Answer(body, headers={"content-type": content_type})

    return [Route("/metrics", scrape, methods=["GET"])]
