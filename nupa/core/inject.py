# SPDX-License-Identifier: BSD-3-Clause
"""Injection: packets made by hand enter the fabric at a host's port.

`nupa.packet.scapy.inject` takes scapy's packets.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.base.errors import LocalError, RemoteError
from nupa.core.place import find_port
from nupa.core.segment import WHY_BYTES, HostInfo, check, text

if TYPE_CHECKING:
    from typing import Self

    from nupa.core.open_fabric import OpenFabric

#: How long to wait for the process that owns the QP, in seconds.
TIMEOUT_S = 1.0
_NO_PSN = 0xFFFFFFFF
_SLOT_SHIFT = 16  # in a QP's number: csrc/segment/layout/limits.h
_REMOTE_ERRNOS = {
    errno.ETIMEDOUT: "no verdict came: the process that owns the QP is stopped, or a fault holds "
    "the packet back (it may still be executed)",
    errno.ENOTCONN: "the process that owns the QP has closed the channel to us",
    errno.EAGAIN: "the process that owns the QP has not taken the packets before this one",
}


class Outcome(IntEnum):
    """`enum nupa_inject_verdict`."""

    EXECUTED = lib.NUPA_INJECT_EXECUTED
    NAKED = lib.NUPA_INJECT_NAKED
    DROPPED = lib.NUPA_INJECT_DROPPED


class Reason(IntEnum):
    """Why a packet was dropped: `enum nupa_inject_reason`.

    >>> Reason.PKEY.what
    'its P_Key is not one of the port'
    """

    what: str

    NONE = lib.NUPA_INJECT_NONE, "it was not dropped"
    MALFORMED = (
        lib.NUPA_INJECT_MALFORMED,
        "it is not a RoCE v2 packet, is cut off, or its lengths contradict each other",
    )
    ICRC = lib.NUPA_INJECT_ICRC, "its ICRC is wrong"
    VERSION = lib.NUPA_INJECT_VERSION, "the version in its BTH is not 0"
    NO_HOST = lib.NUPA_INJECT_NO_HOST, "no host has the address that it goes to"
    NO_QP = lib.NUPA_INJECT_NO_QP, "there is no such QP on that host, or its state takes nothing"
    OPCODE = lib.NUPA_INJECT_OPCODE, "its opcode is of another type of QP, or reserved"
    PKEY = lib.NUPA_INJECT_PKEY, "its P_Key is not one of the port"
    SOURCE = lib.NUPA_INJECT_SOURCE, "it comes from another host than the QP's partner"
    QKEY = lib.NUPA_INJECT_QKEY, "its Q_Key is not that of the QP"
    PSN = lib.NUPA_INJECT_PSN, "its PSN leaves a gap"
    DUPLICATE = lib.NUPA_INJECT_DUPLICATE, "it is a duplicate: answered again, not executed again"
    SEQUENCE = lib.NUPA_INJECT_SEQUENCE, "it does not go on with the message before it"
    LENGTH = lib.NUPA_INJECT_LENGTH, "its length is not what opcode, MTU and RETH say"
    ACCESS = lib.NUPA_INJECT_ACCESS, "its key, its bounds or the access are not granted"
    NO_RECEIVE = lib.NUPA_INJECT_NO_RECEIVE, "no receive was posted for it"
    RECEIVE = lib.NUPA_INJECT_RECEIVE, "the receive that it found is too short, or has no memory"
    UNASKED = lib.NUPA_INJECT_UNASKED, "it answers nothing that was asked"
    UNSUPPORTED = lib.NUPA_INJECT_UNSUPPORTED, "MADs, multicast and CNPs are not taken"
    PATH = lib.NUPA_INJECT_PATH, "a port on its way is down"
    FAULT = lib.NUPA_INJECT_FAULT, "a fault on its way took it"

    def __new__(cls, value: int, what: str) -> Self:
        reason = int.__new__(cls, value)
        reason._value_ = value
        reason.what = what
        return reason


_REASONS = {int(reason): reason for reason in Reason}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an injected packet.  An answer (ACK, response) was executed if it was
    accepted."""

    outcome: Outcome
    reason: Reason  #: NONE unless it was dropped
    syndrome: int  #: of the AETH of a NAK; else 0
    expected_psn: int | None  #: of the QP, before; None: UD, no such QP, or not asked

    @property
    def executed(self) -> bool:
        return self.outcome is Outcome.EXECUTED

    @property
    def naked(self) -> bool:
        return self.outcome is Outcome.NAKED

    @property
    def dropped(self) -> bool:
        return self.outcome is Outcome.DROPPED

    def __str__(self) -> str:
        if self.executed:
            return "executed"
        return f"NAK {self.syndrome:#04x}" if self.naked else f"dropped: {self.reason.what}"


