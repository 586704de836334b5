# SPDX-License-Identifier: BSD-3-Clause
"""The protocol of Redfish: sessions, accounts, ETags, headers, bodies that are no JSON."""

from __future__ import annotations

import pytest

from nupa.serve.access.accounts import SESSIONS_MAX
from nupa.serve.service import Service
from tests.unit.serve.clients import ADMIN, own, stranger
from tests.unit.serve.redfish import FABRIC, ROOT, ZONES, add_partition, message_of

_SESSIONS = f"{ROOT}/SessionService/Sessions"
_ACCOUNTS = f"{ROOT}/AccountService/Accounts"
_LOGIN = {"UserName": ADMIN[0], "Password": ADMIN[1]}


def test_a_session_opens_and_ends(service: Service) -> None:
    client = stranger(service)
    opened = client.post(_SESSIONS, json=_LOGIN)
    assert opened.status_code == 201
    headers = {"X-Auth-Token": opened.headers["x-auth-token"]}
    assert client.get(FABRIC, headers=headers).status_code == 200
    assert "Password" not in opened.text.replace('"Password": null', "")
    assert client.delete(opened.headers["location"], headers=headers).status_code == 204
    assert client.get(FABRIC, headers=headers).status_code == 401


def test_a_session_ends_when_it_is_not_used(service: Service) -> None:
    client = stranger(service)
    token = client.post(_SESSIONS, json=_LOGIN).headers["x-auth-token"]
    service.accounts.session_timeout_s = -1
    assert client.get(FABRIC, headers={"X-Auth-Token": token}).status_code == 401


def test_sessions_have_a_limit(service: Service) -> None:
    client = stranger(service)
    for _ in range(SESSIONS_MAX):
        assert client.post(_SESSIONS, json=_LOGIN).status_code == 201
    assert client.post(_SESSIONS, json=_LOGIN).status_code == 503


@pytest.mark.parametrize(
    ("change", "status"), [({"Password": "wrong"}, 401), ({"UserName": "nobody"}, 401)]
)
def test_wrong_credentials_open_no_session(
    service: Service, change: dict[str, str], status: int
) -> None:
    answer = stranger(service).post(_SESSIONS, json=_LOGIN | change)
    assert answer.status_code == status
    assert service.accounts.sessions() == []


def test_accounts_are_made_changed_and_removed(service: Service) -> None:
    client = stranger(service, ADMIN)
    body = {"UserName": "eve", "Password": "eve's password", "RoleId": "Operator"}
    assert client.post(_ACCOUNTS, json=body).headers["location"] == f"{_ACCOUNTS}/eve"
    assert message_of(client.post(_ACCOUNTS, json=body)) == "ResourceAlreadyExists"
    eve = stranger(service, ("eve", "eve's password"))
    assert eve.get(f"{_ACCOUNTS}/eve").json()["RoleId"] == "Operator"
    assert eve.patch(f"{_ACCOUNTS}/eve", json={"RoleId": "Administrator"}).status_code == 403
    assert eve.patch(f"{_ACCOUNTS}/eve", json={"Password": "another word"}).status_code == 200
    assert eve.get(f"{_ACCOUNTS}/eve").status_code == 401
    assert client.delete(f"{_ACCOUNTS}/eve").status_code == 204
    refused = client.delete(f"{_ACCOUNTS}/{ADMIN[0]}")
    assert (refused.status_code, message_of(refused)) == (409, "ResourceInUse")
    for word, status in (("x" * 7, 400), ("x" * 8, 201), ("x" * 128, 201), ("x" * 129, 400)):
        body = {"UserName": f"u{len(word)}", "Password": word, "RoleId": "ReadOnly"}
        assert client.post(_ACCOUNTS, json=body).status_code == status


def test_an_etag_spares_a_read_and_guards_a_change(service: Service) -> None:
    client = own(service)
    uri = add_partition(client, "red", ["host0"]).headers["location"]
    tag = client.get(uri).headers["etag"]
    assert client.get(uri, headers={"If-None-Match": tag}).status_code == 304
    change = {"Oem": {"Nupa": {"ServiceLevel": 1}}}
    assert client.patch(uri, json=change, headers={"If-Match": '"old"'}).status_code == 412
    assert client.get(uri).headers["etag"] == tag
    assert client.patch(uri, json=change, headers={"If-Match": tag}).status_code == 200
    assert client.delete(uri, headers={"If-Match": tag}).status_code == 412
    assert client.delete(uri, headers={"If-Match": "*"}).status_code == 204


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"OData-Version": "4.0"}, "", 200),
        ({"OData-Version": "3.0"}, "", 412),
        ({"Accept": "application/json;odata.metadata=full"}, "", 200),
        ({"Accept": "text/html"}, "", 406),
        ({}, "?$expand=*", 501),
        ({}, "?rpv=1", 200),
    ],
)
def test_headers_and_queries(
    service: Service, headers: dict[str, str], query: str, status: int
) -> None:
    assert own(service).get(f"{FABRIC}{query}", headers=headers).status_code == status


def test_head_is_get_without_a_body_and_405_says_what_is_allowed(service: Service) -> None:
    client = own(service)
    read, head = client.get(FABRIC), client.head(FABRIC)
    assert head.content == b""
    assert head.headers["etag"] == read.headers["etag"]
    assert head.headers["odata-version"] == "4.0"
    refused = client.delete(ZONES)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, POST")
    assert client.put(FABRIC, json={}).status_code == 405
    assert client.get(f"{ROOT}/Nothing").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"Name": NaN}',
        b'{"Name": "\\ud800"}',
        b'{"Name": ' + b"9" * 5000 + b"}",
        b"[" * 30000,
        b"\xff\xfe",
    ],
)
def test_a_body_that_is_no_object_of_json_is_malformed(service: Service, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = own(service).post(ZONES, content=body, headers=headers)
    assert (answer.status_code, message_of(answer)) == (400, "MalformedJSON")
    assert (
        own(service).post(ZONES, content=b"{}", headers={"content-type": "text/plain"}).status_code
        == 415
    )
