# SPDX-License-Identifier: BSD-3-Clause
"""The director of a soak: starts workers, links them in pairs, and ends, stops and resumes them.

Its actions follow from its seed; their times depend on the machine.
"""

from __future__ import annotations

import random
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from .crew import Place, Role, Worker
from .links import Link, LinkEnd
from .watch import END_NS, SECOND, Watch

STRIKE_NS = SECOND // 10
STOP_NS = (SECOND // 200, SECOND // 5)
LOOK_NS = SECOND // 2
# The status of a completion whose peer has ended: ibv_wc_status.
LOST = 100
DEATH_STATUSES = {5: "WR_FLUSH_ERR", 12: "RETRY_EXC_ERR", LOST: "lost messages (UC)"}
STRIKES = {"kill": 35, "stop": 35, "exit now": 10, "exit": 8, "finish": 6, "unlink": 6}
# enum service, enum dress of worker/soak.h.
SERVICES = {"UC": 0, "RC": 1, "XRC": 2}
DRESSES = {"SRQ": 1, "on demand": 2, "device memory": 4, "window 1": 8, "window 2": 16}


class Director(Watch):
    """One soak on *places*, with *n_workers* processes of *program*."""

    services: Mapping[str, int] = {"UC": 20, "RC": 60, "XRC": 20}  #: with their weights
    strikes: Mapping[str, int] = STRIKES
    movers: Sequence[str | None] = (None, "relay", None, "cma", None, "pool")
    spared = 2  #: workers

    def __init__(
        self,
        places: Sequence[Place],
        program: Path,
        *,
        seed: int,
        n_workers: int,
        n_links: int,
        env: dict[str, str],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(
            [
                Role(
                    i, self.movers[i % len(self.movers)], events=i % 4 != 0, spared=i < self.spared
                )
                for i in range(n_workers)
            ],
            say,
        )
        self._places = places
        self._program = program
        self._random = random.Random(seed)
        self._env = env
        self._n_links = n_links
        self._selector = selectors.DefaultSelector()
        self._ends: dict[int, tuple[Link, LinkEnd]] = {}
        self._later: list[tuple[int, Callable[[int], None]]] = []  #: what is done when
        self._next_end = 1
        self._ending = False

    # --- workers ------------------------------------------------------------------------------

    def _start(self, role: Role) -> None:
        worker = Worker.start(
            self._program,
            role,
            self._random.choice(self._places),
            self._random.getrandbits(63) | 1,
            self._env,
            time.monotonic_ns(),
        )
        self._workers[role.index] = worker
        self._selector.register(worker.control, selectors.EVENT_READ, (worker, self._hear))
        self._selector.register(worker.pidfd, selectors.EVENT_READ, (worker, self._bury))

    def _end(self, worker: Worker, how: str) -> None:
        worker.ended_by = how
        worker.ended_ns = time.monotonic_ns()
        if how == "kill":
            worker.send_signal(signal.SIGKILL)
        elif how == "finish":
            worker.tell("finish")
        else:
            worker.send_signal(signal.SIGUSR1 if how == "exit now" else signal.SIGUSR2)

    def _bury(self, worker: Worker) -> None:
        """Notes that its process has ended."""
        worker.died_ns = time.monotonic_ns()
        if worker.ended_by == "kill":
            self.figures.stalls_ms.append((worker.died_ns - worker.ended_ns) / 1e6)
        self._selector.unregister(worker.pidfd)
        self._hear(worker)
        self._selector.unregister(worker.control)
        code = worker.process.wait()
        expected = -signal.SIGKILL if worker.ended_by == "kill" else 0
        if not worker.ended_by or code != expected:
            self._fail(f"{worker.name} ended by itself, with {code}", worker)
        if worker.ended_by == "finish":
            if not worker.finished:
                self._fail(f"{worker.name} did not finish in order", worker)
            self._count_leaks(worker)
        self._add_up(worker)
        for number in sorted(worker.links):
            self._lose_end(self._links[number], worker)
        worker.close()
        del self._workers[worker.role.index]
        if not self._ending:
            self._start(worker.role)

    # --- links --------------------------------------------------------------------------------

    def _make_links(self) -> None:
        while len(self._links) < self._n_links:
            roomy = [worker for worker in self._workers.values() if worker.has_room]
            # Otherwise only links would remain that no death ends.
            mortal = [worker for worker in roomy if not worker.role.spared]
            if not mortal:
                return
            one = self._random.choice(mortal)
            others = [worker for worker in roomy if self._may_meet(one, worker)]
            if not others:
                return
            self._make_link(one, self._random.choice(others))

    def _may_meet(self, one: Worker, other: Worker) -> bool:
        """Tells whether there are links, datagrams and connections between them."""
        del one, other
        return True

    def _make_link(self, a: Worker, b: Worker) -> None:
        number, self._next_end = self._next_end, self._next_end + 2
        service = self._random.choices(list(self.services), list(self.services.values()))[0]
        seed = self._random.getrandbits(63)
        ends = LinkEnd(number, a), LinkEnd(number + 1, b)
        link = Link(number, service, ends, time.monotonic_ns())
        self._links[number] = link
        self.figures.links[service] += 1
        for first, end in enumerate(link.ends):
            self._ends[end.id] = (link, end)
            end.worker.links.add(number)
            dress = self._choose_dress(service)
            self.figures.links.update(dress)
            bits = sum(DRESSES[name] for name in dress)
            end.worker.tell(f"make {end.id} {SERVICES[service]} {bits} {seed} {first}")

    def _choose_dress(self, service: str) -> list[str]:
        """Chooses what an end has.

        Memory on demand has no windows.  A window of type 2 is of one QP (IBTA 10.6.7.2.4).  With
        XRC this is the QP that sends.  XRC has SRQs of its own.
        """
        dress = [name for name in ("SRQ", "device memory") if self._random.random() < 0.3]
        memory = self._random.choice(("plain", "on demand", "window 1", "window 2"))
        chosen = dress if memory == "plain" else [*dress, memory]
        return [n for n in chosen if service != "XRC" or n not in ("SRQ", "window 2")]

    def _dial(self) -> None:
        """Connects one worker to another, or to itself, by rdma_cm."""
        ready = [worker for worker in self._workers.values() if worker.usable and worker.cm_port]
        if ready:
            caller, called = self._random.choice(ready), self._random.choice(ready)
            if self._may_meet(caller, called):
                seed = self._random.getrandbits(62)
                caller.tell(f"dial {called.place.ipv4} {called.cm_port} {seed}")

    def _forget(self, link: Link) -> None:
        for end in link.ends:
            end.worker.links.discard(link.number)
            del self._ends[end.id]
        del self._links[link.number]

    def _drop(self, link: Link) -> None:
        if not link.dropped:
            link.dropped = True
            for end in link.ends:
                if not end.gone:
                    end.worker.tell(f"drop {end.id}")

    def _lose_end(self, link: Link, worker: Worker) -> None:
        """Expects a partner to notice that *worker* has ended, unless nothing tells it."""
        for end in link.ends:
            if end.worker is worker:
                end.gone = True
        if all(end.gone for end in link.ends):
            self._forget(link)
        elif not link.reliable or not link.running or worker.ended_by == "finish":
            self._drop(link)
        else:
            link.death_ns = link.death_ns or time.monotonic_ns()

    def _noticed(self, link: Link, end: LinkEnd, status: int, ns: int, waited_ns: int) -> None:
        partner = link.ends[1 - link.ends.index(end)]
        end.down = True
        if link.dropped or end.worker.ended_by or partner.down:
            return
        self.figures.statuses[DEATH_STATUSES.get(status, str(status))] += 1
        ended = partner.worker.ended_by
        if not ended and self._is_excused(link, status):
            self._lose_way(link)
        elif not ended or status not in DEATH_STATUSES:
            self._fail(
                f"link {link.number}: {end.worker.name} got status {status}; its partner "
                f"{partner.worker.name} {'was told to ' + ended if ended else 'is there'}",
                end.worker,
                partner.worker,
            )
        elif (
            link.reliable
            and ended in ("kill", "exit now")
            and end.worker.ran_since(partner.worker.ended_ns)
            and waited_ns < partner.worker.ended_ns
            and self._is_timed(link, partner.worker.ended_ns)
        ):
            # A partner that was told before us (died_ns is 0, or later) did not wait.
            died_ns = partner.worker.died_ns or ns
            self.figures.notices_ms.append(max(0, ns - died_ns) / 1e6)

    def _is_excused(self, link: Link, status: int) -> bool:
        """Tells whether an end may fail so while its partner lives."""
        return status == LOST and self._may_lose(link)

    def _lose_way(self, link: Link) -> None:
        """Goes on after an end was excused."""
        self._drop(link)

    def _is_timed(self, link: Link, since_ns: int) -> bool:
        """Tells whether nothing but the fabric delays the news of a death since then."""
        del link, since_ns
        return True

    # --- what workers say ---------------------------------------------------------------------

    def _hear(self, worker: Worker) -> None:
        while True:
            try:
                line = worker.control.recv(512).decode()
            except (BlockingIOError, ConnectionResetError):
                return
            if not line:
                return
            self._obey(worker, line.split())

    def _obey(self, worker: Worker, words: list[str]) -> None:
        verb = words[0]
        if verb == "datagrams":
            worker.ready = True
            worker.datagram_qpn = int(words[1])
            self._introduce(worker)
            return
        if verb == "listens":
            worker.cm_port = int(words[1])
            return
        if verb == "finished":
            worker.finished = True
            return
        if verb == "wrong":
            self._fail(f"{worker.name} found something wrong", worker)
            return
        if int(words[1]) not in self._ends:
            return
        link, end = self._ends[int(words[1])]
        if verb == "address":
            end.address = " ".join(words[2:])
            if all(e.address for e in link.ends) and not link.dropped:
                for i, e in enumerate(link.ends):
                    e.worker.tell(f"join {e.id} {link.ends[1 - i].address}")
        elif verb == "ready":
            end.ready = True
            if all(e.ready for e in link.ends) and not link.dropped:
                link.running = True
                link.progress_ns = time.monotonic_ns()
                for e in link.ends:
                    e.worker.tell(f"go {e.id}")
        elif verb == "down":
            self._noticed(link, end, *map(int, words[2:5]))
        elif verb == "gone":
            end.gone = True
            if all(e.gone for e in link.ends):
                self._forget(link)
            elif not link.dropped and not link.death_ns:
                link.death_ns = time.monotonic_ns()

    def _introduce(self, worker: Worker) -> None:
        """Tells each worker where its datagrams go, and it where theirs go."""
        for other in self._workers.values():
            if other.ready and self._may_meet(worker, other):
                other.tell(self._meeting(worker))
                worker.tell(self._meeting(other))

    def _meeting(self, worker: Worker) -> str:
        return f"meet {worker.role.index} {worker.datagram_qpn} {worker.place.gid}"

    # --- strikes ------------------------------------------------------------------------------

    def _strike(self, now_ns: int) -> None:
        strike = self._random.choices(list(self.strikes), list(self.strikes.values()))[0]
        self.figures.strikes[strike] += self._hit(strike, now_ns)

    def _hit(self, strike: str, now_ns: int) -> bool:
        """Tells whether there was something to hit."""
        if strike == "unlink":
            links = [link for link in self._links.values() if link.running and not link.dropped]
            if links:
                self._drop(self._random.choice(links))
            return bool(links)
        victims = [
            worker
            for worker in self._workers.values()
            if worker.usable
            and not (strike != "stop" and worker.role.spared)
            # A stopped worker may be killed.
            and not (worker.stopped and strike != "kill")
        ]
        if not victims:
            return False
        victim = self._random.choice(victims)
        if strike == "stop":
            victim.stop(now_ns)
            until_ns = now_ns + self._random.randint(*STOP_NS)
            self._later.append((until_ns, partial(self._resume, victim)))
        else:
            self._end(victim, strike)
        return True

    def _resume(self, worker: Worker, now_ns: int) -> None:
        if self._is_here(worker) and worker.stopped:
            worker.resume(now_ns)

    def _do_later(self, now_ns: int, everything: bool = False) -> None:
        """Does what is due by now."""
        due = [each for each in self._later if everything or each[0] <= now_ns]
        self._later = [each for each in self._later if each not in due]
        for _, what in due:
            what(now_ns)

    # --- the run ------------------------------------------------------------------------------

    def _serve(self, until_ns: int) -> None:
        """Hears workers until then."""
        left_s = max(0.0, (until_ns - time.monotonic_ns()) / SECOND)
        keys = self._selector.select(left_s)
        for key, _ in keys:
            worker, handle = key.data
            if self._is_here(worker):  # not taken by a key before this one
                handle(worker)

    def run(self, seconds: float) -> None:
        """Strikes for so long, then ends everything in order."""
        for role in self._roles:
            self._start(role)
        start_ns = time.monotonic_ns()
        end_ns = start_ns + int(seconds * SECOND)
        strike_ns, look_ns = start_ns + SECOND, start_ns + LOOK_NS
        while (now_ns := time.monotonic_ns()) < end_ns:
            self._do_later(now_ns)
            if now_ns >= strike_ns:
                strike_ns += STRIKE_NS
                self._strike(now_ns)
                self._dial()
            if now_ns >= look_ns:
                look_ns = now_ns + LOOK_NS
                self._look(now_ns)
            self._make_links()
            wake = [strike_ns, look_ns, *(when for when, _ in self._later)]
            self._serve(min(wake))
        self._finish()

    def _finish(self) -> None:
        self._do_later(time.monotonic_ns(), everything=True)
        self._check_survivors()
        self._ending = True
        limit_ns = time.monotonic_ns() + END_NS
        while self._workers and time.monotonic_ns() < limit_ns:
            for worker in self._workers.values():
                if worker.ready and not worker.ended_by:
                    self._end(worker, "finish")
            self._serve(time.monotonic_ns() + STRIKE_NS)
        for worker in self._workers.values():
            self._hang(f"{worker.name} does not finish", worker)

    def close(self) -> None:
        """Ends what is left, by pid."""
        for worker in self._workers.values():
            self._add_up(worker)
            worker.process.kill()
            worker.process.wait()
            worker.close()
        self._workers.clear()
        self._selector.close()
