# SPDX-License-Identifier: BSD-3-Clause
"""Communicators: ranks of processes that meet by a name on a fabric and make collective calls."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, get_args

from nupa.base.closing import Closing
from nupa.base.errors import LocalError, NupaError
from nupa.collectives.board import Board
from nupa.collectives.elements import Elements, elements, numpy
from nupa.collectives.rank import RankError
from nupa.collectives.ring import Ring
from nupa.collectives.switch import SwitchReduction, refusal
from nupa.collectives.transport import CallMoves, RankTransport
from nupa.collectives.tree import Tree
from nupa.collectives.windows import Windows
from nupa.fabric import Fabric
from nupa.memory import reduction

if TYPE_CHECKING:
    from nupa.collectives.elements import Array
    from nupa.core.segment import HostInfo

Algorithm = Literal["ring", "tree", "in-network"]
Over = Literal["verbs", "windows"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
OVERS: tuple[Over, ...] = get_args(Over)
DEADLINE_S = 30.0
#: Arrays up to this size go by the tree, unless an algorithm is asked for: few steps count more
#: than few bytes.
TREE_MOST_BYTES = 16 << 10


class Communicator(Closing):
    """Rank *rank* of *size* ranks that have met by *name* on a fabric.

    fabric: an open one, or a name; None: as Fabric.open().  host: this rank's; None: that of `nupa
    run`, else the host of the rank's number (modulo the number of hosts).  over: "verbs" (RC queue
    pairs) or "windows" (loads and stores), for rings and trees.

    All ranks make the same calls in the same order.  An array is a contiguous NumPy array of
    float16, float32, float64, int32, int64, uint32, uint64 or bfloat16 (ml_dtypes; or uint16 with
    type_="bf16").  Operators: add, min, max; for integers also and, or, xor.  algorithm None:
    in-network where the ranks can be a group (distinct hosts, 48 at most), else tree for small
    arrays and ring for others.

    LocalError: a wrong argument, before anything was sent.  RankError: another rank died, failed,
    made another call, or was not there for *deadline_s*.

    >>> import numpy
    >>> with Communicator("one", 0, 1, fabric=Fabric(hosts=1)) as ranks:
    ...     ranks.all_reduce(numpy.ones(3, "f4"))
    array([1., 1., 1.], dtype=float32)
    """

    def __init__(
        self,
        name: str,
        rank: int,
        size: int,
        *,
        fabric: Fabric | str | None = None,
        host: str | int | None = None,
        over: Over = "verbs",
        deadline_s: float = DEADLINE_S,
    ) -> None:
        numpy()
        if over not in OVERS:
            raise LocalError(f"over {over!r}: choose {' or '.join(OVERS)}", errno.EINVAL)
        self.name, self.rank, self.size, self.over = name, rank, size, over
        self._calls = 0
        self._switch: SwitchReduction | None = None
        self._opened: RankTransport | None = None
        with ExitStack() as stack:
            if not isinstance(fabric, Fabric):
                fabric = stack.enter_context(Fabric.open(fabric))
            self.fabric = fabric
            self.host: HostInfo = fabric.host(_host(fabric, rank, host))
            board = Board(fabric, self.host, name, rank, size, deadline_s)
            self._board = stack.enter_context(board)
            self._refusal = refusal(board)
            self._inner = stack.enter_context(ExitStack())
            self._stack = stack.pop_all()

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}, {self.name!r} on {self.fabric.name}>"

    # Calls

    def all_reduce(
        self,
        array: Array,
        op: str = "add",
        *,
        out: Array | None = None,
        algorithm: Algorithm | None = None,
        type_: str | None = None,
    ) -> Array:
        """Reduces the arrays of all ranks to *out* at each (None: a new array; *array*: in
        place)."""
        if out is None:
            out = _new(array, None)
        given, result = self._two("all_reduce", array, out, type_, 1, 1)
        call = self._call("all_reduce", result, algorithm, op)
        _copy(given, result)
        if result.count:
            self._run(call, lambda way: way.all_reduce(result, op))
        return out

    def reduce_scatter(
        self,
        array: Array,
        op: str = "add",
        *,
        out: Array | None = None,
        algorithm: Algorithm | None = None,
        type_: str | None = None,
    ) -> Array:
        """Reduces the arrays of all ranks; rank r gets the r-th of *size* equal parts in *out*."""
        what = "reduce_scatter"
        count = getattr(array, "size", 0)
        if count % self.size:
            raise LocalError(
                f"{what}: {count} elements: give a multiple of the {self.size} ranks",
                errno.EINVAL,
            )
        if out is None:
            out = _new(array, count // self.size)
        given, result = self._two(what, array, out, type_, self.size, 1)
        call = self._call(what, given, algorithm, op)
        work = given.like()
        _copy(given, work)
        parts = work.split(self.size)
        if work.count:
            self._run(call, lambda way: way.reduce_scatter(parts, op))
        _copy(parts[self.rank], result)
        return out

    def all_gather(
        self,
        array: Array,
        *,
        out: Array | None = None,
        algorithm: Algorithm | None = None,
        type_: str | None = None,
    ) -> Array:
        """Copies the arrays of all ranks, one after the other, to *out* at each."""
        if out is None:
            out = _new(array, getattr(array, "size", 0) * self.size)
        given, result = self._two("all_gather", array, out, type_, 1, self.size)
        call = self._call("all_gather", result, algorithm)
        parts = result.split(self.size)
        _copy(given, parts[self.rank])
        if result.count:
            self._run(call, lambda way: way.all_gather(parts))
        return out

    def broadcast(
        self,
        array: Array,
        root: int = 0,
        *,
        algorithm: Algorithm | None = None,
        type_: str | None = None,
    ) -> Array:
        """Copies *array* of rank *root* to *array* of each rank, and returns it."""
        if not 0 <= root < self.size:
            raise LocalError(f"root {root}: ranks are 0 to {self.size - 1}", errno.EINVAL)
        own = elements(array, type_, writable=True, what="broadcast")
        call = self._call("broadcast", own, algorithm, root=root)
        if own.count:
            self._run(call, lambda way: way.broadcast(own, root))
        return array

    def barrier(self, *, algorithm: Algorithm | None = None) -> None:
        """Returns when all ranks have called it."""
        token = elements(numpy().zeros(1, "u4"), None, writable=True, what="barrier")
        call = self._call("barrier", token, algorithm)
        self._run(
            call, lambda w: w.barrier() if isinstance(w, SwitchReduction) else w.barrier(token)
        )

    def choose(self, size_bytes: int) -> Algorithm:
        """Returns the algorithm of arrays of that size, where none is asked for."""
        if not self._refusal:
            return "in-network"
        return "tree" if size_bytes <= TREE_MOST_BYTES else "ring"

    # One call

    def _two(
        self, what: str, array: Array, out: Array, type_: str | None, of: int, to: int
    ) -> tuple[Elements, Elements]:
        """Returns input and output, of which *of* parts of the one are *to* of the other."""
        given = elements(array, type_, writable=False, what=what)
        result = elements(out, type_, writable=True, what=what)
        if given.type_ != result.type_ or given.count * to != result.count * of:
            raise LocalError(
                f"{what}: {given.count} x {given.type_} into {result.count} x {result.type_}: "
                f"{self.size} ranks need {given.count * to // of} x {given.type_}",
                errno.EINVAL,
            )
        return given, result

    def _call(
        self, what: str, own: Elements, algorithm: str | None, op: str = "", root: int = 0
    ) -> tuple[str, str, int]:
        """Checks a call; returns its name, its algorithm and its tag, which other calls lack."""
        if op:
            reduction.numbers(own.type_, op)
        if algorithm is not None and algorithm not in ALGORITHMS:
            raise LocalError(
                f"{what}: no algorithm {algorithm!r}: choose {', '.join(ALGORITHMS)}", errno.EINVAL
            )
        if algorithm == "in-network" and self._refusal:
            raise LocalError(
                f"{what}: in-network: {self._refusal}: use ring or tree", errno.EOPNOTSUPP
            )
        if self._board.broken:
            raise RankError(f"{what}: this communicator has failed: {self._board.broken}")
        algorithm = algorithm or self.choose(len(own.octets))
        self._calls += 1
        said = f"{self._calls} {what} {own.count} {own.type_} {op} {root} {algorithm}"
        return what, algorithm, zlib.crc32(said.encode())

    def _run(self, call: tuple[str, str, int], work: Callable[[Any], None]) -> None:
        what, algorithm, tag = call
        if self.size == 1:
            return
        try:
            if algorithm == "in-network":
                switch = self._in_network()
                switch.begin(tag)
                work(switch)
                return
            moves = CallMoves(self._transport(), self._board, what, tag)
            work((Ring if algorithm == "ring" else Tree)(moves, self.rank, self.size))
            moves.flush()
        except NupaError as error:
            if not isinstance(error, RankError):
                # A rank that died says more than a lost window.  Others leave once this one fails.
                self._board.look(what)
            self._board.fail(f"{what}: {error}")
            raise

    def _transport(self) -> RankTransport:
        if self._opened is None:
            from nupa.collectives.queues import Queues

            ends: tuple[Fabric, HostInfo, Board] = (self.fabric, self.host, self._board)
            opened = Queues(*ends) if self.over == "verbs" else Windows(*ends)
            self._inner.callback(opened.close)
            self._opened = opened
        return self._opened

    def _in_network(self) -> SwitchReduction:
        if self._switch is None:
            self._switch = self._inner.enter_context(
                SwitchReduction(self.fabric, self.host, self._board)
            )
        return self._switch

    # The end

    def close(self) -> None:
        """Waits until all ranks close, at most for the deadline.  A second call does nothing."""
        self._board.leave(self._progress)
        self._stack.close()

    def __exit__(self, *raised: object) -> None:
        error = raised[1]
        if error is not None:
            self._board.fail(str(error) or type(error).__name__)
        self.close()

    def _progress(self) -> None:
        if self._opened is not None:
            self._opened.progress()


def _host(fabric: Fabric, rank: int, asked: str | int | None) -> str | int:
    if asked is not None:
        return asked
    if os.environ.get("NUPA_FABRIC") == fabric.path and os.environ.get("NUPA_HOST"):
        return os.environ["NUPA_HOST"]
    return rank % len(fabric.hosts)


def _new(array: Array, count: int | None) -> Array:
    """Returns a new array for a result: of *count* elements, or None: as *array*."""
    np = numpy()
    if not isinstance(array, np.ndarray):
        return array  # `elements` refuses it
    found: Array = np.empty_like(array) if count is None else np.empty(count, array.dtype)
    return found


def _copy(source: Elements, target: Elements) -> None:
    if source.octets.ctypes.data != target.octets.ctypes.data:
        target.octets[:] = source.octets
