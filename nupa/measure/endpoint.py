# SPDX-License-Identifier: BSD-3-Clause
"""One end of a file transfer: a buffer and a connected RC QP."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack

from nupa.base.closing import Closing
from nupa.measure.control import FileOperation, TargetAddress, TransferError
from nupa.verbs import connection
from nupa.verbs.connection import connect_to
from nupa.verbs.cq import CQ, WC
from nupa.verbs.device import Context, get_device_list
from nupa.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
    ibv_wc_status,
)
from nupa.verbs.mr import MR
from nupa.verbs.pd import PD
from nupa.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from nupa.verbs.wr import SGE, RecvWR, SendWR

_PORT = 1
_GID_INDEX = 1  # RoCE v2, the IPv4 address of the host
_WINDOW = 16  # work requests posted at a time
_RECEIVES_MAX = 1024
_DEADLINE_S = 30.0
_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE
_OPCODES = {"write": IBV_WR_RDMA_WRITE, "read": IBV_WR_RDMA_READ, "send": IBV_WR_SEND}


class Endpoint(Closing):
    """A device, a registered buffer of *size_bytes* and a QP; a context manager."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._psn = random.getrandbits(24)
        self._receives: list[int] = []
        self._stack = ExitStack()
        with ExitStack() as stack:
            devices = get_device_list()
            if not devices:
                raise TransferError("no RDMA device: run this under `nupa run`")
            self._context = stack.enter_context(Context(name=devices[0].name.decode()))
            pd = stack.enter_context(PD(self._context))
            self._cq = stack.enter_context(CQ(self._context, _WINDOW + _RECEIVES_MAX))
            self._mr = stack.enter_context(MR(pd, size_bytes, _ACCESS))
            cap = QPCap(max_send_wr=_WINDOW, max_recv_wr=_RECEIVES_MAX)
            init = QPInitAttr(qp_type=IBV_QPT_RC, scq=self._cq, rcq=self._cq, cap=cap)
            self._qp = stack.enter_context(QP(pd, init))
            attr = QPAttr(port_num=_PORT)
            attr.qp_access_flags = _ACCESS
            self._qp.to_init(attr)
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def fill(self, data: bytes) -> None:
        if len(data) != self._size_bytes:
            raise TransferError(f"the file has {len(data)} bytes, not {self._size_bytes}")
        self._mr.write(data, len(data))

    def contents(self) -> bytes:
        return bytes(self._mr.read(self._size_bytes, 0))

    def address(self) -> TargetAddress:
        gid = self._context.query_gid(_PORT, _GID_INDEX)
        return TargetAddress(str(gid), self._qp.qp_num, self._psn, self._mr.buf, self._mr.rkey)

    def connect(self, peer: TargetAddress) -> None:
        """Brings the QP from INIT to RTS."""
        connect_to(
            self._qp,
            connection.Address(peer.qpn, peer.psn, 0, peer.gid),
            psn=self._psn,
            gid_index=_GID_INDEX,
            access=_ACCESS,
        )

    def post_receives(self, sizes: Sequence[int]) -> None:
        """Posts one receive for each chunk, one after the other in the buffer."""
        if len(sizes) > _RECEIVES_MAX:
            raise TransferError(f"{len(sizes)} receives needed, the limit is {_RECEIVES_MAX}")
        self._receives = list(sizes)
        offset = 0
        for i, size in enumerate(sizes):
            sge = SGE(self._mr.buf + offset, size, self._mr.lkey)
            self._qp.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[sge]))
            offset += size

    def wait_received(self) -> None:
        """Returns when each receive is complete; TransferError: one has another size."""
        done = 0
        while done < len(self._receives):
            for wc in self._poll():
                if wc.byte_len != self._receives[wc.wr_id]:
                    raise TransferError(
                        f"receive {wc.wr_id}: {self._receives[wc.wr_id]} bytes were expected, "
                        f"{wc.byte_len} were received"
                    )
                done += 1

    def move(self, operation: FileOperation, peer: TargetAddress, sizes: Sequence[int]) -> None:
        """Posts all chunks, at most _WINDOW at a time; returns when all are complete."""
        posted = done = offset = 0
        while done < len(sizes):
            while posted < len(sizes) and posted - done < _WINDOW:
                self._qp.post_send(self._request(operation, peer, posted, offset, sizes[posted]))
                offset += sizes[posted]
                posted += 1
            done += len(self._poll())

    def _request(
        self, operation: FileOperation, peer: TargetAddress, wr_id: int, offset: int, size: int
    ) -> SendWR:
        sge = SGE(self._mr.buf + offset, size, self._mr.lkey)
        wr = SendWR(
            wr_id=wr_id,
            opcode=_OPCODES[operation],
            num_sge=1,
            sg=[sge],
            send_flags=IBV_SEND_SIGNALED,
        )
        if operation != "send":
            wr.set_wr_rdma(peer.rkey, peer.addr + offset)
        return wr

    def _poll(self) -> list[WC]:
        """Returns at least one completion.  TransferError: none came in time, or one failed."""
        end_s = time.monotonic() + _DEADLINE_S
        while True:
            count, completions = self._cq.poll(_WINDOW)
            if count:
                break
            if time.monotonic() > end_s:
                raise TransferError(f"no completion in {_DEADLINE_S:g} s")
        for wc in completions:
            if wc.status != IBV_WC_SUCCESS:
                status = ibv_wc_status(wc.status).name
                raise TransferError(f"work request {wc.wr_id} completed with {status}")
        return list(completions)
