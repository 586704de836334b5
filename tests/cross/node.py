# SPDX-License-Identifier: BSD-3-Clause
"""What a peer process can do.  Each public method of Node is a command; peer.py sends them."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import random
import select
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nupa.fabric import Fabric
from nupa.verbs import (
    AH,
    CQ,
    GID,
    MR,
    PD,
    QP,
    SGE,
    AHAttr,
    Address,
    Context,
    GlobalRoute,
    PyverbsRDMAError,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    address,
    connect_to,
    get_device_list,
)
from nupa.verbs import enums as e

ALL_ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
OPCODES = {
    "send": e.IBV_WR_SEND,
    "send_imm": e.IBV_WR_SEND_WITH_IMM,
    "send_inv": e.IBV_WR_SEND_WITH_INV,
    "write": e.IBV_WR_RDMA_WRITE,
    "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
    "cas": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "faa": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
TYPES = {"rc": e.IBV_QPT_RC, "uc": e.IBV_QPT_UC, "ud": e.IBV_QPT_UD}
QKEY = 0x1234567
GRH_BYTES = 40
WAIT_S = 10.0  # a deadline, far beyond what anything here takes
WINDOW = 16  # messages under way in a stream
SELF_BYTES = 4096
# Opens its device, says its pid, and waits for a signal.
STAY = """
import os, signal
from nupa.verbs import Context, PD, MR
context = Context(name="nupa_rdma0")
mr = MR(PD(context), 1 << 20, 7)
os.write(1, b"%d\\n" % os.getpid())
signal.pause()
"""


@dataclass(frozen=True)
class Region:
    """A region of some peer: its index there, and what a work request says of it."""

    index: int
    addr: int
    rkey: int
    length: int


@dataclass(frozen=True)
class Done:
    """A completion; status and opcode without their IBV_WC_."""

    wr_id: int
    status: str
    opcode: str
    byte_len: int
    imm: int
    qp_num: int


def pattern(seed: int, length: int) -> bytes:
    """*length* bytes that follow from *seed*."""
    return random.Random(seed).randbytes(length)


def message(sequence: int, length: int) -> bytes:
    """A counted message of *length* bytes (8 or more): its number, and bytes that follow from it."""
    word = struct.pack("<Q", sequence * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
    body = word * (length // 8)
    return struct.pack("<Q", sequence) + body[: length - 8]


class Node:
    """State of one peer process.  *note* tells the test something before the command has ended;
    *stopped* says whether the test wants the command to end."""

    def __init__(self, note: Callable[[object], None], stopped: Callable[[], bool]) -> None:
        self._note = note
        self._stopped = stopped
        self._fabrics: list[Fabric] = []
        self._contexts: list[Context] = []
        self._pds: list[PD] = []
        self._cqs: list[CQ] = []
        self._qps: list[QP] = []
        self._mrs: list[MR] = []
        self._ahs: list[AH] = []
        self._started: list[tuple[subprocess.Popen[bytes], int]] = []

    # --- the fabric ---------------------------------------------------------------------------

    def make_fabric(self, name: str, hosts: int = 2, **segment: int) -> str:
        """A named fabric, *segment*: sizes other than the defaults; its path."""
        from nupa.fabric.topology import SegmentConfig, star

        topology = star(hosts)
        topology.segment = SegmentConfig(**segment)
        with Fabric.create(name, topology) as fabric:
            return fabric.path

    def open_fabric(self, name: str) -> str:
        with Fabric.open(name) as fabric:
            return fabric.path

    def attach(
        self, fabric: str = "cross", host: int | str | None = None, mover: str | None = None
    ) -> int:
        """Attaches to a host; the slot.  Makes a PD, too."""
        self._fabrics.append(Fabric.open(fabric))
        self._contexts.append(Context(fabric=self._fabrics[-1], host=host, mover=mover))
        self._pds.append(PD(self._contexts[-1]))
        return self._contexts[-1].slot

    def make_pd(self) -> int:
        self._pds.append(PD(self._contexts[-1]))
        return len(self._pds) - 1

    def leave(self) -> None:
        """Closes everything, in an orderly way."""
        for context in self._contexts:
            context.close()
        for fabric in self._fabrics:
            fabric.close()
        self.__init__(self._note, self._stopped)  # type: ignore[misc]

    def port_state(self) -> str:
        return str(e.ibv_port_state(self._contexts[-1].query_port(1).state).name)

    def event(self, timeout: float = WAIT_S) -> str:
        """The next asynchronous event, without IBV_EVENT_."""
        with self._contexts[-1].get_async_event(timeout) as event:
            return event.event_type.name.removeprefix("IBV_EVENT_")

    def no_event(self) -> bool:
        with contextlib.suppress(TimeoutError):
            self.event(0)
            return False
        return True

    # --- memory -------------------------------------------------------------------------------

    def register(
        self, length: int, access: int = ALL_ACCESS, pd: int = -1, pool: bool = False
    ) -> Region:
        memory: Any = self._fabrics[-1].alloc(length) if pool else length
        mr = MR(self._pds[pd], memory, access)
        self._mrs.append(mr)
        return Region(len(self._mrs) - 1, mr.buf, mr.rkey, mr.length)

    def register_part(self, region: int, offset: int, length: int, access: int) -> Region:
        """A second region over a part of another one's memory."""
        mr = MR(self._pds[-1], length, access, address=self._mrs[region].buf + offset)
        self._mrs.append(mr)
        return Region(len(self._mrs) - 1, mr.buf, mr.rkey, mr.length)

    def deregister(self, region: int) -> None:
        self._mrs[region].close()

    def forget_regions(self) -> None:
        """Numbers regions from 0 again."""
        for mr in self._mrs:
            mr.close()
        self._mrs.clear()

    def load(self, region: int = 0, offset: int = 0, length: int | None = None) -> bytes:
        return self._mrs[region].read(length, offset)

    def store(self, data: bytes, region: int = 0, offset: int = 0) -> None:
        self._mrs[region].write(data, offset=offset)

    # --- queue pairs --------------------------------------------------------------------------

    def make_qp(
        self,
        qp_type: str = "rc",
        *,
        depth: int = 128,
        inline: int = 0,
        pd: int = -1,
        cqe: int = 1024,
        sges: int = 4,
    ) -> Address:
        """A QP with a CQ of its own, in RESET (UD: in RTS)."""
        cq = CQ(self._contexts[-1], cqe)
        init = QPInitAttr(
            qp_type=TYPES[qp_type],
            scq=cq,
            rcq=cq,
            cap=QPCap(depth, depth, sges, sges, inline),
            sq_sig_all=0,
        )
        attr = QPAttr()
        attr.qkey = QKEY
        self._cqs.append(cq)
        self._qps.append(QP(self._pds[pd], init, attr if qp_type == "ud" else None))
        return address(self._qps[-1])

    def connect(self, peer: Address, qp: int = -1, **options: int) -> None:
        connect_to(self._qps[qp], peer, **options)

    def to_rtr(self, peer: Address, qp: int = -1) -> None:
        """As far as RTR only, through INIT."""
        self._qps[qp].to_rtr(_rtr(peer))

    def destroy_qp(self, qp: int = -1) -> None:
        self._qps[qp].close()

    def state(self, qp: int = -1) -> str:
        attr, _ = self._qps[qp].query(e.IBV_QP_STATE)
        return str(e.ibv_qp_state(attr.qp_state).name.removeprefix("IBV_QPS_"))

    def make_ah(self, peer: Address) -> None:
        route = GlobalRoute(dgid=GID(peer.gid), sgid_index=0, hop_limit=64)
        attr = AHAttr(dlid=peer.lid, is_global=1, port_num=1, gr=route)
        self._ahs.append(AH(self._pds[-1], attr=attr))

    # --- work ---------------------------------------------------------------------------------

    def recv(
        self,
        region: int = 0,
        offset: int = 0,
        length: int | None = None,
        *,
        wr_id: int = 0,
        qp: int = -1,
    ) -> None:
        self._qps[qp].post_recv(RecvWR(wr_id, 1, [self._mrs[region].sge(offset, length)]))

    def post(
        self,
        op: str,
        region: int = 0,
        offset: int = 0,
        length: int | None = None,
        *,
        to: Region | None = None,
        at: int = 0,
        rkey: int | None = None,
        operands: tuple[int, int] = (0, 0),
        imm: int = 0,
        wr_id: int = 0,
        flags: int = e.IBV_SEND_SIGNALED,
        pieces: int = 1,
        qp: int = -1,
        peer: Address | None = None,
    ) -> None:
        """Posts one request: *length* bytes at *offset* of the region, in *pieces* SGEs; remotely
        *at* bytes into *to*, with *rkey* if not its own."""
        mr = self._mrs[region]
        length = mr.length - offset if length is None else length
        sges = _pieces(mr, offset, length, pieces)
        wr = SendWR(wr_id, OPCODES[op], len(sges), imm, sges, flags)
        if to is not None:
            key = to.rkey if rkey is None else rkey
            if op in ("cas", "faa"):
                wr.set_wr_atomic(key, to.addr + at, *operands)
            elif op != "send_inv":
                wr.set_wr_rdma(key, to.addr + at)
        if op == "send_inv":
            wr.invalidate_rkey = rkey
        if peer is not None:
            wr.set_wr_ud(self._ahs[-1], peer.qp_num, QKEY)
        self._qps[qp].post_send(wr)

    def wait(self, count: int = 1, qp: int = -1, timeout: float = WAIT_S) -> list[Done]:
        """The next *count* completions of the QP's CQ."""
        return [_done(wc) for wc in self._cqs[qp].wait(count, timeout)]

    def poll(self, qp: int = -1) -> list[Done]:
        """What there is."""
        return [_done(wc) for wc in self._cqs[qp].poll(64)[1]]

    # --- streams ------------------------------------------------------------------------------

    def stream_out(
        self,
        length: int,
        count: int = 1 << 62,
        note_every: int = 0,
        patience_s: float = WAIT_S,
        fork_every: int = 0,
    ) -> tuple[int, str]:
        """Sends counted messages until stopped, or *count*: how many, and the status at the end:
        "NO ANSWER" if one that was posted has none *patience_s* after the stop.

        Uses the first WINDOW * length bytes of region 0, and the last QP.
        """
        posted = done = 0
        deadline = float("inf")
        while done < posted or posted < count:
            if posted < count and self._stopped():
                count = posted
                deadline = time.monotonic() + patience_s
            while posted < count and posted - done < WINDOW:
                at = posted % WINDOW * length
                self._mrs[0].write(message(posted, length), offset=at)
                self.post("send", 0, at, length, wr_id=posted)
                posted += 1
            for completion in self.poll():
                if completion.status != "SUCCESS":
                    return done, completion.status
                assert completion.wr_id == done
                done += 1
                if note_every and done % note_every == 0:
                    self._note(done)
                if fork_every and done % fork_every == 0:
                    self.fork([])
            if time.monotonic() > deadline:
                return done, "NO ANSWER"
        return done, "SUCCESS"

    def prepare_stream_in(self, length: int) -> None:
        for i in range(WINDOW):
            self.recv(0, i * length, length, wr_id=i)

    def stream_in(self, length: int, count: int = 1 << 62, note_every: int = 0) -> tuple[int, str]:
        """Receives counted messages until stopped, or *count*, or one fails; checks each."""
        seen = 0
        while seen < count and not self._stopped():
            for completion in self.poll():
                if completion.status != "SUCCESS":
                    return seen, completion.status
                at = seen % WINDOW * length
                assert completion.wr_id == seen % WINDOW
                assert completion.byte_len == length
                assert self._mrs[0].read(length, at) == message(seen, length), f"message {seen}"
                self.recv(0, at, length, wr_id=completion.wr_id)
                seen += 1
                if note_every and seen % note_every == 0:
                    self._note(seen)
        return seen, "SUCCESS"

    def stream_in_rest(self, length: int, seen: int, count: int) -> int:
        """Receives messages *seen* to *count*, which have been acknowledged; how many there are."""
        while seen < count:
            for completion in self.wait():
                at = seen % WINDOW * length
                assert completion.status == "SUCCESS"
                assert self._mrs[0].read(length, at) == message(seen, length), f"message {seen}"
                seen += 1
        return seen

    def stream_ops(
        self, op: str, length: int, to: Region, count: int = 1 << 62, note_every: int = 0
    ) -> tuple[int, str]:
        """One-sided requests, one after the other; fetch-and-add counts and checks what it finds."""
        done = 0
        status = "SUCCESS"
        while status == "SUCCESS" and done < count and not self._stopped():
            self.post(op, 0, 0, length, to=to, operands=(1, 0), wr_id=done)
            (completion,) = self.wait()
            status = completion.status
            if status == "SUCCESS":
                if op == "faa":
                    assert struct.unpack("<Q", self._mrs[0].read(8, 0))[0] == done
                done += 1
                if note_every and done % note_every == 0:
                    self._note(done)
        return done, status

    def add(self, to: Region, count: int, region: int, qp: int) -> list[int]:
        """Adds 1 to the first word *count* times; what was there each time."""
        seen = []
        for _ in range(count):
            self.post("faa", region, 0, 8, to=to, operands=(1, 0), qp=qp)
            assert self.wait(1, qp)[0].status == "SUCCESS"
            seen.append(struct.unpack("<Q", self._mrs[region].read(8, 0))[0])
        return seen

    def write_to_itself(self) -> None:
        """A WRITE through two QPs of this process, connected to each other."""
        ours, its = self.make_qp(), self.make_qp()
        self.connect(ours, -1)
        self.connect(its, -2)
        self._mrs[-1].write(b"through the fabric")
        to = Region(-1, self._mrs[-1].buf, self._mrs[-1].rkey, SELF_BYTES)
        self.post("write", -1, 0, 18, to=to, at=SELF_BYTES, qp=-2)
        (done,) = self.wait(1, -2)
        assert done.status == "SUCCESS", done
        assert self._mrs[-1].read(18, SELF_BYTES) == b"through the fabric"

    def register_for_ever(self, note_every: int) -> None:
        n = 0
        while not self._stopped():
            MR(self._pds[-1], 4096, ALL_ACCESS).close()
            n += 1
            if n % note_every == 0:
                self._note(n)

    def poll_for_ever(self, note_every: int) -> None:
        n = 0
        while not self._stopped():
            self._cqs[-1].poll(1)
            n += 1
            if n % note_every == 0:
                self._note(n)

    # --- the process --------------------------------------------------------------------------

    def set_env(self, **values: str) -> None:
        """Where the C library looks, too."""
        os.environ.update(values)

    def nupa(self, *args: str) -> tuple[int, str]:
        """Runs `nupa ARGS`; its exit code and what it says."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "nupa.cli", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        return done.returncode, done.stdout

    def start_attached(self) -> None:
        """Starts a program that attaches by `nupa run` and stays; returns when it has."""
        program = subprocess.Popen(
            [sys.executable, "-P", "-m", "nupa.cli", "run", "--", sys.executable, "-P", "-c", STAY],
            stdout=subprocess.PIPE,
        )
        assert program.stdout is not None
        self._started.append((program, os.pidfd_open(int(program.stdout.readline()))))

    def end_started(self, number: int, how: int) -> int:
        """Sends a signal to what was started, and to its `nupa run` if that is SIGKILL; the exit
        code of `nupa run`."""
        program, pidfd = self._started[number]
        if how == signal.SIGKILL:
            program.kill()
            program.wait(WAIT_S)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.Signals(how))
        assert select.select([pidfd], [], [], WAIT_S)[0]
        os.close(pidfd)
        return program.wait(WAIT_S)

    def listing(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    def device_names(self) -> list[str]:
        return [device.name.decode() for device in get_device_list()]

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory by kind, /proc/self/status: RssAnon, RssFile, RssShmem."""
        gc.collect()
        text = Path("/proc/self/status").read_text()
        fields = dict(line.split(":", 1) for line in text.splitlines())
        return {
            key: int(fields[key].split()[0]) * 1024 for key in ("RssAnon", "RssFile", "RssShmem")
        }

    def fork(self, commands: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> list[object]:
        """Runs *commands* in a child with this state, which then ends as Python ends; results."""
        results, child_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            _child(self, commands, child_end)
        os.close(child_end)
        with open(results, "rb") as pipe:  # noqa: PTH123
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code:
            raise RuntimeError(f"the child ended with {code}: {text!r}")
        return list(pickle.loads(text))

    def exit(self, how: str) -> None:
        """Ends without closing anything: 'exit' runs destructors of C, '_exit' runs nothing."""
        if how == "_exit":
            os._exit(0)
        # Not sys.exit: Python's own finalization would close our objects.
        ctypes.CDLL(None).exit(0)

    def device_attr(self) -> dict[str, int]:
        attr = self._contexts[-1].query_device()
        names = ("max_qp", "max_qp_wr", "max_sge", "max_cq", "max_cqe", "max_mr", "max_pd")
        return {name: int(getattr(attr, name)) for name in names}

    def make_many_qps(self, most: int) -> tuple[int, str]:
        """Makes QPs of one CQ: how many different ones, and the error ('' if none came)."""
        cq = CQ(self._contexts[-1], 16)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(1, 1, 1, 1, 0))
        self._cqs.append(cq)
        numbers = set()
        for _ in range(most):
            try:
                self._qps.append(QP(self._pds[-1], init))
            except PyverbsRDMAError as error:
                return len(numbers), str(error)
            numbers.add(self._qps[-1].qp_num)
        return len(numbers), ""

    def recv_many(self, count: int) -> None:
        """*count* receives of 8 bytes, in one call."""
        sge = self._mrs[0].sge(0, 8)
        self._qps[-1].post_recv([RecvWR(i, 1, [sge]) for i in range(count)])

    def send_many(self, count: int) -> None:
        sge = self._mrs[0].sge(0, 8)
        self._qps[-1].post_send([SendWR(i, sg=[sge]) for i in range(count)])

    def count_in_order(self, count: int) -> int:
        """How many of the next *count* completions are successes with the next wr_id."""
        done = self._cqs[-1].wait(count, WAIT_S)
        return sum(wc.status == 0 and wc.wr_id == i for i, wc in enumerate(done))

    def register_until_refused(self, most: int) -> tuple[int, str]:
        """Registers the same page again and again; how often, and the error ('' if none came)."""
        memory = bytearray(4096)
        for n in range(most):
            try:
                self._mrs.append(MR(self._pds[-1], memory, ALL_ACCESS))
            except PyverbsRDMAError as error:
                return n, str(error)
        return most, ""

    def fill(self, folder: str, leave_bytes: int) -> None:
        """Takes all memory of a file system but *leave_bytes*."""
        free = os.statvfs(folder)
        take = free.f_bavail * free.f_frsize - leave_bytes
        with open(f"{folder}/ballast", "ab") as file:  # noqa: PTH123
            os.posix_fallocate(file.fileno(), file.tell(), take)

    def unfill(self, folder: str) -> None:
        Path(folder, "ballast").unlink()


