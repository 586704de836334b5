# SPDX-License-Identifier: BSD-3-Clause
"""One end of `nupa perf`, a process of its own: connects a QP, runs the loops of perf.h.

    python -m nupa.measure.perf_end active|passive --fd N --fabric F --host H --job JSON

The ends agree through the socket *fd*.  The active one prints its results, a JSON object.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import random
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from nupa._engine import ffi, lib
from nupa.base.errors import NupaError
from nupa.core.channel import channels
from nupa.core.mover import Mover
from nupa.fabric import Fabric
from nupa.measure.control import Control, TransferError
from nupa.measure.perf import PerfError, PerfJob, from_json
from nupa.verbs import enums as e
from nupa.verbs.addr import AH, GID, AHAttr, GlobalRoute
from nupa.verbs.base.errors import completion_error
from nupa.verbs.connection import Address, address, connect_to
from nupa.verbs.cq import CQ
from nupa.verbs.device import Context
from nupa.verbs.mr import MR
from nupa.verbs.pd import PD
from nupa.verbs.qp import QP, QPAttr, QPCap, QPInitAttr

_QP_TYPES = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
_ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
_QKEY = 0x11111111
_GRH_BYTES = 40
_PAGE_BYTES = 4096
_WORD = 8
_INLINE_BYTES = 220  # as perftest's latency programs
_WARM_UP = 32  # operations, at most
_RECEIVES_MIN = 512
_SPARE_SENDS = 16  # beside those that are measured
_AGREE_S = 30.0  # for the other end to come to the same point
_TILE_BYTES = 65537  # odd: no page of a message is like the next
_PR_SET_PDEATHSIG = 1


class End:
    """A device, memory (outbox, then inbox), a QP, and the struct that the loops work on."""

    def __init__(
        self, stack: ExitStack, job: PerfJob, *, fabric: str, host: str, mover: str | None
    ) -> None:
        self.job = job
        self._stack = stack
        self._fabric = stack.enter_context(Fabric.open(fabric))
        context = stack.enter_context(Context(fabric=self._fabric, host=host, mover=mover))
        self._pd = stack.enter_context(PD(context))
        self._in_pool = mover == "pool"
        largest = max(size for size, _ in job.runs)
        # Each outstanding atomic has its own word for the original value.
        self._outbox_bytes = _pages(max(largest, _WORD * job.depth))
        self._inbox_bytes = _pages(largest + _GRH_BYTES)
        size = self._outbox_bytes + self._inbox_bytes
        memory: Any = stack.enter_context(self._fabric.alloc(size)) if self._in_pool else size
        self._mr = stack.enter_context(MR(self._pd, memory, _ACCESS))
        sends, self._receives = job.depth + _SPARE_SENDS, max(_RECEIVES_MIN, 2 * job.depth)
        self._cq = stack.enter_context(CQ(context, sends + self._receives))
        self._inline_bytes = _INLINE_BYTES if job.kind == "lat" else 0
        init = QPInitAttr(
            qp_type=_QP_TYPES[job.qp_type],
            scq=self._cq,
            rcq=self._cq,
            cap=QPCap(sends, self._receives, 1, 1, self._inline_bytes),
            sq_sig_all=0,
        )
        attr = QPAttr()
        attr.qkey = _QKEY
        self._qp = stack.enter_context(QP(self._pd, init, attr if job.qp_type == "UD" else None))

    def card(self) -> dict[str, Any]:
        """Returns the QP and the memory of this end, for `connect` of the other."""
        return {
            "address": asdict(address(self._qp)),
            "outbox": self._mr.buf,
            "inbox": self._mr.buf + self._outbox_bytes,
            "rkey": self._mr.rkey,
            "pid": os.getpid(),
        }

    def connect(self, peer: Any) -> None:
        """Brings the QP to RTS and posts all receives; *peer* is the other end's card."""
        job, to = self.job, Address(**peer["address"])
        self._peer_pid = peer["pid"]
        self._c = c = ffi.new("struct nupa_perf *")
        if job.qp_type == "UD":
            route = GlobalRoute(dgid=GID(to.gid), sgid_index=0, hop_limit=64)
            attr = AHAttr(dlid=to.lid, is_global=1, port_num=1, gr=route)
            ah = self._stack.enter_context(AH(self._pd, attr=attr))
            c.ah, c.peer_qpn, c.peer_qkey = ah._c, to.qp_num, _QKEY
        else:
            connect_to(self._qp, to)
        c.qp, c.cq = self._qp._c, self._cq._c
        c.operation = getattr(lib, f"NUPA_PERF_{job.operation.upper()}")
        c.outbox = ffi.cast("uint8_t *", self._mr.buf)
        c.inbox = c.outbox + self._outbox_bytes
        c.lkey = self._mr.lkey
        c.receive_bytes = self._inbox_bytes
        c.peer_addr = peer["outbox" if job.operation == "read" else "inbox"]
        c.peer_rkey = peer["rkey"]
        c.inline_bytes = self._inline_bytes
        c.depth = job.depth
        c.receives = self._receives
        c.stall_ns, c.limit_ns = int(job.stall_s * 1e9), int(job.limit_s * 1e9)
        self._check(lib.nupa_perf_prepare(c))

    @property
    def takes_part(self) -> bool:
        """Whether the passive end has a loop, too."""
        if self.job.kind == "lat":
            return self.job.operation in ("write", "send")
        return bool(lib.nupa_perf_confirms(self._c))

    def set_run(self, size_bytes: int, iterations: int, active: bool) -> None:
        """Sets sizes, fills the outbox with the pattern and the inbox with zeros."""
        self._c.size_bytes, self._c.iterations = size_bytes, iterations
        self._mr.write(_pattern(active, size_bytes))
        ffi.memmove(self._c.inbox, bytes(self._inbox_bytes), self._inbox_bytes)

    def latency(self, active: bool) -> dict[str, float]:
        """Runs the latency loop; returns µs at the active end, nothing at the other."""
        n = int(self._c.iterations)
        ticks = ffi.new("uint64_t[]", n + 1) if active else ffi.NULL
        self._check(lib.nupa_perf_latency(self._c, active, ticks))
        if not active:
            return {}
        s = ffi.new("struct nupa_perf_summary *")
        self._check(lib.nupa_perf_summarise(ticks, n, self._c.tick_ns, self.job.trips, s))
        return {
            "latency_typical_us": s.typical_us,
            "latency_min_us": s.min_us,
            "latency_mean_us": s.mean_us,
            "latency_p99_us": s.p99_us,
            "latency_p99_9_us": s.p99_9_us,
            "latency_max_us": s.max_us,
        }

    def bandwidth(self, active: bool) -> dict[str, float]:
        """Runs the bandwidth loop; returns rates at the active end, nothing at the other."""
        if not active:
            self._check(lib.nupa_perf_sink(self._c))
            return {}
        self._check(lib.nupa_perf_source(self._c))
        count, elapsed_us = int(self._c.iterations), int(self._c.elapsed_ns) / 1e3
        return {
            "bandwidth_mb_per_s": count * int(self._c.size_bytes) / elapsed_us,
            "message_rate_m_per_s": count / elapsed_us,
            "elapsed_s": elapsed_us / 1e6,
        }

    def check_data(self, active: bool) -> None:
        """Raises PerfError if the data that arrived differs from the data sent."""
        job, size = self.job, int(self._c.size_bytes)
        count = int(self._c.iterations)
        if job.operation == "atomic":
            if not active:
                self._compare(count.to_bytes(_WORD, sys.byteorder), 0)
            return
        if active and not (job.operation == "read" or (self.takes_part and job.kind == "lat")):
            return
        if not active and job.operation == "read":
            return
        expected = _pattern(not active, size)
        if job.kind == "lat" and job.operation != "read":
            # The last byte counts the messages.
            expected = expected[:-1] + bytes([count & 0xFF])
        is_datagram = job.qp_type == "UD"
        self._compare(expected, _GRH_BYTES if is_datagram else 0)

    def _compare(self, expected: bytes, offset: int) -> None:
        found = self._mr.read(len(expected), self._outbox_bytes + offset)
        if found != expected:
            at = next(i for i, byte in enumerate(expected) if found[i] != byte)
            raise PerfError(
                f"data is damaged: {expected[at]:#04x} was sent as byte {at} of {len(expected)}, "
                f"{found[at]:#04x} arrived"
            )

    def mover(self) -> str:
        """Returns the mover of bulk data to the other end."""
        if self._in_pool:
            return str(Mover.POOL)
        for channel in channels(self._fabric):
            if (channel.from_pid, channel.to_pid) == (os.getpid(), self._peer_pid):
                return str(channel.mover)
        raise PerfError(f"there is no channel to process {self._peer_pid}")

    def _check(self, rc: int) -> None:
        """Raises PerfError for a negative errno of perf.h."""
        if rc == 0:
            return
        job = self.job
        if rc == -errno.EIO:
            raise completion_error(self._c.status, 0, self._qp.qp_num)
        done = f"{self._c.completed} sent, {self._c.received} received"
        text = {
            errno.ETIMEDOUT: f"nothing moved for {job.stall_s:g} s ({done}): "
            "the other end is stopped or has no CPU, or the path is down",
            errno.ETIME: f"not done after {job.limit_s:g} s ({done}): "
            "ask for fewer --iterations or a smaller --size",
            errno.EBADMSG: f"data is damaged: a message is not the one that was expected ({done})",
        }
        raise PerfError(text.get(-rc) or f"a post was refused: {os.strerror(-rc)} ({done})", -rc)


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES


