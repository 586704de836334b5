# SPDX-License-Identifier: BSD-3-Clause
"""AccountService, its accounts and roles; SessionService and its sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nupa.serve.access.accounts import PASSWORD_LENGTH, ROLES, AccountError
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.view import (
    ROOT,
    Json,
    RedfishView,
    collection,
    link,
    resource,
    status,
    timestamp,
)

if TYPE_CHECKING:
    from nupa.serve.access.accounts import LoginSession
    from nupa.serve.redfish.body import Body

_SERVICE = f"{ROOT}/AccountService"
_SESSIONS = f"{ROOT}/SessionService/Sessions"
_TIMEOUTS_S = range(30, 86401)  # Redfish's SessionService: SessionTimeout


def account_service(_view: RedfishView) -> Json:
    return resource(
        _SERVICE,
        "AccountService.v1_18_1.AccountService",
        "AccountService",
        "Accounts",
        ServiceEnabled=True,
        MinPasswordLength=PASSWORD_LENGTH.start,
        MaxPasswordLength=PASSWORD_LENGTH.stop - 1,
        HTTPBasicAuth="Enabled",
        Status=status(),
        Accounts=link(f"{_SERVICE}/Accounts"),
        Roles=link(f"{_SERVICE}/Roles"),
    )


def roles(_view: RedfishView) -> Json:
    members = [f"{_SERVICE}/Roles/{role}" for role in ROLES]
    return collection(f"{_SERVICE}/Roles", "RoleCollection", "Roles", members)


def role(_view: RedfishView, which: str) -> Json:
    if which not in ROLES:
        raise RedfishError("ResourceMissingAtURI", f"{_SERVICE}/Roles/{which}")
    return resource(
        f"{_SERVICE}/Roles/{which}",
        "Role.v1_3_3.Role",
        which,
        which,
        RoleId=which,
        IsPredefined=True,
        AssignedPrivileges=list(ROLES[which]),
        OemPrivileges=[],
    )


def accounts(view: RedfishView) -> Json:
    members = [f"{_SERVICE}/Accounts/{name}" for name in _shown(view)]
    return collection(f"{_SERVICE}/Accounts", "ManagerAccountCollection", "Accounts", members)


def _shown(view: RedfishView) -> list[str]:
    """Returns the accounts that the caller may see: all, or its own."""
    if view.caller.may("ConfigureUsers"):
        return view.service.accounts.names()
    return [view.caller.name] if view.caller.name else []


def account(view: RedfishView, which: str) -> Json:
    found = view.service.accounts.get(which)
    if found is None:
        raise RedfishError("ResourceMissingAtURI", f"{_SERVICE}/Accounts/{which}")
    if which not in _shown(view):
        raise RedfishError("InsufficientPrivilege")
    return resource(
        f"{_SERVICE}/Accounts/{which}",
        "ManagerAccount.v1_14_1.ManagerAccount",
        which,
        f"Account {which}",
        UserName=found.name,
        Password=None,
        RoleId=found.role,
        Enabled=found.enabled,
        Locked=False,
        AccountTypes=["Redfish"],
        Links={"Role": link(f"{_SERVICE}/Roles/{found.role}")},
    ) | {"Password": None}


def add_account(view: RedfishView, body: Body) -> str:
    """Adds an account; returns its URI."""
    _need(view, "ConfigureUsers")
    name, password = body.need("UserName", str), body.need("Password", str)
    role_id = body.need("RoleId", str, choices=ROLES)
    enabled = body.take("Enabled", bool, True)
    body.take("AccountTypes", list)
    body.take("Locked", bool)
    body.finish()
    try:
        view.service.accounts.add(name, password, role_id)
        if not enabled:
            view.service.accounts.change(name, enabled=False)
    except AccountError as error:
        raise _refusal(error, name) from error
    return f"{_SERVICE}/Accounts/{name}"


def _need(view: RedfishView, privilege: str) -> None:
    if not view.caller.may(privilege):
        raise RedfishError("InsufficientPrivilege")


def _refusal(error: AccountError, value: str) -> RedfishError:
    if not error.what:
        return RedfishError("CreateLimitReachedForResource", text=str(error))
    if "exists" in str(error):
        return RedfishError("ResourceAlreadyExists", "ManagerAccount", "UserName", value)
    return RedfishError(
        "PropertyValueFormatError",
        "" if error.what == "Password" else value,
        error.what,
        text=f"{error.what}: {error}",
        related=f"/{error.what}",
    )


def change_account(view: RedfishView, body: Body, which: str) -> None:
    """Changes an account; one without ConfigureUsers changes its own password only."""
    account(view, which)
    password = body.take("Password", str)
    body.read_only("Id", "Name", "AccountTypes", "Links", "Locked", "OEMAccountTypes")
    everything = view.caller.may("ConfigureUsers")
    wanted = {
        "new_name": body.take("UserName", str),
        "role": body.take("RoleId", str, choices=ROLES),
        "enabled": body.take("Enabled", bool),
    }
    given = {key: value for key, value in wanted.items() if value is not None}
    if given and not everything:
        raise RedfishError("InsufficientPrivilege")
    try:
        if password is not None or given:
            view.service.accounts.change(which, password=password, **given)
    except AccountError as error:
        raise _refusal(error, str(given.get("new_name", ""))) from error


def remove_account(view: RedfishView, which: str) -> None:
    _need(view, "ConfigureUsers")
    account(view, which)
    try:
        view.service.accounts.remove(which)
    except AccountError as error:
        raise RedfishError("ResourceInUse", text=str(error)) from error


def session_service(view: RedfishView) -> Json:
    return resource(
        f"{ROOT}/SessionService",
        "SessionService.v1_2_0.SessionService",
        "SessionService",
        "Sessions",
        ServiceEnabled=True,
        SessionTimeout=view.service.accounts.session_timeout_s,
        Status=status(),
        Sessions=link(_SESSIONS),
    )


def change_session_service(view: RedfishView, body: Body) -> None:
    """Sets SessionTimeout, in seconds."""
    _need(view, "ConfigureManager")
    timeout = body.take("SessionTimeout", int)
    body.read_only("Id", "Name", "ServiceEnabled", "Status", "Sessions")
    if timeout is not None:
        if timeout not in _TIMEOUTS_S:
            text = f"SessionTimeout is {timeout}, and must be from 30 to 86400 seconds"
            raise RedfishError(
                "PropertyValueFormatError",
                timeout,
                "SessionTimeout",
                text=text,
                related="/SessionTimeout",
            )
        view.service.accounts.session_timeout_s = timeout


def sessions(view: RedfishView) -> Json:
    members = [f"{_SESSIONS}/{each.id}" for each in _own_sessions(view)]
    return collection(_SESSIONS, "SessionCollection", "Sessions", members)


def _own_sessions(view: RedfishView) -> list[LoginSession]:
    everything = view.caller.may("ConfigureManager")
    return [
        each
        for each in view.service.accounts.sessions()
        if everything or each.name == view.caller.name
    ]


def _session(view: RedfishView, which: str) -> LoginSession:
    for each in _own_sessions(view):
        if each.id == which:
            return each
    raise RedfishError("ResourceMissingAtURI", f"{_SESSIONS}/{which}")


def session(view: RedfishView, which: str) -> Json:
    return shown_session(_session(view, which))


def shown_session(found: LoginSession) -> Json:
    """Returns a session as a resource."""
    return resource(
        f"{_SESSIONS}/{found.id}",
        "Session.v1_8_0.Session",
        found.id,
        f"Session {found.id}",
        UserName=found.name,
        SessionType="Redfish",
        ClientOriginIPAddress=found.client,
        CreatedTime=timestamp(found.created),
    ) | {"Password": None}


def open_session(view: RedfishView, body: Body, client: str) -> tuple[Json, str]:
    """Opens a session; returns it, and its token.

    RedfishError: name and password do not belong together; too many sessions.
    """
    name, password = body.need("UserName", str), body.need("Password", str)
    body.finish()
    caller = view.service.accounts.login(name, password)
    if caller is None:
        text = "the name or the password is wrong"
        raise RedfishError("NoValidSession", text=text)
    try:
        made = view.service.accounts.open_session(caller, client)
    except AccountError as error:
        raise RedfishError("CreateLimitReachedForResource", text=str(error), status=503) from error
    return shown_session(made), made.token


def close_session(view: RedfishView, which: str) -> None:
    view.service.accounts.end_session(_session(view, which).id)
