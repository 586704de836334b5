# SPDX-License-Identifier: BSD-3-Clause
"""The table of QP transitions against one written anew from IBTA 11.2.5.2 and man ibv_modify_qp."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
from enum import IntEnum, IntFlag
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

FACES = Path(os.environ.get("NUPA_TEST_FACES", Path(__file__).parents[4] / "build/dev/tests"))
check_transition = ctypes.CDLL(str(FACES / "libmodel_face.so")).face_qp_check_transition


class Type(IntEnum):
    RC = 2
    UC = 3
    UD = 4


class State(IntEnum):
    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class Attr(IntFlag):
    NONE = 0
    STATE = 1 << 0
    CUR_STATE = 1 << 1
    EN_SQD_ASYNC_NOTIFY = 1 << 2
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    QKEY = 1 << 6
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_QP_RD_ATOMIC = 1 << 13
    ALT_PATH = 1 << 14
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    PATH_MIG_STATE = 1 << 18
    CAP = 1 << 19
    DEST_QPN = 1 << 20
    RATE_LIMIT = 1 << 25


ALL_ATTRS = [attr for attr in Attr if attr is not Attr.STATE]
PAIRS = list(itertools.product(State, State))
CONNECTED = (Type.RC, Type.UC)


def required(kind: Type, start: State, end: State) -> Attr | None:
    """Returns the required attributes; None: there is no such transition."""
    if end in (State.RESET, State.ERR):
        return Attr.NONE
    match start, end:
        case State.RESET, State.INIT:
            own = Attr.ACCESS_FLAGS if kind in CONNECTED else Attr.QKEY
            return Attr.PKEY_INDEX | Attr.PORT | own
        case State.INIT, State.RTR:
            needed = Attr.NONE
            if kind in CONNECTED:
                needed |= Attr.AV | Attr.PATH_MTU | Attr.DEST_QPN | Attr.RQ_PSN
            if kind is Type.RC:
                needed |= Attr.MAX_DEST_RD_ATOMIC | Attr.MIN_RNR_TIMER
            return needed
        case State.RTR, State.RTS:
            needed = Attr.SQ_PSN
            if kind is Type.RC:
                needed |= Attr.TIMEOUT | Attr.RETRY_CNT | Attr.RNR_RETRY | Attr.MAX_QP_RD_ATOMIC
            return needed
        case State.SQE, State.RTS:
            return None if kind is Type.RC else Attr.NONE
        case (
            (State.INIT, State.INIT)
            | (State.RTS, State.RTS)
            | (State.RTS, State.SQD)
            | (State.SQD, State.SQD)
            | (State.SQD, State.RTS)
        ):
            return Attr.NONE
    return None


def optional(kind: Type, start: State, end: State) -> Attr:
    """Returns the optional attributes."""
    path = Attr.ALT_PATH | Attr.ACCESS_FLAGS
    match start, end:
        case State.INIT, State.INIT:
            own = Attr.ACCESS_FLAGS if kind in CONNECTED else Attr.QKEY
            return Attr.PKEY_INDEX | Attr.PORT | own
        case State.INIT, State.RTR:
            return Attr.PKEY_INDEX | (path if kind in CONNECTED else Attr.QKEY)
        case ((State.RTR | State.RTS | State.SQD), State.RTS):
            if kind is Type.UD:
                return Attr.CUR_STATE | Attr.QKEY
            timer = Attr.MIN_RNR_TIMER if kind is Type.RC else Attr.NONE
            return Attr.CUR_STATE | path | Attr.PATH_MIG_STATE | timer
        case State.SQE, State.RTS:
            return Attr.CUR_STATE | (Attr.QKEY if kind is Type.UD else Attr.ACCESS_FLAGS)
        case State.RTS, State.SQD:
            return Attr.EN_SQD_ASYNC_NOTIFY
        case State.SQD, State.SQD:
            if kind is Type.UD:
                return Attr.PKEY_INDEX | Attr.QKEY
            may = Attr.AV | path | Attr.PKEY_INDEX | Attr.PATH_MIG_STATE
            if kind is Type.RC:
                may |= Attr.PORT | Attr.TIMEOUT | Attr.RETRY_CNT | Attr.RNR_RETRY
                may |= Attr.MAX_QP_RD_ATOMIC | Attr.MAX_DEST_RD_ATOMIC | Attr.MIN_RNR_TIMER
            return may
    return Attr.NONE


def expected(kind: Type, start: State, end: State, mask: Attr) -> int:
    needed = required(kind, start, end)
    mask &= ~Attr.STATE
    if needed is None or mask & needed != needed:
        return errno.EINVAL
    return errno.EINVAL if mask & ~(needed | optional(kind, start, end)) else 0


@pytest.mark.parametrize("kind", Type)
def test_every_transition_is_allowed_or_refused_as_the_specification_says(kind: Type) -> None:
    for start, end in PAIRS:
        needed = required(kind, start, end)
        mask = Attr.STATE | (needed or Attr.NONE)
        wanted = 0 if needed is not None else errno.EINVAL
        assert check_transition(kind, start, end, mask) == wanted, (start, end)


@pytest.mark.parametrize("kind", Type)
def test_one_attribute_too_many_or_too_few_is_judged_as_the_specification_says(
    kind: Type,
) -> None:
    for start, end in PAIRS:
        base = Attr.STATE | (required(kind, start, end) or Attr.NONE)
        for attr in ALL_ATTRS:
            mask = base ^ attr
            wanted = expected(kind, start, end, mask)
            assert check_transition(kind, start, end, mask) == wanted, (start, end, attr)


@settings(max_examples=2000, deadline=None)
@given(
    kind=st.sampled_from(Type),
    pair=st.sampled_from(PAIRS),
    base=st.sampled_from(["none", "required", "both"]),
    flips=st.sets(st.sampled_from(ALL_ATTRS), max_size=4),
)
def test_any_mask_is_judged_as_the_specification_says(
    kind: Type, pair: tuple[State, State], base: str, flips: set[Attr]
) -> None:
    mask = Attr.STATE
    if base != "none":
        mask |= required(kind, *pair) or Attr.NONE
    if base == "both":
        mask |= optional(kind, *pair)
    for attr in flips:
        mask ^= attr
    assert check_transition(kind, *pair, mask) == expected(kind, *pair, mask)
