# SPDX-License-Identifier: BSD-3-Clause
"""CXL.cache as tables: requests, snoops, their answers, and which state of a line allows what.

Knows messages and the states before and after them; never who has which line, nor data.  Sections
are those of the CXL Specification 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.cxl.cache.coherence import Mesi

I, S, E, M = Mesi.I, Mesi.S, Mesi.E, Mesi.M  # noqa: E741 - their names


class TransitionError(LocalError):
    """A message that the state of its line, or what was asked, does not allow: nothing changed."""


class Grant(IntEnum):
    """3.2.3.5: the state that a GO gives."""

    S = 1
    E = 2
    I = 3  # noqa: E741 - its name
    ERR = 4
    M = 6


class HostResponse(IntEnum):
    """3.2.4.3.9, of the host to a request."""

    WRITE_PULL = 1
    GO = 4
    GO_WRITE_PULL = 5
    EXT_CMP = 6
    GO_WRITE_PULL_DROP = 8
    FAST_GO_WRITE_PULL = 13
    GO_ERR_WRITE_PULL = 15


class DataDirection(Enum):
    """Which way a line goes with an answer."""

    NONE = ""
    TO_DEVICE = "H2D"
    TO_HOST = "D2H"


class HostAnswer(NamedTuple):
    """The host's *responses*, in their order; *grant* is of the GO among them; the device's line is
    in state *after*."""

    responses: tuple[HostResponse, ...]
    grant: Grant | None
    data: DataDirection
    after: Mesi


def _go(grant: Grant, after: Mesi, data: DataDirection = DataDirection.NONE) -> HostAnswer:
    return HostAnswer((HostResponse.GO,), grant, data, after)


def _pull(
    *responses: HostResponse,
    grant: Grant | None = None,
    data: DataDirection = DataDirection.TO_HOST,
) -> HostAnswer:
    return HostAnswer(responses, grant, data, I)


_READ = DataDirection.TO_DEVICE
_CURRENT = HostAnswer((), None, _READ, I)
_ERROR = _go(Grant.ERR, I)
_READ_ERROR = _go(Grant.ERR, I, _READ)
_PULL_ERROR = _pull(HostResponse.GO_ERR_WRITE_PULL)
_PULL = _pull(HostResponse.GO_WRITE_PULL)
_WEAK = _pull(HostResponse.FAST_GO_WRITE_PULL, HostResponse.EXT_CMP)
_STRONG = _pull(HostResponse.WRITE_PULL, HostResponse.GO, grant=Grant.I)


class CacheRequest(NamedTuple):
    """What a device may ask of the host: 3.2.4.3.1 to 3.2.4.3.15.

    *before*: the states of its line in which it may.  *forward*: how the host answers if the line
    is the device's own memory (3.5.2), "" if it is never asked then.  *is_partial*: of bytes."""

    name: str
    opcode: int
    before: frozenset[Mesi]
    answers: tuple[HostAnswer, ...]
    forward: str = ""
    is_partial: bool = False


def _row(
    opcode: int,
    name: str,
    before: tuple[Mesi, ...],
    *answers: HostAnswer,
    forward: str = "",
    is_partial: bool = False,
) -> CacheRequest:
    return CacheRequest(name, opcode, frozenset(before), answers, forward, is_partial)


_READS = (_go(Grant.I, I, _READ), _READ_ERROR)
_S, _E, _M = (
    _go(grant, after, _READ) for grant, after in ((Grant.S, S), (Grant.E, E), (Grant.M, M))
)
_RD, _WR = "MemRdFwd", "MemWrFwd"

#: By name.
REQUESTS: Mapping[str, CacheRequest] = {
    row.name: row
    for row in (
        _row(1, "RdCurr", (I,), _CURRENT, forward=_RD),
        _row(2, "RdOwn", (I, S), _E, _M, *_READS, forward=_RD),
        _row(3, "RdShared", (I,), _S, *_READS, forward=_RD),
        _row(4, "RdAny", (I,), _S, _E, _M, *_READS, forward=_RD),
        _row(5, "RdOwnNoData", (I, S), _go(Grant.E, E), _ERROR, forward=_RD),
        _row(6, "ItoMWr", (I,), _PULL, _PULL_ERROR, forward=_WR),
        _row(7, "WrCur", (I,), _PULL, _PULL_ERROR, forward=_WR),
        _row(8, "CLFlush", (I,), _go(Grant.I, I), _ERROR, forward=_RD),
        _row(
            9,
            "CleanEvict",
            (E,),
            _PULL,
            _pull(HostResponse.GO_WRITE_PULL_DROP, data=DataDirection.NONE),
        ),
        _row(10, "DirtyEvict", (M,), _PULL, _PULL_ERROR),
        _row(11, "CleanEvictNoData", (S, E), _go(Grant.I, I), _ERROR),
        _row(12, "WOWrInv", (I,), _WEAK, _PULL_ERROR, forward=_WR, is_partial=True),
        _row(13, "WOWrInvF", (I,), _WEAK, _PULL_ERROR, forward=_WR),
        _row(14, "WrInv", (I,), _STRONG, _PULL_ERROR, forward=_WR, is_partial=True),
        _row(16, "CacheFlushed", (I,), _go(Grant.I, I), _ERROR),
    )
}


