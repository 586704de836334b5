# SPDX-License-Identifier: BSD-3-Clause
"""The director of a soak of wires: it also unplugs cables and kills keepers.

Over a wire a timer alone tells of a death.  A pair of workers that live may lose each other while a
cable is out, or when a keeper has died; at other times that is a failure.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nupa.fabric.wires.entry import COUNTERS
from nupa.programs.pair import Program
from tests.common import record
from tests.soak.crew import Worker
from tests.soak.director import LOST, STRIKES, Director
from tests.soak.links import Link
from tests.soak.watch import SECOND
from tests.wire.lab import Wired

#: IBTA 9.7.6.1.3: 4.096 us << 14, four times that with wires, eight times in a row: 2.1 s.
TIMEOUT = 14
RETRY_NS = 8 * 4 * (4096 << TIMEOUT)
SHORT_NS = (SECOND // 50, SECOND // 2)
LONG_NS = (3 * SECOND, 5 * SECOND)
#: Cables are left alone for so long afterwards, so that a short outage ends no connection.
REST_NS = 3 * SECOND
ADD_NS = 20 * SECOND
UNTOLD_NS = 41 * SECOND  # NETWORK_HANG_NS of tests/soak/worker/dials.c, and one to say so
TOLD_NS = 4 * RETRY_NS  #: of what passed before a connection ended without a reason
WR_FLUSH_ERR, RETRY_EXC_ERR = 5, 12


@dataclass
class Outage:
    """A time without a way between the machines."""

    from_ns: int
    to_ns: int | None = None
    keeper: bool = False  #: one was killed, and all its connections end at once

    def within(self, from_ns: int, to_ns: int) -> int:
        """Returns how long it was within that time."""
        end_ns = to_ns if self.to_ns is None else self.to_ns
        return max(0, min(end_ns, to_ns) - max(self.from_ns, from_ns))


class WireDirector(Director):
    """One soak on both machines of *stage*."""

    services = {"UC": 20, "RC": 60, "XRC": 20}  # noqa: RUF012
    strikes = {**STRIKES, "unplug shortly": 6, "unplug": 1, "kill a keeper": 1}  # noqa: RUF012
    movers = (None,)
    kept_heap_bytes = 1 << 20  #: librdmacm keeps its device, whose wire has buffers

    def __init__(self, stage: Wired, packets: Path, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._stage = stage
        self._packets = packets
        self._outages: list[Outage] = []
        self._adding: tuple[Program, Outage] | None = None
        self.counters: Counter[str] = Counter()  #: of wires, those of dead keepers as well

    # --- links ----------------------------------------------------------------------------------

    def _may_meet(self, one: Worker, other: Worker) -> bool:
        return one.place.site != other.place.site and not self._adding

    def _is_excused(self, link: Link, status: int) -> bool:
        if status == LOST:
            return self._may_lose(link)
        if not self._is_cut_off(link, status):
            self._explain(link)
            return False
        return True

    def _is_cut_off(self, link: Link, status: int) -> bool:
        """Tells whether the way was gone for so long that a reliable connection ends."""
        now_ns = time.monotonic_ns()
        # Deaths of keepers end all connections that are there; the other end is told by its timer.
        since_ns = max(link.made_ns, now_ns - 3 * RETRY_NS)
        if any(outage.keeper and outage.within(since_ns, now_ns) for outage in self._outages):
            return True
        out_ns = sum(outage.within(now_ns - 2 * RETRY_NS, now_ns) for outage in self._outages)
        return status == RETRY_EXC_ERR and out_ns > RETRY_NS // 2

    def _explain(self, link: Link) -> None:
        """Says all that passed between the ends of *link* lately, and what we did meanwhile."""
        now_ns = time.monotonic_ns()
        for outage in self._outages[-4:]:
            to_s = "now" if outage.to_ns is None else f"{(outage.to_ns - now_ns) / SECOND:.3f} s"
            what = "no keeper" if outage.keeper else "no cable"
            self._say(f"  {what}: {(outage.from_ns - now_ns) / SECOND:.3f} s to {to_s}")
        for end in link.ends:
            for stop in end.worker.stops[-8:]:
                to_s = "now" if stop.to_ns is None else f"{(stop.to_ns - now_ns) / SECOND:.3f} s"
                from_s = (stop.from_ns - now_ns) / SECOND
                self._say(f"  {end.worker.name} was stopped: {from_s:.3f} s to {to_s}")
        numbers = [number for end in link.ends for number in end.qp_numbers]
        self._say(f"  {self._describe(link)}: QPs {[hex(number) for number in numbers]}")
        for passage in record.read(self._packets):
            if passage.dqpn in numbers and now_ns - passage.ns < TOLD_NS:
                self._say(f"  {passage.describe(now_ns)}")

    def _may_lose(self, link: Link) -> bool:
        return not link.reliable

    def _obey(self, worker: Worker, words: list[str]) -> None:
        if words[0] != "untold":
            super()._obey(worker, words)
            return
        since_ns = time.monotonic_ns() - UNTOLD_NS
        if not any(
            each.keeper and each.within(since_ns, since_ns + UNTOLD_NS) for each in self._outages
        ):
            self._fail(f"a connection of {worker.name} by rdma_cm hangs", worker)

    def _finish(self) -> None:
        """Ends all once the cables are in and the wires are there."""
        while not self._rests:
            self._serve(time.monotonic_ns() + SECOND // 50)
            self._do_later(time.monotonic_ns())
        super()._finish()

    def count(self, wires: Iterable[Mapping[str, Any]]) -> None:
        """Adds the counters of wires, from `nupa show --json`."""
        for wire in wires:
            self.counters.update({name: wire[name] for name in COUNTERS})

    # --- cables and keepers ---------------------------------------------------------------------

    def _hit(self, strike: str, now_ns: int) -> bool:
        if strike == "unplug shortly":
            return self._unplug(self._random.randint(*SHORT_NS), now_ns)
        if strike == "unplug":
            return self._unplug(self._random.randint(*LONG_NS), now_ns)
        if strike == "kill a keeper":
            return self._kill_keeper()
        return super()._hit(strike, now_ns)

    @property
    def _rests(self) -> bool:
        """Whether the way is there, and has been for a while."""
        since_ns = time.monotonic_ns() - REST_NS
        return all(outage.to_ns and outage.to_ns < since_ns for outage in self._outages[-2:])

    def _unplug(self, for_ns: int, now_ns: int) -> bool:
        if not self._rests:
            return False
        machine = self._stage.machines[self._random.randrange(2)]
        outage = Outage(now_ns)
        self._outages.append(outage)
        machine.cable(plugged=False)

        def plug(_now_ns: int) -> None:
            machine.cable(plugged=True)
            outage.to_ns = time.monotonic_ns()

        self._later.append((now_ns + for_ns, plug))
        return True

    def _kill_keeper(self) -> bool:
        """Kills one, and adds its wire again as a user does."""
        if not self._rests:
            return False
        side = self._stage.side(self._random.randrange(2))
        wire = side.wire()
        self.count([wire])
        outage = Outage(time.monotonic_ns(), keeper=True)
        self._outages.append(outage)
        os.kill(wire["keeper"], signal.SIGKILL)
        far, address = side.far
        argv = side.nupa("wire", "add", far, "--address", address)
        self._adding = Program(argv, env=side.env), outage
        self._later.append((time.monotonic_ns(), self._await_wire))
        return True

    def close(self) -> None:
        super().close()
        if self._adding:
            self._adding[0].close()

    def _await_wire(self, now_ns: int) -> None:
        assert self._adding is not None
        program, outage = self._adding
        if program.running and now_ns - outage.from_ns < ADD_NS:
            self._later.append((now_ns + SECOND // 50, self._await_wire))
            return
        with program:
            outcome = program.wait(0)
        self._adding = None
        outage.to_ns = time.monotonic_ns()
        if not outcome.ok:
            self._fail(outcome.describe())
        for worker in self._workers.values():
            if worker.ready:
                self._introduce(worker)
