# SPDX-License-Identifier: BSD-3-Clause
"""Routes of the Redfish service: `/redfish`, by the protocol of DSP0266."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route

from nupa.base.errors import NupaError
from nupa.serve.access.guard import BodyTooLargeError
from nupa.serve.redfish import accounts, errors, eventservice, root, schemas, tree
from nupa.serve.redfish.body import Body, parse
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.events import EventHub
from nupa.serve.redfish.subscriptions import Subscriptions
from nupa.serve.redfish.sunfish import SunfishAgent
from nupa.serve.redfish.view import ROOT, Json, RedfishView
from nupa.serve.service import caller_of

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from nupa.serve.service import Service

_LOG = logging.getLogger("nupa.serve")
_JSON = "application/json;charset=utf-8"
_PUBLIC = {
    *("/redfish", "/redfish/", ROOT, f"{ROOT}/"),
    *(f"{ROOT}/$metadata", f"{ROOT}/odata", f"{ROOT}/odata/"),
}
_LOGIN = f"{ROOT}/SessionService/Sessions"


def is_public(method: str, path: str) -> bool:
    """Tells whether a request needs no account: DSP0266 13.3.1."""
    if method == "POST":
        return path.rstrip("/").removesuffix("/Members") == _LOGIN
    return method in ("GET", "HEAD") and path in _PUBLIC


def refusal(message_id: str, text: str) -> object:
    """Returns the body of a refusal by the guard."""
    return errors.error_body([errors.message(message_id, text=text)])


def routes(service: Service) -> list[BaseRoute]:
    """Returns the routes of the Redfish service."""
    app = RedfishApp(service)
    return [Route("/redfish", app), Mount("/redfish", app)]


class _Answer(NamedTuple):
    status: int
    body: Json | None = None
    headers: dict[str, str] = {}  # noqa: RUF012 - nobody adds to it


class RedfishApp:
    """The ASGI application of the Redfish service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._hub = EventHub(service)
        self._subscriptions = Subscriptions(self._hub)
        service.at_close(self._hub.close)
        service.at_close(self._subscriptions.close)
        if service.options.sunfish:
            service.at_start(self._announce)

    def _announce(self, own_url: str) -> None:
        agent = SunfishAgent(
            self._service, self._subscriptions, self._service.options.sunfish, own_url
        )
        self._service.at_close(agent.stop)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except RedfishError as error:
            response = _response(request, _refused(error))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = request.scope["path"]
        _check_headers(request)
        if path == f"{ROOT}/$metadata" or _schema_name(path):
            return self._xml(request, path)
        if path == eventservice.SSE:
            return self._stream(request)
        try:
            data = await request.body()
        except BodyTooLargeError:
            raise RedfishError("PayloadTooLarge") from None
        return _response(request, await run_in_threadpool(self._answer, request, data))

    def _xml(self, request: Request, path: str) -> Response:
        _check_method(request, ["GET", "HEAD"])
        _check_accept(request, "application/xml")
        name = _schema_name(path)
        text = schemas.csdl(name) if name else root.metadata()
        content = "" if request.method == "HEAD" else text
        return Response(content, headers=_common(["GET", "HEAD"]), media_type="application/xml")

    def _stream(self, request: Request) -> Response:
        _check_method(request, ["GET"])
        _check_accept(request, "text/event-stream")
        self._subscriptions.check_room()
        headers = _common(["GET"])
        return StreamingResponse(
            eventservice.Stream(self._subscriptions, _client(request)),
            headers=headers,
            media_type="text/event-stream",
        )

    def _answer(self, request: Request, data: bytes) -> _Answer:
        """Answers a request; runs in a thread of its own."""
        try:
            return self._act(request, data)
        except RedfishError as error:
            return _refused(error)
        except NupaError as error:
            return _refused(RedfishError.of(error))
        except Exception:
            _LOG.exception("%s %s failed", request.method, request.scope["path"])
            return _refused(RedfishError("InternalError"))

    def _act(self, request: Request, data: bytes) -> _Answer:
        path, method = request.scope["path"], request.method
        if method == "POST":  # to a collection, or to its members: DSP0266 7.9
            path = path.rstrip("/").removesuffix("/Members")
        found = tree.find(path)
        if found is None:
            raise RedfishError("ResourceMissingAtURI", path)
        resource, ids = found
        _check_method(request, resource.methods)
        view = RedfishView(self._service, caller_of(request), self._subscriptions)
        allow = {"Allow": ", ".join(resource.methods)}
        if method in ("GET", "HEAD"):
            assert resource.get is not None
            return self._read(request, resource.get(view, *ids), allow)
        if method == "DELETE":
            assert resource.delete is not None
            self._check_match(request, view, resource, ids)
            resource.delete(view, *ids)
            return _Answer(204, None, allow)
        _check_type(request)
        content = parse(data) if data or not resource.action else {}
        if method == "PATCH":
            answer = self._patch(request, view, resource, ids, content)
            return answer._replace(headers=answer.headers | allow)
        if resource.action is not None:
            resource.action(view, Body(content), *ids)
            return _Answer(204, None, allow)
        return self._create(request, view, resource, ids, Body(content))

    def _read(self, request: Request, body: Json, allow: dict[str, str]) -> _Answer:
        body, tag = _tagged(body)
        headers = {**allow, "ETag": tag}
        wanted = request.headers.get("if-none-match", "")
        if wanted and tag in [each.strip() for each in wanted.split(",")]:
            return _Answer(304, None, headers)
        return _Answer(200, body, headers)

    def _patch(
        self,
        request: Request,
        view: RedfishView,
        resource: tree.Resource,
        ids: list[str],
        content: Json,
    ) -> _Answer:
        assert resource.patch is not None
        assert resource.get is not None
        if not content:
            raise RedfishError("MalformedJSON", text="the body is empty, and changes nothing")
        self._check_match(request, view, resource, ids)
        body = Body(content)
        resource.patch(view, body, *ids)
        refused = body.end()
        if refused and not body.used:
            raise _SeveralError(refused)
        # An account with a new name has moved.
        renamed = resource.patch is accounts.change_account and "UserName" in content
        moved = [content["UserName"]] if renamed else ids
        after = RedfishView(view.service, view.caller, view.subscriptions)
        shown, tag = _tagged(resource.get(after, *moved))
        for error in refused:
            if error.related and error.related.count("/") == 1:
                shown[f"{error.related[1:]}@Message.ExtendedInfo"] = [error.info()]
        infos = [error.info() for error in refused]
        shown |= {"@Message.ExtendedInfo": infos} if infos else {}
        return _Answer(200, shown, {"ETag": tag})

    def _create(
        self,
        request: Request,
        view: RedfishView,
        resource: tree.Resource,
        ids: list[str],
        body: Body,
    ) -> _Answer:
        assert resource.post is not None
        if resource.post is accounts.open_session:
            host = request.client.host if request.client else ""
            made, token = accounts.open_session(view, body, host)
            headers = {"Location": made["@odata.id"], "X-Auth-Token": token}
            return _Answer(201, made, headers)
        uri = resource.post(view, body, *ids)
        after = RedfishView(view.service, view.caller, view.subscriptions)
        there = tree.find(uri)
        assert there is not None
        assert there[0].get is not None
        shown, tag = _tagged(there[0].get(after, *there[1]))
        return _Answer(201, shown, {"Location": uri, "ETag": tag})

    def _check_match(
        self, request: Request, view: RedfishView, resource: tree.Resource, ids: list[str]
    ) -> None:
        """Checks If-Match.  RedfishError: the resource has changed."""
        wanted = request.headers.get("if-match")
        if wanted is None or wanted.strip() == "*" or resource.get is None:
            return
        now = _etag(resource.get(view, *ids))
        if now not in [each.strip().removeprefix("W/") for each in wanted.split(",")]:
            raise RedfishError("PreconditionFailed")