class HostSnoop(IntEnum):
    """3.2.4.3.16 to .18, of the host to a device."""

    DATA = 1
    INV = 2
    CUR = 3


class SnoopResponse(IntEnum):
    """3.2.4.3.19 to .25."""

    RspSHitSE = 1
    RspIHitI = 4
    RspIHitSE = 5
    RspVHitV = 6
    RspSFwdM = 7
    RspIFwdM = 15
    RspVFwdV = 22


class SnoopOutcome(NamedTuple):
    """How a device answers a snoop: the state *after* it, and whether the line comes with it."""

    response: SnoopResponse
    after: Mesi
    has_data: bool = False


_MISS = (SnoopOutcome(SnoopResponse.RspIHitI, I),)
_TO_S, _TO_I = SnoopOutcome(SnoopResponse.RspSHitSE, S), SnoopOutcome(SnoopResponse.RspIHitSE, I)
_FWD_S = SnoopOutcome(SnoopResponse.RspSFwdM, S, True)
_FWD_I = SnoopOutcome(SnoopResponse.RspIFwdM, I, True)
_KEEP_M = SnoopOutcome(SnoopResponse.RspVFwdV, M, True)

#: What a device may answer, by snoop and the state of its line; the first keeps most.
SNOOPED: Mapping[tuple[HostSnoop, Mesi], tuple[SnoopOutcome, ...]] = {
    (HostSnoop.DATA, I): _MISS,
    (HostSnoop.DATA, S): (_TO_S, _TO_I),
    (HostSnoop.DATA, E): (_TO_S, _TO_I),
    (HostSnoop.DATA, M): (_FWD_S, _FWD_I),
    (HostSnoop.INV, I): _MISS,
    (HostSnoop.INV, S): (_TO_I,),
    (HostSnoop.INV, E): (_TO_I,),
    (HostSnoop.INV, M): (_FWD_I,),
    (HostSnoop.CUR, I): _MISS,
    (HostSnoop.CUR, S): (SnoopOutcome(SnoopResponse.RspVHitV, S), _TO_S, _TO_I),
    (HostSnoop.CUR, E): (SnoopOutcome(SnoopResponse.RspVHitV, E), _TO_S, _TO_I),
    (HostSnoop.CUR, M): (_KEEP_M, _FWD_S, _FWD_I),
}

#: What a device's own loads and stores need no request for, and the state after them.
LOADS: Mapping[Mesi, Mesi] = {S: S, E: E, M: M}
STORES: Mapping[Mesi, Mesi] = {E: M, M: M}


def may_ask(name: str, state: Mesi) -> CacheRequest:
    """The request's row.  TransitionError: no device asks this with its line in *state*."""
    row = REQUESTS.get(name)
    if row is None:
        raise TransitionError(f"CXL.cache has no request {name!r}: {', '.join(REQUESTS)}")
    if state not in row.before:
        states = " or ".join(each.name for each in sorted(row.before))
        raise TransitionError(f"{name} of a line in {state.name}: it has to be in {states}")
    return row


def may_answer(row: CacheRequest, answer: HostAnswer) -> HostAnswer:
    """TransitionError: no host answers *row* so."""
    if answer not in row.answers:
        said = ", ".join(each.name for each in answer.responses) or "data alone"
        grant = "" if answer.grant is None else f" with {answer.grant.name}"
        raise TransitionError(f"{row.name} is answered by {said}{grant}: CXL 3.1 3.2.4.3.9")
    return answer


def may_respond(snoop: HostSnoop, granted: Mesi, outcome: SnoopOutcome) -> SnoopOutcome:
    """TransitionError: a device that was *granted* this state cannot answer *snoop* so.

    It may have dropped the line, and E may have become M, without a word."""
    states = {I: (I,), S: (I, S), E: (I, S, E, M), M: (I, S, E, M)}[granted]
    if not any(outcome in SNOOPED[snoop, state] for state in states):
        raise TransitionError(
            f"{outcome.response.name} to Snp{snoop.name.capitalize()} of a line in {granted.name}"
        )
    return outcome