def host_at(fabric: OpenFabric, port: Any) -> HostInfo:
    """Returns the host whose packets enter at *port*, a host's port or the other end of its link.

    port: any name of a port, a host or a link, a host's number, or an object with a `name`.
    LocalError: no such port (ENOENT), or it lies between switches (EINVAL).
    """
    ports, hosts = fabric.ports, fabric.hosts
    at = find_port(ports, hosts, getattr(port, "name", port))
    for end in (at, ports[at.peer]):
        if not end.is_switch:
            return hosts[end.node]
    raise LocalError(
        f"packets enter at a host's port or at the other end of its link: {at.name} lies between "
        "switches",
        errno.EINVAL,
    )


class Injector(Closing):
    """Injects packets at *port*, by an attachment of its own to the port's host; a context manager.

    fabric, port: as host_at() takes them.  LocalError: no such port; FabricError: no slot is free
    (EUSERS), no room in /dev/shm (ENOSPC).
    """

    def __init__(self, fabric: OpenFabric, port: Any) -> None:
        self._handle: Any = None
        self.fabric = fabric
        self.host = host_at(fabric, port)
        why = ffi.new("char[]", WHY_BYTES)
        self._handle = lib.nupa_injector_open(fabric.handle, self.host.index, why, WHY_BYTES)
        if not self._handle:
            self._handle = None
            check(-ffi.errno, f"cannot inject at {self.host.name}", text(why))

    def close(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            lib.nupa_injector_close(handle)

    @property
    def max_bytes(self) -> int:
        """The longest frame, in bytes."""
        return int(lib.nupa_injector_max_bytes(self._open))

    @property
    def _open(self) -> Any:
        if self._handle is None:
            raise LocalError("the injector is closed: make another one", errno.EBADF)
        return self._handle

    def send(self, frame: bytes, timeout: float = TIMEOUT_S) -> Verdict:
        """Injects an Ethernet frame of RoCE v2 and returns its verdict.  timeout: seconds.

        LocalError: the frame is longer than max_bytes (EMSGSIZE); RemoteError: no verdict came
        (ETIMEDOUT, ENOTCONN, EAGAIN); FabricError: no room for a channel (ENOSPC).
        """
        if len(frame) > self.max_bytes:
            raise LocalError(
                f"a frame of {len(frame)} bytes: at most {self.max_bytes} are taken", errno.EMSGSIZE
            )
        out = ffi.new("struct nupa_inject_result *")
        rc = lib.nupa_inject_frame(self._open, frame, len(frame), _ns(timeout), out)
        _check(rc, "cannot inject a packet")
        return _verdict(out)

    def expected_psn(self, qpn: int, timeout: float = TIMEOUT_S) -> int:
        """Returns the PSN that a connected QP expects next.

        LocalError: no such QP, or it expects none in its state (ENOENT); other errors as send().
        """
        out = ffi.new("struct nupa_inject_result *")
        rc = lib.nupa_inject_ask(self._open, qpn, _ns(timeout), out)
        _check(rc, f"cannot ask for the PSN of QP {qpn:#x}")
        psn = _verdict(out).expected_psn
        if psn is None:
            raise LocalError(
                f"QP {qpn:#x} expects no PSN: RC and UC have one, from RTR on", errno.ENOENT
            )
        return psn


def expected_psn(fabric: OpenFabric, qpn: int, timeout: float = TIMEOUT_S) -> int:
    """Asks once: Injector.expected_psn."""
    with Injector(fabric, owner_host(fabric, qpn).name) as injector:
        return injector.expected_psn(qpn, timeout)


def owner_host(fabric: OpenFabric, qpn: int) -> HostInfo:
    """Returns the host of the process that owns the QP.  LocalError: no such process (ENOENT)."""
    for process in fabric.processes():
        if process.slot == qpn >> _SLOT_SHIFT:
            return fabric.hosts[process.host]
    raise LocalError(f"no process of {fabric.name!r} has the QP {qpn:#x}", errno.ENOENT)


def _ns(seconds: float) -> int:
    return max(int(seconds * 1e9), 0)


def _check(rc: int, what: str) -> None:
    if -rc in _REMOTE_ERRNOS:
        raise RemoteError(f"{what}: {_REMOTE_ERRNOS[-rc]}", -rc)
    check(rc, what)


def _verdict(out: Any) -> Verdict:
    return Verdict(
        Outcome(out.verdict),
        _REASONS[out.reason],
        out.syndrome,
        None if out.expected_psn == _NO_PSN else out.expected_psn,
    )
