# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of work requests and completions, built once and used without making objects.

`wr`, `sge` and WCBatch.array are NumPy structured arrays over the memory that C reads and writes,
so one operation sets or reads a whole column:

    batch = qp.batch(64, SendWR(opcode=IBV_WR_RDMA_WRITE, sg=[mr.sge(0, 64)]))
    batch.sge["addr"] += np.arange(64, dtype="u8")[:, None] * 64
    batch.wr["wr_id"] = np.arange(64)
    wcs = WCBatch(64)
    batch.post()
    n = cq.poll_batch(wcs, at_least=64, timeout=1)
    bad = wcs.array[:n]["status"] != IBV_WC_SUCCESS
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.verbs.base import closed
from nupa.verbs.base.errors import PyverbsUserError
from nupa.verbs.post import refused
from nupa.verbs.qp import QP
from nupa.verbs.wr import RecvWR, SendWR

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from nupa.verbs.srq import SRQ

    Records = npt.NDArray[np.void]

# NumPy name: C field.  `next` and `sg_list` are the batch's own.
_SGE_FIELDS = {"addr": "addr", "length": "length", "lkey": "lkey"}
_RECV_FIELDS = {"wr_id": "wr_id", "num_sge": "num_sge"}
_SEND_FIELDS = {
    "wr_id": "wr_id",
    "num_sge": "num_sge",
    "opcode": "opcode",
    "send_flags": "send_flags",
    "imm_data": "imm_data",
    "invalidate_rkey": "invalidate_rkey",
    "remote_addr": "wr.rdma.remote_addr",
    "rkey": "wr.rdma.rkey",
    "compare_add": "wr.atomic.compare_add",
    "swap": "wr.atomic.swap",
    "atomic_rkey": "wr.atomic.rkey",
    "remote_qpn": "wr.ud.remote_qpn",
    "remote_qkey": "wr.ud.remote_qkey",
}
_WC_FIELDS = {
    name: name
    for name in (
        "wr_id", "status", "opcode", "vendor_err", "byte_len", "imm_data", "qp_num", "src_qp",
        "wc_flags", "pkey_index", "slid", "sl", "dlid_path_bits",
    )
}  # fmt: skip
_FIELDS = {
    "struct ibv_sge": _SGE_FIELDS,
    "struct ibv_recv_wr": _RECV_FIELDS,
    "struct ibv_send_wr": _SEND_FIELDS,
    "struct ibv_wc": _WC_FIELDS,
}


@cache
def dtype(struct: str) -> np.dtype[np.void]:
    """Returns the NumPy type of a C structure's fields, at the compiler's offsets."""
    import numpy as np

    example = ffi.new(f"{struct} *")
    formats, offsets = [], []
    for path in _FIELDS[struct].values():
        *outer, leaf = path.split(".")
        owner = example
        for step in outer:
            owner = getattr(owner, step)
        kind = dict(ffi.typeof(owner if outer else example[0]).fields)
        # Members of an anonymous union are not listed: all of ours have 32 bits.
        size = ffi.sizeof(kind[leaf].type) if leaf in kind else 4
        formats.append(f"u{size}")
        offsets.append(ffi.offsetof(struct, *path.split(".")))
    return np.dtype(
        {
            "names": list(_FIELDS[struct]),
            "formats": formats,
            "offsets": offsets,
            "itemsize": ffi.sizeof(struct),
        }
    )


def _records(struct: str, c: Any, shape: tuple[int, ...]) -> Records:
    """Returns a view of the C array *c*, which it keeps alive."""
    import numpy as np

    return np.frombuffer(ffi.buffer(c), dtype(struct)).reshape(shape)


class _Batch:
    """An array of *n* work requests, and one of their SGEs."""

    _struct: str

    def __init__(self, n: int, template: SendWR | RecvWR | None, num_sge: int) -> None:
        if n < 1 or num_sge < 0:
            raise PyverbsUserError(f"A batch has at least one WR, not {n} with {num_sge} SGEs")
        if template is not None:
            num_sge = template.num_sge
        self._n = n
        self._c = ffi.new(f"{self._struct}[]", n)
        self._sges = ffi.new("struct ibv_sge[]", max(1, n * num_sge))
        for i in range(n):
            if template is not None:
                self._c[i] = template._c[0]
                for k in range(num_sge):
                    self._sges[i * num_sge + k] = template._c.sg_list[k]
            self._c[i].num_sge = num_sge
            self._c[i].sg_list = self._sges + i * num_sge
        self._posted = ffi.new("uint32_t *")
        #: Shape (n,): wr_id, num_sge ... of each.
        self.wr = _records(self._struct, self._c, (n,))
        #: Shape (n, num_sge): addr, length, lkey of each SGE.
        sges = _records("struct ibv_sge", self._sges, (-1,))
        self.sge = sges[: n * num_sge].reshape((n, num_sge))

    def __len__(self) -> int:
        return self._n

    def _count(self, count: int | None) -> int:
        if count is None:
            return self._n
        if not 0 <= count <= self._n:
            raise PyverbsUserError(f"Cannot post {count} of a batch of {self._n}")
        return count


class SendBatch(_Batch):
    """Send work requests of *qp*; see QP.batch."""

    _struct = "struct ibv_send_wr"

    def __init__(self, qp: QP, n: int, template: SendWR | None = None, num_sge: int = 1) -> None:
        # The AH of a UD template has to outlive the batch.
        self.template = template
        self._qp = qp
        super().__init__(n, template, num_sge)

    def post(self, count: int | None = None) -> None:
        """Posts the first *count* (None: all) in one call.  PostError has the number accepted."""
        n = self._n if count is None else self._count(count)
        qp = self._qp._c or closed(self._qp)
        rc = lib.nupa_batch_post_send(qp, self._c, n, self._posted)
        if rc:
            raise refused("post send", rc, int(self._posted[0]), n)


class RecvBatch(_Batch):
    """Receives of a QP or an SRQ; see QP.recv_batch."""

    _struct = "struct ibv_recv_wr"

    def __init__(
        self, queue: QP | SRQ, n: int, template: RecvWR | None = None, num_sge: int = 1
    ) -> None:
        self._queue = queue
        to_qp = isinstance(queue, QP)
        self._call = lib.nupa_batch_post_recv if to_qp else lib.nupa_batch_post_srq_recv
        super().__init__(n, template, num_sge)

    def post(self, count: int | None = None) -> None:
        """Posts the first *count* (None: all) in one call.  PostError has the number accepted."""
        n = self._n if count is None else self._count(count)
        queue = self._queue._c or closed(self._queue)
        rc = self._call(queue, self._c, n, self._posted)
        if rc:
            raise refused("post recv", rc, int(self._posted[0]), n)


class WCBatch:
    """Room for *n* completions that CQ.poll_batch fills; `array` has shape (n,)."""

    def __init__(self, n: int) -> None:
        if n < 1:
            raise PyverbsUserError(f"A batch has room for at least one completion, not {n}")
        self._n = n
        self._c = ffi.new("struct ibv_wc[]", n)
        self.array = _records("struct ibv_wc", self._c, (n,))

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: Any) -> Any:
        """Returns array[index]."""
        return self.array[index]
