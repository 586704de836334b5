# SPDX-License-Identifier: BSD-3-Clause
"""The guard: caller, origin and size of requests."""

from __future__ import annotations

from nupa.serve.service import Service
from tests.unit.serve.clients import ADMIN, own, stranger


def test_a_stranger_is_asked_to_log_in(service: Service) -> None:
    answer = stranger(service).get("/metrics")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic")
    assert stranger(service, ("admin", "wrong password")).get("/redfish").status_code == 401
    assert stranger(service).get("/redfish").json() == {"v1": "/redfish/v1/"}
    assert stranger(service, ADMIN).get("/nothing").status_code == 404


def test_a_page_of_another_site_is_refused(service: Service) -> None:
    client = own(service)
    assert client.get("/redfish").status_code == 200
    assert client.get("/redfish", headers={"host": "rebound.example"}).status_code == 403
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-service"}):
        assert client.post("/redfish", headers=headers).status_code == 403


def test_a_body_beyond_the_limit_is_refused(service: Service) -> None:
    client = own(service)
    assert client.post("/redfish", content=bytes(65536)).status_code == 405
    assert client.post("/redfish", content=bytes(65537)).status_code == 413
