# SPDX-License-Identifier: BSD-3-Clause
"""The page's files, what they read, and their changes, without a browser."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nupa.fabric import Fabric
from nupa.fabric.fault import Fault
from nupa.serve.page import changes, feed, files, routes
from nupa.serve.page.feed import READERS_MAX, PageFeed
from nupa.serve.page.tail import LINES_MAX, Tail
from nupa.serve.service import Options, Service
from tests.unit.serve.clients import ADMIN, own, stranger

OURS = {"x-nupa-request": "1"}
_STATIC = Path(files.FOLDER)


def test_every_file_that_the_page_names_is_served_with_the_policy(service: Service) -> None:
    client = own(service)
    paths = [path for path in _STATIC.rglob("*") if path.is_file()]
    names = {path.relative_to(_STATIC).as_posix() for path in paths}
    said = client.get("/").text + (_STATIC / "style.css").read_text()
    named = set(re.findall(r'"/page/([^"]+)"', said))
    for path in _STATIC.rglob("*.js"):
        for other in re.findall(r'from "(\.[^"]+)"', path.read_text()):
            named.add((path.parent / other).resolve().relative_to(_STATIC).as_posix())
    assert named == names - {"index.html"}
    for name in ("", *(f"page/{name}" for name in names)):
        answer = client.get(f"/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        again = client.get(f"/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for name in ("nothing.js", "..%2f__init__.py", "%2e%2e/routes.py", "index.html%00.js"):
        assert client.get(f"/page/{name}").status_code == 404


def test_no_file_of_the_page_names_another_site_or_has_code_in_its_html() -> None:
    for path in (path for path in _STATIC.rglob("*") if path.is_file()):
        text = path.read_text()
        assert set(re.findall(r"https?://[^\"'\s]+", text)) <= {"http://www.w3.org/2000/svg"}
        assert "eval(" not in text
        assert "innerHTML" not in text
        assert len(text.splitlines()) < 400
    html = (_STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=", html)


def test_a_snapshot_has_what_the_page_shows(service: Service) -> None:
    with Fabric.open(service.name) as fabric:
        fabric.set_port("host2", False)
        fabric.add_fault("host1", Fault("delay", duration="2ms", seed=7))
    found = own(service).get("/live/snapshot").json()
    assert [host["name"] for host in found["hosts"]] == ["host0", "host1", "host2"]
    assert [port["state"] for port in found["ports"][:3]] == ["ACTIVE", "ACTIVE", "DOWN"]
    assert [(fault["port"], fault["kind"]) for fault in found["faults"]] == [("host1/1", "delay")]
    assert found["totals"]["ports"] == 6
    about = own(service).get("/live/about").json()
    assert about["may_change"]
    assert set(about["fault_kinds"]["delay"]["options"]) >= {"duration", "probability"}


def test_long_lists_are_cut_and_counted(service: Service) -> None:
    from nupa.serve.page.view import ROWS_MAX, view

    shown = service.snapshots.latest(0, lists=True).as_dict()
    shown["regions"] = [{"id": str(number)} for number in range(ROWS_MAX + 1)]
    found = view(shown, 1)
    assert (len(found["regions"]), found["totals"]["regions"]) == (ROWS_MAX, ROWS_MAX + 1)


def test_changes_act_on_the_fabric(service: Service) -> None:
    client = own(service)
    port = {"port": "host1/1", "up": False}
    assert client.post("/live/port", json=port, headers=OURS).status_code == 200
    fault = {"port": "host0/1", "kind": "drop", "options": {"probability": "1%", "count": "3"}}
    made = client.post("/live/fault", json=fault, headers=OURS)
    assert made.status_code == 201
    with Fabric.open(service.name) as fabric:
        assert fabric.ports[fabric.host("host1").port].state == "DOWN"
        (entry,) = fabric.faults()
        assert (entry.fault.kind, entry.fault.count) == ("drop", 3)
        number = made.json()["id"]
        assert client.delete(f"/live/fault/{number}", headers=OURS).status_code == 204
        assert fabric.faults() == []
    assert client.delete(f"/live/fault/{number}", headers=OURS).status_code == 404


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "header_missing"),
        ({"x-nupa-request": "0"}, "header_missing"),
        (OURS | {"origin": "http://evil.example"}, "other_origin"),
        (OURS | {"origin": "null"}, "other_origin"),
        (OURS | {"sec-fetch-site": "cross-site"}, "other_origin"),
    ],
)
def test_a_change_that_is_not_the_pages_own_is_refused(
    service: Service, headers: dict[str, str], code: str
) -> None:
    # An account passes the guard of all routes, as a browser that remembers a password does.
    client = stranger(service, ADMIN)
    body = {"port": "host1/1", "up": False}
    for method, path in (
        ("POST", "/live/port"),
        ("POST", "/live/fault"),
        ("DELETE", "/live/fault/1"),
    ):
        answer = client.request(method, path, headers=headers, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)
    assert client.post("/live/trace", headers=headers).status_code == 403
    with Fabric.open(service.name) as fabric:
        assert {port.state for port in fabric.ports} == {"ACTIVE"}


def test_changes_are_refused_without_allow_changes(service: Service) -> None:
    with Service(service.name, Options()) as still:
        client = own(still)
        assert not client.get("/live/about").json()["may_change"]
        answer = client.post("/live/port", json={"port": "host0", "up": False}, headers=OURS)
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "changes_not_allowed"


def test_an_account_that_may_only_read_changes_nothing(service: Service) -> None:
    service.accounts.add("reader", "correct horse", "ReadOnly")
    client = stranger(service, ("reader", "correct horse"))
    assert not client.get("/live/about").json()["may_change"]
    answer = client.post("/live/port", json={"port": "host0", "up": False}, headers=OURS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "account_may_not")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"port": 7, "up": false}',
        b'{"port": "host0", "up": 0}',
        b'{"port": "nothing", "up": false}',
        b'{"port": "host0", "kind": "nothing"}',
        b'{"port": "host0", "kind": "drop", "options": {"nothing": 1}}',
        b'{"port": "host0", "kind": "drop", "options": {"count": []}}',
        b'{"port": "host0", "kind": "drop", "options": {"count": "many"}}',
        b'{"port": "host0", "kind": "drop", "options": {"probability": "200%"}}',
        b"[" * (changes.BODY_BYTES_MAX - 1),
    ],
)
def test_an_invalid_change_is_answered_with_the_reason(service: Service, body: bytes) -> None:
    client, headers = own(service), OURS | {"content-type": "application/json"}
    for path in ("/live/port", "/live/fault"):
        answer = client.post(path, content=body, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"]


def test_a_change_of_another_type_or_too_long_is_refused(service: Service) -> None:
    client = own(service)
    assert client.post("/live/port", data={"up": "1"}, headers=OURS).status_code == 415
    headers = OURS | {"content-type": "application/json"}
    body = json.dumps({"port": "host0", "up": True}).encode()
    fits = body + b" " * (changes.BODY_BYTES_MAX - len(body))
    assert client.post("/live/port", content=fits, headers=headers).status_code == 200
    assert client.post("/live/port", content=fits + b" ", headers=headers).status_code == 413


async def _messages(pages: PageFeed, after: str, count: int) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    stream = pages.stream(after)
    async for message in stream:
        fields = dict(line.split(": ", 1) for line in message.decode().strip().splitlines())
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
        if len(found) == count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return found


def test_a_stream_has_snapshots_with_growing_numbers(service: Service) -> None:
    service.snapshots.interval_s = 0.01
    found = asyncio.run(_messages(PageFeed(service.snapshots), "", 3))
    numbers = [data["number"] for kind, data in found if kind == "snapshot"]
    assert numbers == sorted(set(numbers))
    assert numbers


def test_a_stream_has_only_events_after_the_last_one_that_the_page_has(service: Service) -> None:
    service.snapshots.interval_s = 0.01
    taken = service.snapshots.tick()
    event = {"time_ns": 1, "severity": "ok", "kind": "port.up", "subject": "host0", "text": ""}
    events = [{"seq": number, **event} for number in (1, 2, 3)]
    service.snapshots.tick = lambda **_: _put(service, taken._replace(events=events))  # type: ignore[method-assign,assignment,misc]
    same, other = f"{taken.generation}:1", "another:1"
    for after, sent in (
        (same, [2, 3]),
        (other, [1, 2, 3]),
        ("x", [1, 2, 3]),
        (f"{same}²", [1, 2, 3]),
    ):
        found = asyncio.run(_messages(PageFeed(service.snapshots), after, 4))
        assert [data["seq"] for kind, data in found if kind == "event"] == sent


def _put(service: Service, snapshot: Any) -> Any:
    for follower in service.snapshots._followers:
        follower.put(snapshot)
    return snapshot


def test_a_stream_says_that_the_fabric_is_gone_and_ends_with_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    with Service("nothing") as service:
        service.snapshots.interval_s = 0.01

        async def read() -> list[tuple[str, Any]]:
            pages = PageFeed(service.snapshots)
            found = await _messages(pages, "", 1)
            rest = asyncio.create_task(_messages(pages, "", 10**9))
            await asyncio.sleep(0)
            await asyncio.to_thread(service.snapshots.close)
            await rest
            return found

        ((kind, data),) = asyncio.run(read())
    assert (kind, "nothing" in data["message"]) == ("trouble", True)


def test_one_page_too_many_is_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes.PageFeed, "is_full", property(lambda _: True))
    answer = own(service).get("/live/stream")
    assert answer.status_code == 503
    assert str(READERS_MAX) in answer.json()["error"]["message"]


def test_packets_are_recorded_only_while_somebody_asks(service: Service) -> None:
    now = 0.0
    tail = Tail(service.name, lambda: now)
    assert not tail.is_recording
    assert tail.lines() == {"lines": [], "last": 0, "seen": 0, "lost": 0, "error": ""}
    thread = tail._thread
    assert tail.is_recording
    assert thread is not None
    now = 3.5
    thread.join(30)
    assert not tail.is_recording
    tail.close()


def test_the_tail_of_a_fabric_that_is_gone_says_so() -> None:
    tail = Tail("no-such-fabric")
    tail.lines()
    thread = tail._thread
    if thread is not None:
        thread.join(30)
    assert "no-such-fabric" in tail._error
    assert LINES_MAX >= 100


def test_a_diagram_without_a_recording_is_refused_with_a_reason(service: Service) -> None:
    client = own(service)
    assert client.get("/live/trace").json()["number"] == 0
    answer = client.get("/live/trace/1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_there")


def test_a_recording_of_a_quiet_fabric_has_no_transfers(service: Service) -> None:
    found = own(service).post("/live/trace", headers=OURS).json()
    assert (found["number"], found["total"], found["transfers"]) == (1, 0, [])


def test_devices_are_not_there_without_a_fabric_manager(service: Service) -> None:
    found = own(service).get("/live/cxl").json()
    assert (found["served"], found["ports"], found["decoders"]) == (False, [], [])
    assert "nupa fm serve" in found["why"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    st.sampled_from(["host0", "host1/1", "switch0", "", "drop", "delay", "bandwidth", "\0"]) | JSON
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    body=JSON
    | st.fixed_dictionaries(
        {"port": NAMES, "kind": NAMES, "up": JSON},
        optional={
            "options": st.dictionaries(
                st.sampled_from(["probability", "count", "rate", "duration", "for", "seed"]), JSON
            )
        },
    ),
    query=st.text(max_size=30),
    last=st.text(st.characters(codec="latin-1", categories=["L", "N", "P"]), max_size=30),
)
def test_no_request_makes_the_server_fail(
    service: Service, body: Any, query: str, last: str
) -> None:
    client = own(service)
    headers = OURS | {"content-type": "application/json"}
    for path in ("/live/port", "/live/fault"):
        content = json.dumps(body).encode()
        assert client.post(path, content=content, headers=headers).status_code < 500
        assert client.post(path, content=query.encode(), headers=headers).status_code < 500
    for path in ("/page/", "/live/trace/", "/live/fault/"):
        assert client.get(path + quote(query, safe="")).status_code < 500
        assert client.delete(path + quote(query, safe=""), headers=OURS).status_code < 500
    assert feed._parsed(last)[1] >= 0
    with Fabric.open(service.name) as fabric:
        fabric.clear_faults()
