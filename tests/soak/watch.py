# SPDX-License-Identifier: BSD-3-Clause
"""The watch of a soak: what hangs, what leaks, and what a failure has to say."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from .crew import Role, Worker
from .links import Figures, Link, SoakError

SECOND = 1_000_000_000
HUNG_NS = 10 * SECOND  # what makes no progress for so long, hangs
END_NS = 30 * SECOND  # an end takes no longer, in order or by SIGKILL
FDS_A_PEER = 3
HEAP_BYTES_A_PEER = 32768


class Watch:
    """The eyes of a soak, on its workers and their links."""

    kept_heap_bytes = 8192  #: for ever, once the device was used

    def __init__(self, roles: list[Role], say: Callable[[str], None]) -> None:
        self.figures = Figures()
        self._say = say
        self._roles = roles
        self._workers: dict[int, Worker] = {}  #: by role
        self._links: dict[int, Link] = {}

    def _is_here(self, worker: Worker) -> bool:
        return self._workers.get(worker.role.index) is worker

    def _add_up(self, worker: Worker) -> None:
        board, figures = worker.board, self.figures
        for name in ("operations", "datagrams", "dials", "untold", "wrong"):
            setattr(figures, name, getattr(figures, name) + getattr(board, name))
        figures.bytes_checked += board.bytes
        figures.longest_dereg_s = max(figures.longest_dereg_s, board.longest_dereg_s)

    # --- what hangs ---------------------------------------------------------------------------

    def _look(self, now_ns: int) -> None:
        limit_ns = HUNG_NS + self._grace_ns()
        for worker in list(self._workers.values()):
            alive_ns = max(worker.board.heartbeat_ns, worker.started_ns)
            if worker.ended_by:
                if now_ns - worker.ended_ns > END_NS + self._grace_ns():
                    self._hang(f"{worker.name} was told to {worker.ended_by}, and is there", worker)
                continue
            if worker.ran_since(now_ns - HUNG_NS) and now_ns - alive_ns > limit_ns:
                self._hang(f"{worker.name} hangs", worker)
        for link in list(self._links.values()):
            if link.being_ended:
                continue
            workers = [end.worker for end in link.ends if not end.gone]
            if not all(worker.ran_since(now_ns - HUNG_NS) for worker in workers):
                continue
            if link.death_ns and not link.told and now_ns - link.death_ns > self._hung_ns():
                self._hang_link(link, "outlives its partner's end", workers)
            elif link.dropped:
                continue  # its workers are looked at, and what they hold in the end
            elif not link.running and now_ns - link.made_ns > limit_ns:
                self._hang_link(link, "does not come about", workers)
            elif link.running and not link.death_ns:
                self._look_at_link(link, now_ns, workers, limit_ns)

    def _describe(self, link: Link) -> str:
        ends = ", ".join(
            f"end {end.id} of {end.worker.name}{' (gone)' if end.gone else ''}"
            f"{'' if end.ready else ', not ready'}"
            f"{', told to ' + end.worker.ended_by if end.worker.ended_by else ''}"
            for end in link.ends
        )
        return f"{link.service} link {link.number} ({ends})"

    def _hung_ns(self) -> int:
        """Returns the limit for a partner of the dead: HUNG_NS besides the kernel's own time."""
        return HUNG_NS + self._grace_ns() + int(max(self.figures.stalls_ms, default=0) * 1e6)

    def _grace_ns(self) -> int:
        """Returns for how long workers had to wait for what we did."""
        return 0

    def _look_at_link(self, link: Link, now_ns: int, workers: list[Worker], limit_ns: int) -> None:
        progress = sum(
            end.worker.board.progress().get(end.id, 0) for end in link.ends if not end.gone
        )
        if progress != link.progress:
            link.progress, link.progress_ns = progress, now_ns
        elif now_ns - link.progress_ns > limit_ns and self._may_lose(link):
            self._drop(link)  # the last messages of its window
        elif now_ns - link.progress_ns > limit_ns:
            self._hang_link(link, "makes no progress", workers)

    def _may_lose(self, link: Link) -> bool:
        """Tells whether messages may be lost between two that live: UC waits for no stopped
        receiver."""
        return not link.reliable and not all(
            end.worker.ran_since(link.made_ns) for end in link.ends
        )

    def _hang_link(self, link: Link, what: str, workers: list[Worker]) -> None:
        self._explain(link)
        self._hang(f"{self._describe(link)} {what}", *workers)

    def _explain(self, link: Link) -> None:
        """Says what was on the way between its ends."""

    def _hang(self, text: str, *workers: Worker) -> None:
        self.figures.hung += 1
        for worker in workers:
            for line in worker.stacks():
                self._say(f"  {worker.name}: {line}")
        self._fail(text, *workers)

    def _fail(self, text: str, *workers: Worker) -> None:
        self.figures.failures.append(text)
        self._say(f"FAILED at {time.monotonic():.6f}: {text}")
        for worker in workers:
            self._say(f"  {worker.name}, {worker.place.name}, mover {worker.role.mover}, did last:")
            for line in worker.board.log(24):
                self._say(f"    {line}")
        raise SoakError(text)

    # --- what leaks ---------------------------------------------------------------------------

    def _count_leaks(self, worker: Worker) -> None:
        fds, heap = worker.board.fds, worker.board.heap_bytes
        # librdmacm keeps its device open, and that a few for each live peer.
        if fds[2] > fds[0] + FDS_A_PEER * len(self._roles):
            self._fail(f"{worker.name} had {fds[0]} fds before, {fds[2]} after", worker)
            self.figures.leaked_fds += fds[2] - fds[0]
        grown = heap[2] - heap[0]
        if grown > self.kept_heap_bytes + HEAP_BYTES_A_PEER * len(self._roles):
            self._fail(f"{worker.name} has {grown} bytes more on its heap than before", worker)
            self.figures.leaked_heap_bytes += grown

    def _check_survivors(self) -> None:
        """Checks that a worker that saw all the deaths holds no more for them."""
        for worker in self._workers.values():
            fds, heap = worker.board.fds[1], worker.board.heap_bytes[1]
            if worker.role.spared and worker.ready:
                # Its own, and some for each other that may be there.
                if fds > 48 + FDS_A_PEER * len(self._roles):
                    self.figures.leaked_fds += fds
                    kinds = Counter(worker.open_files())
                    self._fail(f"{worker.name} holds {fds} fds: {dict(kinds)}", worker)
                if heap > self.kept_heap_bytes + (1 << 20):
                    self.figures.leaked_heap_bytes += heap
                    self._fail(f"{worker.name} holds {heap} bytes", worker)
