# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions: pyverbs' names, and NUPA's bases that say which side is at fault.

    PyverbsError
      PyverbsUserError           the call itself is wrong                      LocalError
      PyverbsRDMAError           a verb was refused; error_code is the errno   LocalError
      CompletionError            a completion's status, by WC.raise_for_status()
        LocalCompletionError                                                   LocalError
        RemoteCompletionError                                                  RemoteError
        FabricCompletionError                                                  FabricError

A failed work request is a completion; raise_for_status() makes an exception of it.
"""

from __future__ import annotations

import errno
import os
from typing import Any, NoReturn

from nupa._engine import ffi
from nupa.base.errors import FabricError, LocalError, NupaError, RemoteError
from nupa.verbs.enums import ibv_wc_status

# Remedies by errno, for verbs without a more specific one.
_REMEDY = {
    errno.EBUSY: "close what still uses it first",
    errno.ENOMEM: "the queue is full, or the device's limit is reached: "
    "poll completions, or compare the request with query_device()",
    errno.EOPNOTSUPP: "NUPA does not have this; docs/verbs.md lists what there is",
}


class PyverbsError(NupaError):
    """The base of all errors of nupa.verbs.  *error_code* is an errno, -1 for none."""

    def __init__(self, msg: str, error_code: int = -1) -> None:
        if error_code != -1:
            msg = f"{msg}. Errno: {error_code}, {os.strerror(abs(error_code))}"
        super().__init__(msg, max(error_code, 0))


class PyverbsRDMAError(PyverbsError, LocalError):
    """A verb was refused.  error_code: its errno, -1 for none."""

    def __init__(self, msg: str, error_code: int = -1, remedy: str = "") -> None:
        super().__init__(msg, error_code)
        self._error_code = error_code
        remedy = remedy or _REMEDY.get(error_code, "")
        if remedy:
            self.args = (f"{self.args[0]}: {remedy}",)

    @property
    def error_code(self) -> int:
        """The errno, -1 for none."""
        return self._error_code


class PyverbsUserError(PyverbsError, LocalError):
    """The call is wrong in itself and did not reach the device."""

    def __init__(self, msg: str) -> None:
        super().__init__(msg)


class CompletionError(PyverbsError):
    """A work request failed.  status: its ibv_wc_status; wr_id: its number."""

    def __init__(self, msg: str, status: int, wr_id: int) -> None:
        super().__init__(msg)
        self.status = status
        self.wr_id = wr_id


class LocalCompletionError(CompletionError, LocalError):
    """The poster is at fault: its memory, its QP, or a QP that was in error already."""


class RemoteCompletionError(CompletionError, RemoteError):
    """The responder refused: its key, its bounds, its access, no receive posted."""


class FabricCompletionError(CompletionError, FabricError):
    """No answer came: the path is down, or the responder is gone or not ready to receive."""


_Status = ibv_wc_status
_REMOTE = {
    _Status.IBV_WC_BAD_RESP_ERR: "the response did not fit the request",
    _Status.IBV_WC_REM_INV_REQ_ERR: "the peer cannot do this request: look at the size of its "
    "receive buffers and at its QP's qp_access_flags",
    _Status.IBV_WC_REM_ACCESS_ERR: "the peer's region does not allow it: compare rkey, "
    "remote address, length and access flags with what the peer registered",
    _Status.IBV_WC_REM_OP_ERR: "the peer could not complete it: look for an error completion there",
    _Status.IBV_WC_RNR_RETRY_EXC_ERR: "the peer has no receive posted: post receives before "
    "sending, or raise rnr_retry (7: for ever)",
    _Status.IBV_WC_REM_INV_RD_REQ_ERR: "the peer cannot serve this read",
    _Status.IBV_WC_REM_ABORT_ERR: "the peer gave up",
}
_FABRIC = {
    _Status.IBV_WC_RETRY_EXC_ERR: "no answer within timeout * retry_cnt: the path is down, "
    "the peer is gone, or its QP is not in RTR or RTS",
    _Status.IBV_WC_RESP_TIMEOUT_ERR: "no answer in time",
    _Status.IBV_WC_FATAL_ERR: "the transport failed",
}
_LOCAL = {
    _Status.IBV_WC_LOC_LEN_ERR: "message and buffers differ in length: compare the receive's "
    "SGEs with what was sent (UD: plus 40 bytes of GRH, at most one MTU)",
    _Status.IBV_WC_LOC_QP_OP_ERR: "this QP cannot do that",
    _Status.IBV_WC_LOC_PROT_ERR: "an SGE is not inside a region of this PD with the access "
    "needed: check addr, length and lkey",
    _Status.IBV_WC_WR_FLUSH_ERR: "its QP went to error before: "
    "the first completion that failed says why",
    _Status.IBV_WC_LOC_ACCESS_ERR: "the local region does not allow it",
}


def completion_error(status: int, wr_id: int, qp_num: int) -> CompletionError:
    """Returns the exception for a failed completion, with its meaning and a remedy."""
    for table, kind in ((_REMOTE, RemoteCompletionError), (_FABRIC, FabricCompletionError)):
        if status in table:
            return kind(_text(status, wr_id, qp_num, table[_Status(status)]), status, wr_id)
    hint = _LOCAL.get(_Status(status), "") if status in _Status._value2member_map_ else ""
    return LocalCompletionError(_text(status, wr_id, qp_num, hint), status, wr_id)


def _text(status: int, wr_id: int, qp_num: int, hint: str) -> str:
    known = status in _Status._value2member_map_
    name = _Status(status).name if known else f"status {status}"
    text = f"Work request {wr_id:#x} of QP {qp_num:#x} ended with {name}"
    return f"{text}: {hint}" if hint else text


def refuse(what: str, rc: int = -1, remedy: str = "") -> NoReturn:
    """Raises PyverbsRDMAError for a verb that failed.

    *what*: what was asked.  *rc*: the verb's result, an errno where positive, else errno is set.
    """
    raise PyverbsRDMAError(what, rc if rc > 0 else ffi.errno, remedy)


def check(rc: int, what: str) -> None:
    """Raises PyverbsRDMAError unless *rc*, a verb's result, is 0; *what* as for refuse()."""
    if rc:
        refuse(what, rc)


def made(c: Any, what: str) -> Any:
    """Returns *c*, which a verb made.  PyverbsRDMAError: it is NULL; *what* as for refuse()."""
    if not c:
        refuse(what)
    return c
