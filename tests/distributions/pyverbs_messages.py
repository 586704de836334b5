# SPDX-License-Identifier: BSD-3-Clause
"""Two RC queue pairs of one process, by pyverbs: one sends a message and writes to the other.

Run by the Python of a release, so it knows of no other module of ours.
"""

import pyverbs.device as d
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

try:
    import pyverbs.libibverbs_enums as e
except ImportError:  # before v55
    import pyverbs.enums as e

GID_INDEX, PSN, SIZE = 1, 7, 4096
ACCESS = e.ibv_access_flags.IBV_ACCESS_LOCAL_WRITE | e.ibv_access_flags.IBV_ACCESS_REMOTE_WRITE


class End:
    """A queue pair with its queue of completions and a region of SIZE bytes."""

    def __init__(self, pd: PD, context: d.Context) -> None:
        self.cq = CQ(context, 10)
        cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(qp_type=e.ibv_qp_type.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap)
        attr = QPAttr()
        attr.qp_access_flags = ACCESS
        self.qp = QP(pd, init, attr)
        self.mr = MR(pd, SIZE, ACCESS)

    def connect(self, context: d.Context, peer: "End") -> None:
        route = GlobalRoute(dgid=context.query_gid(1, GID_INDEX), sgid_index=GID_INDEX)
        attr = QPAttr(port_num=1)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        attr.dest_qp_num = peer.qp.qp_num
        attr.path_mtu = e.ibv_mtu.IBV_MTU_1024
        attr.rq_psn = attr.sq_psn = PSN
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer = 12
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
        self.qp.to_rts(attr)

    def sge(self) -> SGE:
        return SGE(self.mr.buf, SIZE, self.mr.lkey)

    def completion(self) -> int:
        """Waits for the next completion; returns its opcode."""
        while True:
            count, found = self.cq.poll()
            if count:
                assert found[0].status == e.ibv_wc_status.IBV_WC_SUCCESS, found[0]
                return found[0].opcode


def main() -> None:
    device = d.get_device_list()[0]
    context = d.Context(name=device.name.decode())
    print(device.name.decode(), context.query_port(1).state == e.ibv_port_state.IBV_PORT_ACTIVE)
    pd = PD(context)
    sender, receiver = End(pd, context), End(pd, context)
    sender.connect(context, receiver)
    receiver.connect(context, sender)

    sender.mr.write("s" * SIZE, SIZE)
    receiver.qp.post_recv(RecvWR(sg=[receiver.sge()], num_sge=1))
    sender.qp.post_send(SendWR(opcode=e.ibv_wr_opcode.IBV_WR_SEND, num_sge=1, sg=[sender.sge()]))
    assert sender.completion() == e.ibv_wc_opcode.IBV_WC_SEND
    assert receiver.completion() == e.ibv_wc_opcode.IBV_WC_RECV
    assert receiver.mr.read(SIZE, 0) == b"s" * SIZE

    sender.mr.write("w" * SIZE, SIZE)
    write = SendWR(opcode=e.ibv_wr_opcode.IBV_WR_RDMA_WRITE, num_sge=1, sg=[sender.sge()])
    write.set_wr_rdma(receiver.mr.rkey, receiver.mr.buf)
    sender.qp.post_send(write)
    assert sender.completion() == e.ibv_wc_opcode.IBV_WC_RDMA_WRITE
    assert receiver.mr.read(SIZE, 0) == b"w" * SIZE
    print("intact")


main()
