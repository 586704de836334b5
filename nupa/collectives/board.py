# SPDX-License-Identifier: BSD-3-Clause
"""The board of a communicator: a region of the fabric at which its ranks meet.

Rank 0 makes it; the others find it by its name.  Each rank has a row: its state, its process, its
host, how often it came to a barrier, and a card for the others (addresses, keys).

    B1  A row is written by its rank alone; `state` is stored last.
    B2  `ready` is stored when the board has its size; it was zero before.
"""

from __future__ import annotations

import errno
import json
import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.base.errors import LocalError, NupaError
from nupa.base.process import say
from nupa.collectives.rank import (
    CLOSING_S,
    FIND_S,
    HEAD_BYTES,
    ROW_BYTES,
    BoardRow,
    RankError,
    RankState,
    check_rank,
    free_board,
    is_orphan,
    release,
)
from nupa.memory.region import Owner
from nupa.memory.window import Window

if TYPE_CHECKING:
    from nupa.core.segment import HostInfo
    from nupa.fabric import Fabric

_READY = 0x6E757061_0001
_ONES = 2**64 - 1
_CARD_BYTES = 16384
_REASON_BYTES = 256
_SPINS = 256  # before a rank yields its CPU
_LOOK_S = 0.02  # between two looks at the other ranks
_LONG_S = 0.002  # a wait that is longer sleeps between two looks
_NAP_S = 50e-6