class _SeveralError(RedfishError):
    """Several errors in one answer."""

    def __init__(self, found: list[RedfishError]) -> None:
        super().__init__(found[0].message_id, *found[0].arguments, status=found[0].status)
        self.found = found


def _refused(error: RedfishError) -> _Answer:
    infos = (
        [each.info() for each in error.found]
        if isinstance(error, _SeveralError)
        else [error.info()]
    )
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="nupa", charset="UTF-8"'
    if isinstance(error, _MethodError):
        headers["Allow"] = ", ".join(error.allowed)
    return _Answer(error.status, errors.error_body(infos), headers)


class _MethodError(RedfishError):
    """A method that a resource does not take."""

    def __init__(self, allowed: list[str]) -> None:
        super().__init__("OperationNotAllowed")
        self.allowed = allowed


def _check_method(request: Request, allowed: list[str]) -> None:
    if request.method not in allowed:
        raise _MethodError(allowed)


def _check_headers(request: Request) -> None:
    version = request.headers.get("odata-version", "4.0")
    if version.strip() != "4.0":
        raise RedfishError("HeaderInvalid", "OData-Version", status=412)
    for name in request.query_params:
        if name.startswith("$"):
            raise RedfishError("QueryNotSupported", name)


def _check_accept(request: Request, kind: str) -> None:
    accepted = [
        each.partition(";")[0].strip() for each in request.headers.get("accept", "*/*").split(",")
    ]
    if not {kind, "*/*", f"{kind.partition('/')[0]}/*", ""} & set(accepted):
        raise RedfishError("HeaderInvalid", "Accept", status=406, text=f"this is {kind}")


