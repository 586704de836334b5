# SPDX-License-Identifier: BSD-3-Clause
"""CXL.cache as tables: requests, snoops, their responses, and the states that allow them.

Sections are those of the CXL Specification 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.cxl.cache.coherence import Mesi
from nupa.cxl.cache.tables import D2HReqOpcode, D2HRspOpcode, Grant, H2DReqOpcode, H2DRspOpcode

I, S, E, M = Mesi.I, Mesi.S, Mesi.E, Mesi.M  # noqa: E741 - their names


class TransitionError(LocalError):
    """A message that the state of its line, or the request before it, does not allow; nothing has
    changed."""


class DataDirection(Enum):
    """The direction of the data of an answer."""

    NONE = ""
    TO_DEVICE = "H2D"
    TO_HOST = "D2H"


class HostAnswer(NamedTuple):
    """An answer of the host: its *responses*, in their order.

    *grant* is the state in its GO.  *after* is the state of the device's line afterwards."""

    responses: tuple[H2DRspOpcode, ...]
    grant: Grant | None
    data: DataDirection
    after: Mesi


def _go(grant: Grant, after: Mesi, data: DataDirection = DataDirection.NONE) -> HostAnswer:
    return HostAnswer((H2DRspOpcode.GO,), grant, data, after)


def _pull(
    *responses: H2DRspOpcode,
    grant: Grant | None = None,
    data: DataDirection = DataDirection.TO_HOST,
) -> HostAnswer:
    return HostAnswer(responses, grant, data, I)


_READ = DataDirection.TO_DEVICE
_CURRENT = HostAnswer((), None, _READ, I)
_ERROR = _go(Grant.ERR, I)
_READ_ERROR = _go(Grant.ERR, I, _READ)
_PULL_ERROR = _pull(H2DRspOpcode.GO_ERR_WritePull)
_PULL = _pull(H2DRspOpcode.GO_WritePull)
_WEAK = _pull(H2DRspOpcode.Fast_GO_WritePull, H2DRspOpcode.ExtCmp)
_STRONG = _pull(H2DRspOpcode.WritePull, H2DRspOpcode.GO, grant=Grant.I)


class CacheRequest(NamedTuple):
    """A request of a device to the host: 3.2.4.3.1 to 3.2.4.3.15.

    *before*: the states of the line that allow it.
    *forward*: the host's answer if the line is the device's own memory (3.5.2), "" if such a
    request is never sent.
    *is_partial*: it writes bytes of a line."""

    name: str
    opcode: int
    before: frozenset[Mesi]
    answers: tuple[HostAnswer, ...]
    forward: str = ""
    is_partial: bool = False


def _row(
    opcode: D2HReqOpcode,
    before: tuple[Mesi, ...],
    *answers: HostAnswer,
    forward: str = "",
    is_partial: bool = False,
) -> CacheRequest:
    return CacheRequest(opcode.name, opcode, frozenset(before), answers, forward, is_partial)


_READS = (_go(Grant.I, I, _READ), _READ_ERROR)
_S, _E, _M = (
    _go(grant, after, _READ) for grant, after in ((Grant.S, S), (Grant.E, E), (Grant.M, M))
)
_RD, _WR = "MemRdFwd", "MemWrFwd"

#: By name.
REQUESTS: Mapping[str, CacheRequest] = {
    row.name: row
    for row in (
        _row(D2HReqOpcode.RdCurr, (I,), _CURRENT, forward=_RD),
        _row(D2HReqOpcode.RdOwn, (I, S), _E, _M, *_READS, forward=_RD),
        _row(D2HReqOpcode.RdShared, (I,), _S, *_READS, forward=_RD),
        _row(D2HReqOpcode.RdAny, (I,), _S, _E, _M, *_READS, forward=_RD),
        _row(D2HReqOpcode.RdOwnNoData, (I, S), _go(Grant.E, E), _ERROR, forward=_RD),
        _row(D2HReqOpcode.ItoMWr, (I,), _PULL, _PULL_ERROR, forward=_WR),
        _row(D2HReqOpcode.WrCur, (I,), _PULL, _PULL_ERROR, forward=_WR),
        _row(D2HReqOpcode.CLFlush, (I,), _go(Grant.I, I), _ERROR, forward=_RD),
        _row(
            D2HReqOpcode.CleanEvict,
            (E,),
            _PULL,
            _pull(H2DRspOpcode.GO_WritePull_Drop, data=DataDirection.NONE),
        ),
        _row(D2HReqOpcode.DirtyEvict, (M,), _PULL, _PULL_ERROR),
        _row(D2HReqOpcode.CleanEvictNoData, (S, E), _go(Grant.I, I), _ERROR),
        _row(D2HReqOpcode.WOWrInv, (I,), _WEAK, _PULL_ERROR, forward=_WR, is_partial=True),
        _row(D2HReqOpcode.WOWrInvF, (I,), _WEAK, _PULL_ERROR, forward=_WR),
        _row(D2HReqOpcode.WrInv, (I,), _STRONG, _PULL_ERROR, forward=_WR, is_partial=True),
        _row(D2HReqOpcode.CacheFlushed, (I,), _go(Grant.I, I), _ERROR),
    )
}


