# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program in the network namespace of a host, for `nupa net exec` and `nupa shell`.

It imports no netlink library, so that it starts as fast as `nupa run`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from nupa.cli.common.command import fail
from nupa.cli.run.program import environment, run_on, tell_if_unreached
from nupa.fabric import Fabric, LocalError
from nupa.netdev import namespace, state
from nupa.netdev.state import HostNet


def run_inside(
    name: str | None, which: str, command: list[str], *, verbs: bool, mover: str | None = None
) -> int:
    """Runs *command* in the namespace of a host; returns its exit code.

    *verbs*: it has the verbs of the host, too.  The host is leased, as by `nupa run`, so that the
    fabric stays, and others see the program.
    """
    name = state.meant_name(name)
    up = state.load_up(name)
    host = up.host(which)

    def no_fabric() -> NoReturn:
        raise _former(name)

    fabric, leased = Fabric.lease(up.reference, host.name, no_fabric)
    if fabric.generation != state.load_up(name).generation:
        fabric.close()
        raise _former(name)
    if not host.pump.alive:
        said = state.last_log_line(name)
        _warn(f"the pump of {host.name} has ended ({said}): `nupa net up` starts a new one")
    env = environment(fabric.path, leased.name, mover) if verbs else dict(os.environ)
    prepare = entering(fabric, host, env)
    if verbs and namespace.privileged():
        tell_if_unreached(command, env)
    # Of others' `nupa run --net`: it stays while this program uses it.
    use = None
    if host.lifeline:
        from nupa.netdev import lent

        use = lent.use(fabric, leased, make=False)
    return run_on(fabric, command, env, prepare, use)


def entering(fabric: Fabric, host: HostNet, env: dict[str, str]) -> Callable[[], None]:
    """Returns what a program's process calls to enter the namespace; completes *env* for it."""
    if not namespace.privileged():
        # As root of a user namespace, `nupa` still finds the fabrics of this user.
        env.setdefault("NUPA_UID", str(os.geteuid()))

    def prepare() -> None:
        namespace.enter_or_explain(host.netns)
        _show_network({host.name: host.ipv4 for host in fabric.hosts})

    return prepare


def _show_network(hosts: dict[str, str]) -> None:
    """Shows the program its own network in /sys and /etc/hosts, as far as the kernel allows."""
    views: list[tuple[str, Callable[[], None]]] = [
        ("/etc/hosts", partial(namespace.show_hosts, hosts)),
        ("/sys", namespace.show_own_sys),
    ]
    try:
        namespace.own_mounts()
    except OSError as error:
        _warn(f"/sys and /etc/hosts are those of another network namespace: {error.strerror}")
        return
    for path, show in views:
        try:
            show()
        except OSError as error:
            _warn(f"{path} shows another network namespace: {error.strerror}")


def _former(name: str) -> LocalError:
    return LocalError(
        f"the interfaces of {name!r} are of a former fabric of that name: "
        f"`nupa net up --fabric {name}` makes new ones",
        errno.ESTALE,
    )


def _warn(line: str) -> None:
    if not os.environ.get("NUPA_QUIET"):
        fail(line)
