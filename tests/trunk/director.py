# SPDX-License-Identifier: BSD-3-Clause
"""The director of a soak of trunks: it also kills trunks, and pulls machines' cables.

Connections between two machines end where a trunk of theirs was killed, or where their cable was
out for long: both ends are then told.  All others go on, and a short outage costs time alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nupa.programs.pair import NUPA, Program
from tests.soak.crew import Worker
from tests.soak.director import LOST, STRIKES, Director
from tests.soak.links import Link
from tests.soak.watch import HUNG_NS, SECOND
from tests.trunk.lab import Cluster

SHORT_NS = (SECOND // 50, SECOND // 2)
#: Around the time after which trunks give each other up (SILENT_NS of csrc/trunk/peer.c).
LONG_NS = (5 * SECOND, 13 * SECOND)
#: From its begin on: by then trunks have heard each other again, or have given each other up.
DECIDED_NS = 11 * SECOND
#: After a short outage, until TCP has sent again; after another, until all that it ended is told.
SHORT_REST_NS, REST_NS = 3 * SECOND, HUNG_NS + 2 * SECOND
JOIN_NS = 60 * SECOND
GRACE_NS = 3 * HUNG_NS
WR_FLUSH_ERR, RETRY_EXC_ERR = 5, 12


@dataclass
class Outage:
    """A time in which machines of these sites have no way to others.

    *ending*: connections may end by it.
    """

    sites: frozenset[int]
    from_ns: int
    ending: bool
    to_ns: int | None = None

    def hits(self, *sites: int) -> bool:
        """Tells whether it is on the way between two sites."""
        return len(set(sites)) > 1 and not self.sites.isdisjoint(sites)

    def within(self, from_ns: int, to_ns: int) -> int:
        """Returns how long it was within that time."""
        end_ns = to_ns if self.to_ns is None else self.to_ns
        return max(0, min(end_ns, to_ns) - max(self.from_ns, from_ns))

    def rests(self, now_ns: int) -> bool:
        """Tells whether it has been over for long enough."""
        rest_ns = REST_NS if self.ending else SHORT_REST_NS
        return self.to_ns is not None and self.to_ns + rest_ns < now_ns


def _sites(link: Link) -> list[int]:
    return [end.worker.place.site for end in link.ends]


class TrunkDirector(Director):
    """XRC does not cross machines, and bulk to other machines goes by relay alone."""

    services = {"UC": 25, "RC": 75}  # noqa: RUF012
    strikes = {  # noqa: RUF012
        **STRIKES,
        "unplug shortly": 6,
        "unplug": 2,
        "kill a trunk": 3,
        "kill two trunks": 1,
    }
    movers = (None,)
    spared = 3

    def __init__(self, lab: Cluster, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lab = lab
        self._outages: list[Outage] = []
        self._joining: Program | None = None

    # --- links ----------------------------------------------------------------------------------

    def _may_meet(self, one: Worker, other: Worker) -> bool:
        sites = one.place.site, other.place.site
        return not any(each.hits(*sites) for each in self._outages if each.to_ns is None)

    def _is_excused(self, link: Link, status: int) -> bool:
        if status == LOST and self._may_lose(link):
            return True
        if status in (RETRY_EXC_ERR, WR_FLUSH_ERR, LOST) and self._may_end(link):
            return True
        self._explain(link)
        return False

    def _explain(self, link: Link) -> None:
        """Says what ways there were lately, and what the trunks saw of each other."""
        now_ns = time.monotonic_ns()
        self._say(f"  {self._describe(link)}: made {(link.made_ns - now_ns) / SECOND:.3f} s")
        for outage in self._outages[-4:]:
            to_s = "now" if outage.to_ns is None else f"{(outage.to_ns - now_ns) / SECOND:.3f} s"
            what = "was ended" if outage.ending else "was to go on"
            from_s = (outage.from_ns - now_ns) / SECOND
            self._say(f"  way of {sorted(outage.sites)}: none {from_s:.3f} s to {to_s}, {what}")
        for machine in self._lab.machines:
            seen = machine.ls()
            self._say(f"  {machine.name}'s log ends with: {seen['log']}")
            for other in seen["machines"]:
                since_s = other["since_ns"] / SECOND - time.time()
                self._say(
                    f"  {machine.name} sees {other['name']} {other['state']} since {since_s:.3f} "
                    f"s, lost {other['losses']} times, refused {other['refused']}, "
                    f"{other['sent_bytes']:,} bytes out, {other['received_bytes']:,} in"
                )

    def _lose_way(self, link: Link) -> None:
        """Expects the other end to be told, too."""
        if link.reliable:
            link.death_ns = link.death_ns or time.monotonic_ns()
        else:
            self._drop(link)

    def _may_lose(self, link: Link) -> bool:
        """The last messages before an outage are lost, and UC tells of none."""
        return super()._may_lose(link) or (not link.reliable and self._may_end(link))

    def _may_end(self, link: Link) -> bool:
        return any(each.ending for each in self._hitting(link, link.made_ns))

    def _hitting(self, link: Link, since_ns: int) -> list[Outage]:
        """Returns the outages on its way that were not over by then."""
        return [
            each
            for each in self._outages
            if each.hits(*_sites(link)) and (each.to_ns is None or each.to_ns > since_ns)
        ]

    def _is_timed(self, link: Link, since_ns: int) -> bool:
        return not self._hitting(link, since_ns - SHORT_REST_NS)

    def _grace_ns(self) -> int:
        """To deregister memory waits for all machines, so that an outage delays all workers."""
        now_ns = time.monotonic_ns()
        return sum(each.within(now_ns - GRACE_NS, now_ns) for each in self._outages)

    # --- trunks and cables ----------------------------------------------------------------------

    def _hit(self, strike: str, now_ns: int) -> bool:
        if strike not in OUTAGES:
            return super()._hit(strike, now_ns)
        if not all(each.rests(now_ns) for each in self._outages):
            return False
        OUTAGES[strike](self, now_ns)
        return True

    def _begin(self, count: int, ending: bool, now_ns: int) -> Outage:
        """Begins an outage of so many machines."""
        sites = self._random.sample([each.space.number for each in self._lab.machines], count)
        outage = Outage(frozenset(sites), now_ns, ending)
        self._outages.append(outage)
        if ending:
            for link in self._links.values():
                if not link.running and outage.hits(*_sites(link)):
                    self._drop(link)
        return outage

    def _unplug_shortly(self, now_ns: int) -> None:
        outage = self._begin(1, False, now_ns)
        self._unplug(outage, self._random.randint(*SHORT_NS), self._end_outage)

    def _unplug_long(self, now_ns: int) -> None:
        outage = self._begin(1, True, now_ns)
        self._unplug(outage, self._random.randint(*LONG_NS), self._join_when_decided)

    def _unplug(self, outage: Outage, for_ns: int, then: Callable[[Outage], None]) -> None:
        machines = [each for each in self._lab.machines if each.space.number in outage.sites]
        for machine in machines:
            machine.space.cable(plugged=False)

        def plug(_now_ns: int) -> None:
            for machine in machines:
                machine.space.cable(plugged=True)
            then(outage)

        self._later.append((outage.from_ns + for_ns, plug))

    def _kill_trunks(self, now_ns: int, count: int = 1) -> None:
        outage = self._begin(count, True, now_ns)
        for machine in self._lab.machines:
            if machine.space.number in outage.sites:
                (trunk,) = machine.trunks()
                os.kill(trunk.pid, signal.SIGKILL)
        self._join(outage)

    def _kill_two_trunks(self, now_ns: int) -> None:
        self._kill_trunks(now_ns, 2)

    def _join_when_decided(self, outage: Outage) -> None:
        """Makes no connections by trunks that hear nothing, but have yet to give each other up."""
        self._later.append((outage.from_ns + DECIDED_NS, lambda _: self._join(outage)))

    def _join(self, outage: Outage) -> None:
        """Starts what is missing as a user does, and waits until all are joined."""
        self._joining = self._lab.start([*NUPA, *self._lab.up_words()], self._lab.env)
        self._later.append((time.monotonic_ns(), lambda now_ns: self._await(outage, now_ns)))

    def _await(self, outage: Outage, now_ns: int) -> None:
        assert self._joining is not None
        if self._joining.running and now_ns - outage.from_ns < JOIN_NS:
            self._later.append((now_ns + SECOND // 50, lambda ns: self._await(outage, ns)))
            return
        outcome = self._joining.wait(0)
        self._joining.close()
        self._lab.started.remove(self._joining)
        if not outcome.ok:
            self._fail(outcome.describe())
        self._end_outage(outage)

    def _end_outage(self, outage: Outage) -> None:
        outage.to_ns = time.monotonic_ns()
        for worker in self._workers.values():
            if worker.ready:
                self._introduce(worker)

    def _finish(self) -> None:
        """Ends all once the machines are joined, and all that an outage ended was told."""
        while not all(each.rests(time.monotonic_ns()) for each in self._outages):
            self._serve(time.monotonic_ns() + SECOND // 50)
            self._do_later(time.monotonic_ns())
            self._look(time.monotonic_ns())
        super()._finish()


OUTAGES: dict[str, Callable[[TrunkDirector, int], None]] = {
    "unplug shortly": TrunkDirector._unplug_shortly,
    "unplug": TrunkDirector._unplug_long,
    "kill a trunk": TrunkDirector._kill_trunks,
    "kill two trunks": TrunkDirector._kill_two_trunks,
}