def _pattern(active: bool, size_bytes: int) -> bytes:
    """Returns the bytes that an end sends."""
    tile = random.Random(1 + active).randbytes(min(_TILE_BYTES, size_bytes))
    return (tile * -(-size_bytes // len(tile)))[:size_bytes]


def _once(
    end: End, control: Control, active: bool, size_bytes: int, iterations: int
) -> dict[str, float]:
    """Takes one measurement and checks its data."""
    end.set_run(size_bytes, iterations, active)
    control.meet("ready")
    found: dict[str, float] = {}
    if active or end.takes_part:
        found = end.latency(active) if end.job.kind == "lat" else end.bandwidth(active)
    control.meet("done")
    end.check_data(active)
    # The next run overwrites the data, so both ends check it first.
    control.meet("checked")
    return {"size_bytes": size_bytes, "iterations": iterations, **found}


def _run(end: End, control: Control, active: bool) -> dict[str, Any]:
    control.put(end.card())
    end.connect(control.get())
    results = []
    for size_bytes, iterations in end.job.runs:
        _once(end, control, active, size_bytes, min(iterations, _WARM_UP))
        results.append(_once(end, control, active, size_bytes, iterations))
    return {"mover": end.mover() if active else "", "results": results}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="nupa.measure.perf_end", description=__doc__)
    parser.add_argument("role", choices=["active", "passive"])
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--fabric", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--mover")
    parser.add_argument("--job", type=from_json, required=True)
    args = parser.parse_args(argv)
    # Without the parent there is no reader of the results.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    active = args.role == "active"
    try:
        with socket.socket(fileno=args.fd) as connection, ExitStack() as stack:
            # The passive end may only wait for the active one.
            connection.settimeout(_AGREE_S + args.job.limit_s)
            control = Control(connection)
            end = End(stack, args.job, fabric=args.fabric, host=args.host, mover=args.mover)
            found = _run(end, control, active)
            # The exit of one end would be a peer's death to the other.
            control.meet("end")
        if active:
            print(json.dumps(found))
    except (TransferError, NupaError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