class Board(Closing):
    """The board as rank *rank* of *size* on *host* sees it.

    LocalError: no such rank, or another process has it; RankError: not all ranks came within
    *deadline_s*.
    """

    def __init__(
        self, fabric: Fabric, host: HostInfo, name: str, rank: int, size: int, deadline_s: float
    ) -> None:
        check_rank(name, rank, size)
        self.rank, self.size, self.deadline_s = rank, size, deadline_s
        self._fabric = fabric
        self._what = f"rank {rank} of {name!r}"
        self._tag = f"ranks {name}"
        self._before = ffi.new("uint64_t *")
        self._peers: dict[int, int] = {}  # rank: pidfd
        self._rounds = 0
        self.broken = ""
        self._leaving = self._closed = False
        end_s = time.monotonic() + deadline_s
        with ExitStack() as stack:
            if rank:
                self._window = self._find(fabric, host, end_s, stack)
            else:
                self._window = self._make(fabric, host, stack)
            self._join(host, end_s)
            stack.callback(self._close_peers)
            self._await_all(end_s)
            self._stack = stack.pop_all()

    @property
    def id(self) -> int:
        """A number that no other board of this fabric has."""
        return self._region.id

    @property
    def mark(self) -> str:
        """The end of the tags of regions that belong to this communicator."""
        return f" of {self.id:x}"

    # The meeting

    def _make(self, fabric: Fabric, host: HostInfo, stack: ExitStack) -> Window:
        """Makes the board of rank 0."""
        end_s = time.monotonic() + CLOSING_S
        while owner := self._clear(fabric):
            if time.monotonic() > end_s:
                raise LocalError(
                    f"{self._what}: another process has this rank, on {owner}", errno.EEXIST
                )
            time.sleep(FIND_S)
        size = HEAD_BYTES + self.size * (ROW_BYTES + _CARD_BYTES)
        self._region = fabric.pool.alloc(size, self._tag, "all", host=host)
        stack.callback(free_board, self._region)
        return stack.enter_context(Window(fabric, host, self._region))

    def _clear(self, fabric: Fabric) -> Owner | None:
        """Removes a board of ranks that died; returns the owner of another board of this name."""
        owner = None
        for region in fabric.pool.regions():
            if region.tag != self._tag:
                continue
            if is_orphan(region):
                release(region)
            else:
                owner = region.owner
        return owner

    def _find(self, fabric: Fabric, host: HostInfo, end_s: float, stack: ExitStack) -> Window:
        """Finds the board that rank 0 made, or will make."""
        while True:
            for region in fabric.pool.regions():
                if region.tag == self._tag and not is_orphan(region):
                    with suppress(NupaError):  # gone meanwhile
                        window = Window(fabric, host, region)
                        if self._is_open(window):
                            self._region, self.broken = region, ""
                            return stack.enter_context(window)
                        window.close()
            if time.monotonic() > end_s:
                raise RankError(
                    f"{self._what}: rank 0 did not come to {fabric.name!r} in "
                    f"{self.deadline_s:g} s",
                    errno.ETIMEDOUT,
                )
            time.sleep(FIND_S)

    def _is_open(self, window: Window) -> bool:
        """Tells whether rank 0 and this rank have not left it: if so, it is an earlier board."""
        self._window = window
        return all(self.state(rank) <= RankState.JOINED for rank in (0, self.rank))

    def _join(self, host: HostInfo, end_s: float) -> None:
        if self.rank == 0:
            self.store(8, self.size)
            self.store(0, _READY)
        while self.load(0) != _READY:
            if time.monotonic() > end_s:
                raise RankError(f"{self._what}: its board was never ready", errno.ETIMEDOUT)
            time.sleep(FIND_S)
        if self.load(8) != self.size:
            raise LocalError(
                f"{self._what} of {self.size}: rank 0 expects {self.load(8)} ranks", errno.EINVAL
            )
        row = BoardRow(self.rank)
        # The process first claims the row, by its pid.
        if taken := self._atomic(lib.NUPA_WORD_COMPARE_SWAP, row.pid, os.getpid()):
            raise LocalError(
                f"{self._what}: another process has this rank, {say(taken) or f'pid {taken}'}",
                errno.EEXIST,
            )
        self.store(row.host, host.index)
        self.store(row.state, RankState.JOINED)

    def _await_all(self, end_s: float) -> None:
        for rank in range(self.size):
            while self.state(rank) == RankState.ABSENT:
                if time.monotonic() > end_s:
                    missing = [r for r in range(self.size) if self.state(r) == RankState.ABSENT]
                    self.store(BoardRow(self.rank).state, RankState.LEFT)
                    raise RankError(
                        f"{self._what}: rank {', '.join(map(str, missing))} did not come in "
                        f"{self.deadline_s:g} s",
                        errno.ETIMEDOUT,
                    )
                time.sleep(FIND_S)
            pid = self.load(BoardRow(rank).pid)
            if pid != os.getpid():
                try:
                    self._peers[rank] = os.pidfd_open(pid)
                except (OSError, OverflowError):  # no such process, or no process's number
                    self._peers[rank] = -1

    # Words

    def load(self, offset: int) -> int:
        """Returns a word.  RankError: the board is gone."""
        found = self._atomic(lib.NUPA_WORD_LOAD, offset, 0)
        if found == _ONES:
            self.broken = "the board is gone: rank 0 has left, or a link went down"
            raise RankError(f"{self._what}: {self.broken}")
        return found

    def store(self, offset: int, value: int) -> None:
        self._atomic(lib.NUPA_WORD_STORE, offset, value)

    def _atomic(self, operation: int, offset: int, operand: int) -> int:
        window = self._window
        lib.nupa_word_atomic(
            window.pointer, len(window), offset, operation, operand, 0, self._before
        )
        return int(self._before[0])

    def state(self, rank: int) -> int:
        return self.load(BoardRow(rank).state)

    def host(self, rank: int) -> int:
        """Returns the number of the rank's host.  RankError: there is no such host."""
        host = self.load(BoardRow(rank).host)
        with self.reading(rank):
            return self._fabric.hosts[host].index

    # Cards

    def put_card(self, card: dict[str, Any]) -> None:
        """Shows *card* to the other ranks.  LocalError: it is too long."""
        data = json.dumps(card).encode()
        if len(data) > _CARD_BYTES:
            raise LocalError(f"{self._what}: its card has {len(data)} bytes", errno.EMSGSIZE)
        self._window.write(self._card_at(self.rank), data)
        self.store(BoardRow(self.rank).card, len(data))

    def card(self, rank: int) -> dict[str, Any]:
        """Waits for the card of another rank."""
        wait = self.waiting(f"the card of rank {rank}")
        while (size := self.load(BoardRow(rank).card)) == 0:
            wait()
        with self.reading(rank):
            size = min(size, _CARD_BYTES)  # the other process's word
            found: dict[str, Any] = json.loads(self._window.read(self._card_at(rank), size))
            return found

    @contextmanager
    def reading(self, rank: int) -> Iterator[None]:
        """Makes a RankError of what another rank's row or card cannot mean."""
        try:
            yield
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            self._fail(f"the row of rank {rank} on the board is damaged: {error!r}")

    def _card_at(self, rank: int) -> int:
        return HEAD_BYTES + self.size * ROW_BYTES + rank * _CARD_BYTES

    # Waiting

    def barrier(self) -> None:
        """Waits until all ranks have come here as often."""
        self._rounds += 1
        self.store(BoardRow(self.rank).arrived, self._rounds)
        wait = self.waiting("a barrier")
        for rank in range(self.size):
            while self.load(BoardRow(rank).arrived) < self._rounds:
                wait()

    def announce(self, call: int, tag: int) -> None:
        """Says which call this rank makes; check_calls of the others compares it."""
        self.store(BoardRow(self.rank).calls + 8 * (call % 2), tag)

    def check_calls(self, call: int, tag: int) -> None:
        """Checks, after a barrier in the call, that all make this one.

        A rank is at most one call ahead of a rank that checks: so there are two words.
        """
        for rank in range(self.size):
            if self.load(BoardRow(rank).calls + 8 * (call % 2)) != tag:
                self.fail_call(rank)

    def fail_call(self, rank: int) -> NoReturn:
        """Raises RankError: *rank* makes another call than this one."""
        self._fail(
            f"rank {rank} makes another call, or the same with another array, type, root or "
            "algorithm: all ranks make the same calls in the same order"
        )

    def waiting(self, what: str) -> Callable[[], None]:
        """Returns a function to call while *what* has not come: it yields the CPU.

        It raises RankError when another rank is gone, or after the deadline.
        """
        start_s = looked_s = time.monotonic()
        spins = 0

        def wait() -> None:
            nonlocal spins, looked_s
            spins += 1
            if spins < _SPINS:
                if spins % 16 == 0:
                    _yield()
                return
            now_s = time.monotonic()
            if now_s - start_s > _LONG_S:
                time.sleep(_NAP_S)
            else:
                _yield()
            if now_s - looked_s > _LOOK_S:
                looked_s = now_s
                self.look(what)
                if now_s - start_s > self.deadline_s:
                    self._fail(f"{what} did not come in {self.deadline_s:g} s{self._absent()}")

        return wait

    def look(self, what: str) -> None:
        """Raises RankError if another rank failed, died, or left the communicator."""
        for rank in range(self.size):
            if rank == self.rank:
                continue
            state = self.state(rank)
            if state == RankState.FAILED:
                reason = self._window.read(BoardRow(rank).reason, _REASON_BYTES).split(b"\0")[0]
                self._fail(f"{what}: rank {rank} failed: {reason.decode(errors='replace')}")
            if state == RankState.LEFT and not self._leaving:
                self._fail(f"{what}: rank {rank} has left")
            if self._is_dead(rank):
                host = self._fabric.hosts[self.host(rank)].name
                self._fail(
                    f"{what}: rank {rank} (pid {self.load(BoardRow(rank).pid)}, {host}) died"
                )

    def _is_dead(self, rank: int) -> bool:
        pidfd = self._peers.get(rank)
        if pidfd is None:  # a thread of this process
            return False
        if pidfd < 0:
            return True
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        return bool(poller.poll(0))

    def _absent(self) -> str:
        leaving = [r for r in range(self.size) if self.state(r) == RankState.LEAVING]
        return f"; rank {', '.join(map(str, leaving))} made no more calls" if leaving else ""

    def _fail(self, why: str) -> NoReturn:
        self.fail(why)
        raise RankError(f"{self._what}: {why}")

    def fail(self, why: str) -> None:
        """Tells the other ranks that this one has failed."""
        if self.broken:
            return
        self.broken = why
        row = BoardRow(self.rank)
        self._window.write(row.reason, why.encode()[: _REASON_BYTES - 1] + b"\0")
        self.store(row.state, RankState.FAILED)

    # The end

    def leave(self, progress: Callable[[], object]) -> None:
        """Waits until all ranks leave, or one is gone; calls *progress* meanwhile."""
        if self.broken:
            return
        self._leaving = True
        self.store(BoardRow(self.rank).state, RankState.LEAVING)
        wait = self.waiting("the end of the other ranks")
        with suppress(RankError):
            for rank in range(self.size):
                while self.state(rank) < RankState.LEAVING:
                    progress()
                    wait()
        if not self.broken:
            self.store(BoardRow(self.rank).state, RankState.LEFT)

    def close(self) -> None:
        """Unmaps the board, and frees the regions of ranks that died.

        After a failure it waits for them a moment: a rank that is killed ends step by step.
        """
        self._stack.close()
        end_s = time.monotonic() + (CLOSING_S if self.broken and not self._closed else 0)
        self._closed = True
        while self._sweep() and time.monotonic() < end_s:
            time.sleep(FIND_S)

    def _sweep(self) -> bool:
        """Frees regions of ranks that died; returns whether regions of others are left."""
        left = False
        for region in self._fabric.pool.regions():
            if region.id == self.id or region.tag.endswith(self.mark):
                if is_orphan(region):
                    free_board(region)
                else:
                    left = True
        return left

    def _close_peers(self) -> None:
        for pidfd in self._peers.values():
            if pidfd >= 0:
                os.close(pidfd)
        self._peers.clear()


def _yield() -> None:
    """Lets other threads and processes run."""
    time.sleep(0)  # the interpreter
    os.sched_yield()  # the CPU
