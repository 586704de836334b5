# SPDX-License-Identifier: BSD-3-Clause
"""All machines of a cluster at once, from one place, by ssh."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from nupa.trunk import part
from nupa.trunk.cluster import Cluster, Machine
from nupa.trunk.file import ClusterText
from nupa.trunk.remote import DEADLINE_S, MachineAnswer, ask

Each = Callable[[Machine, MachineAnswer], None]


class UpAllReport(NamedTuple):
    """started: names of machines whose trunk is new; errors: by machine, why there is none."""

    cluster: Cluster
    started: list[str]
    errors: dict[str, str]


def up_all(
    files: ClusterText, *, ssh: Sequence[str] | None, wait_s: float, each: Each | None = None
) -> UpAllReport:
    """Starts or repairs all parts, and waits *wait_s* until they are joined.

    If a part does not start, those that this call has made are taken down.  LocalError: the file is
    wrong.
    """
    cluster = files.parse()
    machines = cluster.machines
    looks = ask(machines, _orders(machines, part.order("look", cluster.name)), ssh=ssh, each=each)
    errors = _errors(looks) or _foreign(machines, looks)
    if errors:
        return UpAllReport(cluster, [], errors)
    sessions = _sessions(looks)
    if len(set(sessions.values())) > 1:
        errors = {
            name: f"its part is of an earlier start ({session}): `nupa trunk down` first"
            for name, session in sessions.items()
        }
        return UpAllReport(cluster, [], errors)
    session = next(iter(sessions.values()), os.urandom(8).hex())
    orders = {
        machine.name: part.order(
            "up",
            cluster.name,
            **files._asdict(),
            machine=machine.name,
            session=session,
            wait_s=wait_s,
        )
        for machine in machines
    }
    answers = ask(machines, orders, ssh=ssh, deadline_s=DEADLINE_S + wait_s, each=each)
    errors = _errors(answers)
    started = [name for name, answer in answers.items() if answer.value.get("started") is True]
    if errors:
        new = [machine for machine in machines if answers[machine.name].value.get("made") is True]
        down_all(cluster.name, new, ssh=ssh, force=False)
        return UpAllReport(cluster, [], errors)
    return UpAllReport(cluster, started, _unjoined(cluster, answers))


def down_all(
    name: str,
    machines: Sequence[Machine],
    *,
    ssh: Sequence[str] | None,
    force: bool,
    each: Each | None = None,
) -> dict[str, MachineAnswer]:
    """Takes the parts of these machines down; returns their answers."""
    orders = _orders(machines, part.order("down", name, force=force))
    return ask(machines, orders, ssh=ssh, each=each)


def look_all(
    name: str, machines: Sequence[Machine], *, ssh: Sequence[str] | None
) -> dict[str, MachineAnswer]:
    """Returns what each machine tells of its part."""
    return ask(machines, _orders(machines, part.order("look", name)), ssh=ssh)


def _orders(machines: Iterable[Machine], order: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {machine.name: order for machine in machines}


def _errors(answers: dict[str, MachineAnswer]) -> dict[str, str]:
    return {name: answer.error for name, answer in answers.items() if answer.error}


def _foreign(machines: Sequence[Machine], looks: dict[str, MachineAnswer]) -> dict[str, str]:
    """Finds machines that are another one's part, as where two names lead to one machine."""
    found = {}
    for machine in machines:
        said = looks[machine.name].value.get("machine", machine.name)
        if said != machine.name:
            found[machine.name] = (
                f"{machine.destination} is the machine {said!r} already: check `address` and "
                f"`ssh`, or set NUPA_DIR by `command` for two on one machine"
            )
    return found


def _sessions(looks: dict[str, MachineAnswer]) -> dict[str, str]:
    """Returns the sessions of parts that live, else of those that have died, by machine."""
    for alive in (True, False):
        found = {
            name: answer.value["session"]
            for name, answer in looks.items()
            if answer.value.get("alive") is alive
            and isinstance(answer.value.get("machine"), str)
            and isinstance(answer.value.get("session"), str)
        }
        if found:
            return found
    return {}


def _unjoined(cluster: Cluster, answers: dict[str, MachineAnswer]) -> dict[str, str]:
    errors = {}
    for machine in cluster.machines:
        missing = answers[machine.name].value.get("missing")
        known = [name for name in missing or [] if isinstance(name, str)]
        places = [
            f"{other.name} at {other.address} port {other.port}"
            for other in cluster.machines
            if other.name in known
        ]
        if places:
            errors[machine.name] = (
                f"it is up and not joined to {', '.join(places)}: does a firewall refuse the "
                f"port? `nupa trunk ls` there says more"
            )
    return errors
