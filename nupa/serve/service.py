# SPDX-License-Identifier: BSD-3-Clause
"""The state that all routes share: the fabric, its snapshots, accounts and options."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nupa.base.closing import Closing
from nupa.fabric import Fabric
from nupa.live.devices import Devices
from nupa.live.observed import Observed
from nupa.live.snapshots import Snapshots
from nupa.serve.access.accounts import Accounts, Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import HTTPConnection

#: Seconds between snapshots while somebody follows them: the page shows two a second.
SNAPSHOT_S = 0.5


@dataclass(frozen=True)
class Options:
    """Options of `nupa serve` that routes ask for.

    allow_changes: requests may change the fabric.  login: also peers of the same user need an
    account.  sunfish: the URL of a Sunfish server that is told of this one.
    """

    allow_changes: bool = False
    login: bool = False
    sunfish: str = ""


class Service(Closing):
    """Everything that a route may use; one for each server.

    snapshots: of the fabric, which may go and come back.  devices: of its CXL switch.
    """

    def __init__(
        self,
        name: str,
        options: Options | None = None,
        *,
        snapshots: Snapshots | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self.name = name
        self.options = options or Options()
        self.snapshots = snapshots or Snapshots(name, SNAPSHOT_S)
        self.devices = Devices(name, self.snapshots)
        self.accounts = accounts or Accounts()
        self._change_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._observed: Observed | None = None
        self._closing = ExitStack()
        self._starting: list[Callable[[str], object]] = []

    def at_start(self, call: Callable[[str], object]) -> None:
        """Has *call* called by started(), with the server's URL."""
        self._starting.append(call)

    def started(self, url: str) -> None:
        """Says that requests are answered at *url*."""
        for call in self._starting:
            call(url)

    def at_close(self, call: Callable[[], object]) -> None:
        """Has *call* called by close(), the last one first."""
        self._closing.callback(call)

    def close(self) -> None:
        """Ends all streams and threads."""
        self._closing.close()
        self.snapshots.close()
        with self._read_lock:
            self._drop()

    def read(self) -> dict[str, Any]:
        """Returns the fabric as it is now, as Fabric.show(lists=False).

        For requests that follow changes; all others read snapshots.  LocalError: it is gone
        (ENOENT); FabricError: it is damaged.
        """
        with self._read_lock:
            if self._observed is not None and self._observed.gone:
                self._drop()
            if self._observed is None:
                self._observed = Observed.open(self.name)
            return self._observed.show(lists=False)

    def _drop(self) -> None:
        if self._observed is not None:
            self._observed.close()
            self._observed = None

    @contextmanager
    def changing(self) -> Iterator[Fabric]:
        """Opens the fabric for a change, one at a time.  LocalError: it is gone (ENOENT)."""
        with self._change_lock, Fabric.open(self.name) as fabric:
            yield fabric

    def may_change(self, request: HTTPConnection) -> bool:
        """Tells whether this request may change the fabric."""
        return self.options.allow_changes and caller_of(request).may("ConfigureComponents")


def caller_of(request: HTTPConnection) -> Caller:
    """Returns the account of a request, which the guard has checked."""
    found: Caller = request.scope["state"]["caller"]
    return found
