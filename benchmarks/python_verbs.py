# SPDX-License-Identifier: BSD-3-Clause
"""The cost of Python: opening a device, posting and polling RDMA WRITEs of 8 B.

Both hosts are in one process, so that the binding is measured and not a mover.  Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from nupa.fabric import Fabric
from nupa.verbs.batch import WCBatch
from nupa.verbs.connection import address, connect_to
from nupa.verbs.cq import CQ
from nupa.verbs.device import Context
from nupa.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE,
)
from nupa.verbs.mr import MR
from nupa.verbs.pd import PD
from nupa.verbs.qp import QP, QPCap, QPInitAttr
from nupa.verbs.wr import SGE, SendWR

_BATCH = 64
_BYTES = 8
_ROUNDS = 200
_GID_INDEX = 1
_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE


class End:
    """A host's device with one QP and one region."""

    peer: End

    def __init__(self, stack: ExitStack, fabric: Fabric, host: int) -> None:
        start_ns = time.perf_counter_ns()
        self.context = stack.enter_context(Context(fabric=fabric, host=host))
        self.attach_ns = time.perf_counter_ns() - start_ns
        pd = stack.enter_context(PD(self.context))
        self.cq = stack.enter_context(CQ(self.context, 2 * _BATCH))
        self.mr = stack.enter_context(MR(pd, 4096, _ACCESS))
        init = QPInitAttr(
            qp_type=IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(max_send_wr=2 * _BATCH)
        )
        self.qp = stack.enter_context(QP(pd, init))

    def connect(self, peer: End) -> None:
        self.peer = peer
        to = address(peer.qp, gid_index=_GID_INDEX)
        connect_to(self.qp, to, gid_index=_GID_INDEX, access=_ACCESS)


def median_ns(action: Callable[[], None], rounds: int) -> float:
    """Returns the median time of one call, after as many calls to warm up."""
    samples = []
    for i in range(2 * rounds):
        start_ns = time.perf_counter_ns()
        action()
        if i >= rounds:
            samples.append(time.perf_counter_ns() - start_ns)
    return statistics.median(samples)


def post_one(here: End, wr: SendWR) -> Callable[[], None]:
    """Returns a function that posts and polls one WRITE, as pyverbs programs do."""

    def action() -> None:
        here.qp.post_send(wr)
        while True:
            count, completions = here.cq.poll(1)
            if count:
                break
        if completions[0].status != IBV_WC_SUCCESS:
            sys.exit(f"a WRITE completed with status {completions[0].status}")

    return action


def post_many(here: End, wr: SendWR) -> Callable[[], None]:
    """Returns a function that posts and polls a batch, without Python objects for each."""
    batch = here.qp.batch(_BATCH, wr)
    completions = WCBatch(_BATCH)

    def action() -> None:
        batch.post()
        here.cq.poll_batch(completions, at_least=_BATCH, timeout=10)

    return action


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.python_verbs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = _ROUNDS // 10 if parser.parse_args().quick else _ROUNDS
    with ExitStack() as stack:
        fabric = stack.enter_context(Fabric(hosts=2))
        here, there = (End(stack, fabric, host) for host in range(2))
        here.connect(there)
        there.connect(here)
        wr = SendWR(
            opcode=IBV_WR_RDMA_WRITE,
            num_sge=1,
            sg=[SGE(here.mr.buf, _BYTES, here.mr.lkey)],
            send_flags=IBV_SEND_SIGNALED,
        )
        wr.set_wr_rdma(there.mr.rkey, there.mr.buf)
        one_ns = median_ns(post_one(here, wr), 10 * rounds)
        many_ns = median_ns(post_many(here, wr), rounds)
        found = {
            "attach_ns": here.attach_ns,
            "one_ns": one_ns,
            "each_of_64_ns": many_ns / _BATCH,
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
