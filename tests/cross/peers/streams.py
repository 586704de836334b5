# SPDX-License-Identifier: BSD-3-Clause
"""A peer's commands that take long: counted messages, and all that a queue can hold."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import struct
import time
import traceback
from typing import Any

from nupa.verbs import CQ, MR, QP, PyverbsRDMAError, QPCap, QPInitAttr, RecvWR, SendWR
from nupa.verbs import enums as e
from tests.cross.peers.node import ALL_ACCESS, WAIT_S, Region, Verbs

WINDOW = 16  # messages under way in a stream
SELF_BYTES = 4096


def message(sequence: int, length: int) -> bytes:
    """Returns a counted message of *length* bytes (8 or more): its number, and what follows from
    it."""
    word = struct.pack("<Q", sequence * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
    body = word * (length // 8)
    return struct.pack("<Q", sequence) + body[: length - 8]


class Streams(Verbs):
    """Commands that run until they are stopped, or many times."""

    def stream_out(
        self,
        length: int,
        count: int = 1 << 62,
        note_every: int = 0,
        patience_s: float = WAIT_S,
        fork_every: int = 0,
    ) -> tuple[int, str]:
        """Sends counted messages until stopped, or *count*.  Returns how many, and the status at
        the end: "NO ANSWER" if a posted one has none *patience_s* after the stop.

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
        """One-sided requests, one by one; fetch-and-add counts and checks what it finds."""
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
        """Writes through two QPs of this process, connected to each other."""
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

    def device_attr(self) -> dict[str, int]:
        attr = self._contexts[-1].query_device()
        names = ("max_qp", "max_qp_wr", "max_sge", "max_cq", "max_cqe", "max_mr", "max_pd")
        return {name: int(getattr(attr, name)) for name in names}

    def make_many_qps(self, most: int) -> tuple[int, str]:
        """Makes QPs of one CQ: how many different ones, and the error ('' if none came)."""
        cq = CQ(self._contexts[-1], 16)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(1, 1, 1, 1, 0))
        self._cqs.append(cq)
        numbers: set[int] = set()
        for _ in range(most):
            try:
                self._qps.append(QP(self._pds[-1], init))
            except PyverbsRDMAError as error:
                return len(numbers), str(error)
            numbers.add(self._qps[-1].qp_num)
        return len(numbers), ""

    def recv_many(self, count: int) -> None:
        """Posts *count* receives of 8 bytes, in one call."""
        sge = self._mrs[0].sge(0, 8)
        self._qps[-1].post_recv([RecvWR(i, 1, [sge]) for i in range(count)])

    def send_many(self, count: int) -> None:
        sge = self._mrs[0].sge(0, 8)
        self._qps[-1].post_send([SendWR(i, sg=[sge]) for i in range(count)])

    def count_in_order(self, count: int) -> int:
        """Returns how many of the next *count* completions are successes with the next wr_id."""
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


def _child(node: Verbs, commands: list[Any], pipe: int) -> None:
    try:
        results = [getattr(node, name)(*args, **kwargs) for name, args, kwargs in commands]
        os.write(pipe, pickle.dumps(results))
    except BaseException:
        os.write(pipe, traceback.format_exc().encode())
        os._exit(1)
    # As a child of a Python program ends: its copies of our objects are closed.
    node.leave()
    gc.collect()
    ctypes.CDLL(None).exit(0)