def _check_type(request: Request) -> None:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RedfishError(
            "HeaderInvalid", "Content-Type", status=415, text="send application/json"
        )


def _client(request: Request) -> str:
    """Returns the address and port of a client; of a Unix socket, that it is this machine."""
    return f"{request.client.host}:{request.client.port}" if request.client else "localhost:0"


def _schema_name(path: str) -> str:
    """Returns the name of our schema whose CSDL file is at a path, or ""."""
    name = path.removeprefix(f"{ROOT}/Schemas/").removesuffix("_v1.xml")
    return name if path == f"{ROOT}/Schemas/{name}_v1.xml" and name in schemas.names() else ""


def _tagged(body: Json) -> tuple[Json, str]:
    """Returns a resource with its ETag; other documents have the header alone."""
    tag = _etag(body)
    return (body | {"@odata.etag": tag} if "@odata.id" in body else body), tag


def _etag(body: Json) -> str:
    return f'"{hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]}"'


def _common(allowed: list[str]) -> dict[str, str]:
    return {"OData-Version": "4.0", "Cache-Control": "no-cache", "Allow": ", ".join(allowed)}


def _response(request: Request, answer: _Answer) -> Response:
    if answer.status == 200:
        try:
            _check_accept(request, "application/json")
        except RedfishError as error:
            answer = _refused(error)
    headers: dict[str, Any] = {
        "OData-Version": "4.0",
        "Cache-Control": "no-cache",
        **answer.headers,
    }
    if answer.body is None:
        return Response(None, answer.status, headers)
    kind = str(answer.body.get("@odata.type", ""))
    if kind.startswith("#"):
        name = kind[1:].rpartition(".")[0]
        headers["Link"] = f"<{_described_by(name)}>; rel=describedby"
    content = json.dumps(answer.body, ensure_ascii=False).encode()
    response = Response(content, answer.status, headers, media_type=_JSON)
    if request.method == "HEAD":
        response.body = b""
    return response


def _described_by(name: str) -> str:
    """Returns the JSON Schema file of a type, as Zone.v1_6_0."""
    return f"http://redfish.dmtf.org/schemas/v1/{name}.json"