class SnoopOutcome(NamedTuple):
    """A device's response to a snoop: the state *after* it, and whether the response has data."""

    response: D2HRspOpcode
    after: Mesi
    has_data: bool = False


_MISS = (SnoopOutcome(D2HRspOpcode.RspIHitI, I),)
_TO_S, _TO_I = SnoopOutcome(D2HRspOpcode.RspSHitSE, S), SnoopOutcome(D2HRspOpcode.RspIHitSE, I)
_FWD_S = SnoopOutcome(D2HRspOpcode.RspSFwdM, S, True)
_FWD_I = SnoopOutcome(D2HRspOpcode.RspIFwdM, I, True)
_KEEP_M = SnoopOutcome(D2HRspOpcode.RspVFwdV, M, True)

#: Allowed responses by snoop and state of the line; the first keeps most.
SNOOPED: Mapping[tuple[H2DReqOpcode, Mesi], tuple[SnoopOutcome, ...]] = {
    (H2DReqOpcode.SnpData, I): _MISS,
    (H2DReqOpcode.SnpData, S): (_TO_S, _TO_I),
    (H2DReqOpcode.SnpData, E): (_TO_S, _TO_I),
    (H2DReqOpcode.SnpData, M): (_FWD_S, _FWD_I),
    (H2DReqOpcode.SnpInv, I): _MISS,
    (H2DReqOpcode.SnpInv, S): (_TO_I,),
    (H2DReqOpcode.SnpInv, E): (_TO_I,),
    (H2DReqOpcode.SnpInv, M): (_FWD_I,),
    (H2DReqOpcode.SnpCur, I): _MISS,
    (H2DReqOpcode.SnpCur, S): (SnoopOutcome(D2HRspOpcode.RspVHitV, S), _TO_S, _TO_I),
    (H2DReqOpcode.SnpCur, E): (SnoopOutcome(D2HRspOpcode.RspVHitV, E), _TO_S, _TO_I),
    (H2DReqOpcode.SnpCur, M): (_KEEP_M, _FWD_S, _FWD_I),
}

#: States in which the device's loads and stores need no request, and the state after them.
LOADS: Mapping[Mesi, Mesi] = {S: S, E: E, M: M}
STORES: Mapping[Mesi, Mesi] = {E: M, M: M}


def may_ask(name: str, state: Mesi) -> CacheRequest:
    """Returns the row of a request.  TransitionError: *state* does not allow it."""
    row = REQUESTS.get(name)
    if row is None:
        raise TransitionError(f"CXL.cache has no request {name!r}: it has {', '.join(REQUESTS)}")
    if state not in row.before:
        states = " or ".join(each.name for each in sorted(row.before))
        raise TransitionError(f"{name} of a line in {state.name}: it has to be in {states}")
    return row


def may_answer(row: CacheRequest, answer: HostAnswer) -> HostAnswer:
    """Returns *answer*.  TransitionError: it is not an answer to *row*."""
    if answer not in row.answers:
        said = ", ".join(each.name for each in answer.responses) or "data alone"
        grant = "" if answer.grant is None else f" with {answer.grant.name}"
        raise TransitionError(f"{said}{grant} does not answer {row.name} (CXL 3.1 3.2.4.3.9)")
    return answer


def may_respond(snoop: H2DReqOpcode, granted: Mesi, outcome: SnoopOutcome) -> SnoopOutcome:
    """Returns *outcome*.  TransitionError: a device that was *granted* this state cannot respond
    so.

    The device may have dropped the line, and E may have become M, without a message."""
    states = {I: (I,), S: (I, S), E: (I, S, E, M), M: (I, S, E, M)}[granted]
    if not any(outcome in SNOOPED[snoop, state] for state in states):
        raise TransitionError(
            f"{outcome.response.name} does not answer {snoop.name} of a line in {granted.name}"
        )
    return outcome
