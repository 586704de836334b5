# SPDX-License-Identifier: BSD-3-Clause
"""Accounts, roles and sessions, in memory: they last as long as the server."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import NamedTuple

#: Roles and their privileges: DSP0266, "Redfish service operation-to-privilege mapping".
ROLES: dict[str, tuple[str, ...]] = {
    "Administrator": (
        "Login",
        "ConfigureManager",
        "ConfigureUsers",
        "ConfigureSelf",
        "ConfigureComponents",
    ),
    "Operator": ("Login", "ConfigureComponents", "ConfigureSelf"),
    "ReadOnly": ("Login", "ConfigureSelf"),
}
PASSWORD_LENGTH = range(8, 129)
ACCOUNTS_MAX = 64
SESSIONS_MAX = 64
_NAME_LENGTH = range(1, 33)


class Caller(NamedTuple):
    """The account on whose behalf a request acts; session: the id of its session, or ""."""

    name: str
    role: str
    session: str = ""

    def may(self, privilege: str) -> bool:
        return privilege in ROLES[self.role]


#: A process of the server's own user, which needs no account.
OWN_USER = Caller("", "Administrator")


class AccountError(Exception):
    """A name, password or role that is refused, and the property at fault."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


@dataclass
class Account:
    """An account; version: changes with each of its properties."""

    name: str
    role: str
    digest: bytes
    enabled: bool = True
    version: int = 1


@dataclass
class LoginSession:
    """A session: `X-Auth-Token` carries its token.

    created: seconds since the epoch; used: the time of its last request, of time.monotonic().
    """

    id: str
    name: str
    token: str
    client: str
    created: float
    used: float = field(default=0.0)


class Accounts:
    """The accounts and sessions of a server; its methods may be called from any thread.

    Passwords are kept as digests under a key of this object, in memory alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key = secrets.token_bytes(32)
        self._accounts: dict[str, Account] = {}
        self._sessions: dict[str, LoginSession] = {}
        self._number = 0
        self.session_timeout_s = 1800

    def add(self, name: str, password: str, role: str) -> Account:
        """Adds an account.  AccountError: a bad name, password or role, or one too many."""
        self._check_name(name)
        self._check(password, role)
        with self._lock:
            if name in self._accounts:
                raise AccountError("UserName", f"an account {name!r} exists")
            if len(self._accounts) >= ACCOUNTS_MAX:
                raise AccountError("", f"there are {ACCOUNTS_MAX} accounts, which is the limit")
            account = Account(name, role, self._digest(password))
            self._accounts[name] = account
            return account

    def change(
        self,
        name: str,
        *,
        new_name: str | None = None,
        password: str | None = None,
        role: str | None = None,
        enabled: bool | None = None,
    ) -> Account:
        """Changes an account, and ends its sessions if it may no longer use them.

        KeyError: there is none; AccountError: a bad value, or no administrator would be left.
        """
        if new_name is not None:
            self._check_name(new_name)
        self._check(password, role)
        with self._lock:
            account = self._accounts[name]
            if new_name not in (None, name) and new_name in self._accounts:
                raise AccountError("UserName", f"an account {new_name!r} exists")
            if role not in (None, "Administrator") or enabled is False:
                self._keep_administrator(account)
            if password is not None:
                account.digest = self._digest(password)
            account.role = role or account.role
            account.enabled = account.enabled if enabled is None else enabled
            account.version += 1
            if new_name is not None and new_name != name:
                del self._accounts[name]
                account.name = new_name
                self._accounts[new_name] = account
            if password is not None or enabled is False or account.name != name:
                self._end_sessions_of(name)
            return account

    def remove(self, name: str) -> None:
        """Removes an account and its sessions.  KeyError; AccountError: as for change()."""
        with self._lock:
            self._keep_administrator(self._accounts[name])
            del self._accounts[name]
            self._end_sessions_of(name)

    def get(self, name: str) -> Account | None:
        with self._lock:
            return self._accounts.get(name)

    def names(self) -> list[str]:
        with self._lock:
            return list(self._accounts)

    def login(self, name: str, password: str) -> Caller | None:
        """Returns the caller if the password is right and the account enabled."""
        given = self._digest(password)
        with self._lock:
            account = self._accounts.get(name)
            right = hmac.compare_digest(account.digest if account else bytes(32), given)
            if account is None or not right or not account.enabled:
                return None
            return Caller(account.name, account.role)

    def open_session(self, caller: Caller, client: str) -> LoginSession:
        """Opens a session.  AccountError: there are too many."""
        now = time.monotonic()
        with self._lock:
            self._expire(now)
            if len(self._sessions) >= SESSIONS_MAX:
                raise AccountError("", f"{SESSIONS_MAX} sessions are open, which is the limit")
            self._number += 1
            token = secrets.token_hex(32)
            session = LoginSession(str(self._number), caller.name, token, client, time.time(), now)
            self._sessions[session.id] = session
            return session

    def find_session(self, token: str) -> Caller | None:
        """Returns the caller of a token, and counts the session as used now."""
        now = time.monotonic()
        given = token.encode()
        with self._lock:
            self._expire(now)
            for session in self._sessions.values():
                if hmac.compare_digest(session.token.encode(), given):
                    session.used = now
                    account = self._accounts[session.name]
                    return Caller(account.name, account.role, session.id)
        return None

    def sessions(self) -> list[LoginSession]:
        with self._lock:
            self._expire(time.monotonic())
            return list(self._sessions.values())

    def end_session(self, number: str) -> bool:
        with self._lock:
            return self._sessions.pop(number, None) is not None

    def _expire(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if now - session.used > self.session_timeout_s:
                del self._sessions[session.id]

    def _end_sessions_of(self, name: str) -> None:
        for session in list(self._sessions.values()):
            if session.name == name:
                del self._sessions[session.id]

    def _keep_administrator(self, account: Account) -> None:
        others = [
            other
            for other in self._accounts.values()
            if other is not account and other.role == "Administrator" and other.enabled
        ]
        if account.role == "Administrator" and account.enabled and not others:
            raise AccountError("", "the last administrator stays: add another one first")

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), hashlib.sha256)

    @staticmethod
    def _check_name(name: str) -> None:
        # Basic authentication ends a name at its first colon (RFC 7617 2); names are part of URIs.
        if len(name) not in _NAME_LENGTH or not (name.isascii() and name.isprintable()):
            raise AccountError("UserName", "give 1 to 32 printable characters of ASCII")
        if set(name) & set(':/?#%\\"<> '):
            raise AccountError("UserName", "give letters, digits and -._~@+ only")

    @staticmethod
    def _check(password: str | None, role: str | None) -> None:
        if password is not None and len(password) not in PASSWORD_LENGTH:
            first, last = PASSWORD_LENGTH.start, PASSWORD_LENGTH.stop - 1
            raise AccountError("Password", f"give {first} to {last} characters")
        if role is not None and role not in ROLES:
            raise AccountError("RoleId", f"choose one of {', '.join(ROLES)}")
