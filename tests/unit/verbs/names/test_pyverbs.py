# SPDX-License-Identifier: BSD-3-Clause
"""A program written for pyverbs runs when its import is changed, and nothing else."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

# A typical pyverbs program: module by module, keyword by keyword.
PROGRAM = """
    import socket
    from pyverbs.addr import AH, AHAttr, GID, GRH, GlobalRoute
    from pyverbs.cq import CQ, CQEX, WC, CompChannel, CqInitAttrEx, PollCqAttr
    from pyverbs.device import AllocDmAttr, Context, DM, get_device_list
    from pyverbs.mr import DMMR, MR, MW, MWBindInfo
    from pyverbs.pd import PD, ParentDomain
    from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError
    from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
    from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
    from pyverbs.wr import SGE, RecvWR, SendWR
    from pyverbs.xrcd import XRCD, XRCDInitAttr
    from pyverbs.base import PyverbsRDMAErrno, inc_rkey
    import pyverbs.device as d
    import pyverbs.enums as e

    ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE

    class Player:
        def __init__(self, name):
            self.ctx = Context(name=name)
            self.pd = PD(self.ctx)
            self.mr = MR(self.pd, 1024, ACCESS)
            self.channel = CompChannel(self.ctx)
            self.cq = CQ(self.ctx, 100, None, self.channel, 0)
            self.cq.req_notify()
            init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq,
                              cap=QPCap(max_recv_wr=100))
            self.attr = QPAttr(port_num=1)
            self.attr.qp_access_flags = ACCESS
            self.qp = QP(self.pd, init, self.attr)

        def to_rts(self, peer):
            attr = self.attr
            attr.path_mtu = e.IBV_MTU_1024
            attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
            attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
            route = GlobalRoute(dgid=peer.ctx.query_gid(1, 0), sgid_index=0)
            attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
            attr.dest_qp_num = peer.qp.qp_num
            self.qp.to_rts(attr)

        def poll(self):
            while True:
                n, wcs = self.cq.poll(1)
                if n:
                    return wcs[0]
                self.channel.get_cq_event(self.cq)
                self.cq.req_notify()

    device = get_device_list()[0]
    client, server = Player(device.name.decode()), Player(device.name.decode())
    client.to_rts(server)
    server.to_rts(client)
    for n in range(10):
        server.qp.post_recv(RecvWR(sg=[SGE(server.mr.buf, 1024, server.mr.lkey)], num_sge=1), None)
        client.mr.write("c" * 1024, 1024)
        wr = SendWR(opcode=e.IBV_WR_SEND_WITH_IMM, num_sge=1,
                    sg=[SGE(client.mr.buf, 1024, client.mr.lkey)])
        wr.imm_data = socket.htonl(1234)
        client.qp.post_send(wr, None)
        assert client.poll().status == e.IBV_WC_SUCCESS
        got = server.poll()
        assert (got.status, got.byte_len) == (e.IBV_WC_SUCCESS, 1024)
        assert socket.ntohl(got.imm_data) == 1234
        assert server.mr.read(1024, 0).decode() == "c" * 1024
    try:
        MW(client.pd, e.IBV_MW_TYPE_1)
    except PyverbsRDMAError as ex:
        assert ex.error_code == 95
    try:
        client.ctx.query_port(7)
    except PyverbsRDMAError as ex:
        assert "Failed to query port" in ex.args[0] and "Invalid argument" in ex.args[0]
    print("played", d.translate_link_layer(client.ctx.query_port(1).link_layer))
    client.ctx.close()
    server.ctx.close()
"""


def test_a_pyverbs_program_runs_with_its_import_changed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    text = textwrap.dedent(PROGRAM).replace("from pyverbs.", "from nupa.verbs.")
    program.write_text(text.replace("import pyverbs.", "import nupa.verbs."))
    with_fabric = textwrap.dedent(
        f"""
        import os, runpy
        from nupa.fabric import Fabric
        fabric = Fabric(hosts=2)
        os.environ["NUPA_FABRIC"] = f"/proc/self/fd/{{fabric._segment.fd}}"
        runpy.run_path({str(program)!r})
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", with_fabric],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "played Ethernet\n"