def _child(node: Node, commands: list[Any], pipe: int) -> None:
    try:
        results = [getattr(node, name)(*args, **kwargs) for name, args, kwargs in commands]
        os.write(pipe, pickle.dumps(results))
    except BaseException:
        os.write(pipe, traceback.format_exc().encode())
        os._exit(1)
    # What a child of a Python program does: it ends, and its copies of our objects are closed.
    node.leave()
    gc.collect()
    ctypes.CDLL(None).exit(0)


def _rtr(peer: Address) -> QPAttr:
    attr = QPAttr(port_num=1, path_mtu=e.IBV_MTU_4096)
    attr.qp_access_flags = ALL_ACCESS
    attr.dest_qp_num = peer.qp_num
    attr.rq_psn = peer.psn
    attr.min_rnr_timer = 12
    attr.max_dest_rd_atomic = 16
    route = GlobalRoute(dgid=GID(peer.gid), sgid_index=0, hop_limit=64)
    attr.ah_attr = AHAttr(dlid=peer.lid, is_global=1, port_num=1, gr=route)
    return attr


def _pieces(mr: MR, offset: int, length: int, pieces: int) -> list[SGE]:
    step = length // pieces
    cuts = [offset + i * step for i in range(pieces)] + [offset + length]
    return [
        mr.sge(start, end - start) for start, end in zip(cuts[:-1], cuts[1:], strict=True)
    ]


def _done(wc: Any) -> Done:
    return Done(
        wc.wr_id,
        e.ibv_wc_status(wc.status).name.removeprefix("IBV_WC_"),
        e.ibv_wc_opcode(wc.opcode).name.removeprefix("IBV_WC_"),
        wc.byte_len,
        wc.imm_data,
        wc.qp_num,
    )
