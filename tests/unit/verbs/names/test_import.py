# SPDX-License-Identifier: BSD-3-Clause
"""A context, its PDs, regions and device memory used through other handles, here and elsewhere."""

import errno
import json
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from nupa._engine import ffi, lib
from nupa.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    Address,
    Context,
    QPCap,
    QPInitAttr,
    SendWR,
    address,
    connect,
    connect_to,
)
from nupa.verbs import enums as e
from nupa.verbs.base.errors import PyverbsRDMAError
from nupa.verbs.device import DM, AllocDmAttr
from nupa.verbs.mr import DMMR

ALL = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
DEVICE = ALL | e.IBV_ACCESS_ZERO_BASED


def imported(end) -> Context:
    return Context(cmd_fd=os.dup(end.ctx.cmd_fd))


def refused(code: int, make: Callable[[], Any]) -> None:
    with pytest.raises(PyverbsRDMAError, match="Failed to import") as caught:
        make()
    assert caught.value.error_code == code


# --- in one process --------------------------------------------------------------------------


def test_an_imported_context_is_one_more_of_the_same_attachment(end) -> None:
    with imported(end) as ctx:
        assert (ctx.slot, ctx.host) == (end.ctx.slot, end.ctx.host)
        assert ctx.cmd_fd != end.ctx.cmd_fd


def test_a_qp_on_imported_handles_uses_the_region_of_the_original(pair, make_end) -> None:
    """The test of shared PDs in rdma-core: the server is made of imported objects."""
    server = pair.b
    ctx = imported(server)
    pd = PD(ctx, handle=server.pd.handle)
    mr = MR(pd, handle=server.mr.handle, address=server.mr.buf)
    assert (mr.lkey, mr.rkey, mr.length) == (server.mr.lkey, server.mr.rkey, server.mr.length)
    cq = CQ(ctx, 16)
    qp = QP(pd, QPInitAttr(e.IBV_QPT_RC, None, cq, cq, cap=QPCap(8, 8, 1, 1, 0), sq_sig_all=1))
    client = make_end(0)
    connect(client.qp, qp)
    client.mr.write(b"to the imported")
    write = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[client.mr.sge(0, 15)])
    write.set_wr_rdma(mr.rkey, mr.buf)
    client.qp.post_send(write)
    client.wait_ok()
    assert mr.read(15) == server.mr.read(15) == b"to the imported"
    back = SendWR(2, e.IBV_WR_RDMA_WRITE, sg=[SGE(mr.buf, 15, mr.lkey)])
    back.set_wr_rdma(client.mr.rkey, client.mr.buf + 100)
    qp.post_send(back)
    assert cq.wait(1, 10)[0].status is e.IBV_WC_SUCCESS
    assert client.mr.read(15, 100) == b"to the imported"
    mr.unimport()
    pd.unimport()
    pd.close()
    ctx.close()
    assert server.mr.read(2) == b"to"


def test_the_protection_domain_is_the_same_by_every_handle(end) -> None:
    ctx = imported(end)
    pd = PD(ctx, handle=end.pd.handle)
    assert pd.handle == end.pd.handle
    other = PD(end.ctx)
    refused(errno.EINVAL, lambda: MR(PD(ctx, handle=other.handle), handle=end.mr.handle))
    mr = MR(pd, 64, ALL)
    # The original has no object of its own but is used by the region made with the other handle.
    lone = PD(end.ctx)
    made = MR(PD(ctx, handle=lone.handle), 64, ALL)
    assert lib.nupa_dealloc_pd(lone._c) == errno.EBUSY
    made.close()
    mr.close()
    lone.close()
    other.close()


def test_what_is_not_there_is_not_imported(end) -> None:
    refused(errno.EINVAL, lambda: Context(cmd_fd=-1))
    refused(errno.EINVAL, lambda: Context(cmd_fd=0))
    fd = os.memfd_create("no card")
    os.write(fd, os.pread(end.ctx.cmd_fd, 16, 0) + b"\xff" * 4096)
    refused(errno.EINVAL, lambda: Context(cmd_fd=fd))
    os.close(fd)
    ctx = imported(end)
    refused(errno.ENOENT, lambda: PD(ctx, handle=end.pd.handle + 1))
    refused(errno.ENOENT, lambda: PD(ctx, handle=0))
    pd = PD(ctx, handle=end.pd.handle)
    refused(errno.ENOENT, lambda: MR(pd, handle=end.mr.handle + 1))
    refused(errno.ENOENT, lambda: MR(pd, handle=0xFFFFFFFF))
    refused(errno.ENOENT, lambda: DM(ctx, handle=end.mr.handle))


def test_the_descriptor_can_be_read_and_not_changed(end) -> None:
    with pytest.raises(PermissionError):
        os.pwrite(end.ctx.cmd_fd, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(end.ctx.cmd_fd, 0)


def test_a_region_ends_by_any_handle_and_once(end) -> None:
    mr = MR(end.pd, 64, ALL)
    ctx = imported(end)
    pd = PD(ctx, handle=end.pd.handle)
    handle = lib.nupa_import_mr(pd._c, mr.handle)
    assert handle != ffi.NULL
    assert lib.nupa_dereg_mr(handle) == 0
    assert lib.nupa_dereg_mr(mr._c) == errno.EINVAL
    mr.unimport()


def test_device_memory_is_the_same_by_every_handle(end) -> None:
    dm = DM(end.ctx, AllocDmAttr(4096))
    ctx = imported(end)
    other = DM(ctx, handle=dm.handle)
    dm.copy_to_dm(0, b"same", 4)
    assert other.copy_from_dm(0, 4) == b"same"
    mr = DMMR(PD(ctx, handle=end.pd.handle), 64, DEVICE, other, 0)
    assert lib.nupa_free_dm(dm._c) == errno.EBUSY
    mr.close()
    other.unimport()
    assert dm.copy_from_dm(0, 4) == b"same"


def test_a_context_that_ended_is_not_imported(fabric) -> None:
    ctx = Context(fabric=fabric, host=0)
    fd = os.dup(ctx.cmd_fd)
    ctx.close()
    refused(errno.ENODEV, lambda: Context(cmd_fd=fd))
    os.close(fd)


# --- in another process ----------------------------------------------------------------------


def in_child(run: Callable[[socket.socket], None]) -> tuple[int, socket.socket]:
    """Returns a child that was forked before anything was opened, with a socket to it."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        there.close()
        return pid, here
    code = 1
    try:
        here.close()
        run(there)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def hand_over(sock: socket.socket, fd: int, *numbers: int) -> None:
    socket.send_fds(sock, [" ".join(map(str, numbers)).encode()], [fd])


def take(sock: socket.socket) -> tuple[int, list[int]]:
    data, fds, _, _ = socket.recv_fds(sock, 4096, 1)
    return fds[0], [int(word) for word in data.split()]


def test_another_process_uses_pool_memory_through_imported_handles(make_end) -> None:
    """The child's QP on the exporter's PD: its keys and bytes, without a copy."""

    def child(sock: socket.socket) -> None:
        fd, (pd_handle, mr_handle, dm_handle, rkey) = take(sock)
        ctx = Context(cmd_fd=fd)
        pd = PD(ctx, handle=pd_handle)
        mr = MR(pd, handle=mr_handle)
        assert (mr.rkey, mr.lkey, mr.length) == (rkey, rkey, 1024)
        dm = DM(ctx, handle=dm_handle)
        assert dm.copy_from_dm(0, 8) == b"exporter"
        dm.copy_to_dm(8, b"importer", 8)
        assert lib.nupa_free_dm(dm._c) == errno.EPERM
        refused(errno.EINVAL, lambda: MR(PD(ctx), handle=mr_handle))
        refused(errno.ENOENT, lambda: MR(pd, handle=dm_handle))
        refused(errno.ENOENT, lambda: DM(ctx, handle=mr_handle))
        refused(errno.ENOENT, lambda: PD(ctx, handle=pd_handle + 1000))
        cq = CQ(ctx, 16)
        init = QPInitAttr(e.IBV_QPT_RC, None, cq, cq, cap=QPCap(8, 8, 1, 1, 0), sq_sig_all=1)
        qp = QP(pd, init)
        sock.send(json.dumps(address(qp).as_dict()).encode())
        peer = json.loads(sock.recv(4096))
        peer_rkey, peer_addr = peer.pop("rkey"), peer.pop("addr")
        connect_to(qp, Address(**peer))
        sock.send(b"connected")
        assert sock.recv(16) == b"written"
        send = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[SGE(0, 24, mr.lkey)])
        send.set_wr_rdma(peer_rkey, peer_addr)
        qp.post_send(send)
        assert cq.wait(1, 10)[0].status is e.IBV_WC_SUCCESS
        sock.send(b"sent")
        assert sock.recv(16) == b"done"
        mr.unimport()
        dm.unimport()
        pd.unimport()
        ctx.close()

    pid, sock = in_child(child)
    end, peer = make_end(0), make_end(1)
    dm = DM(end.ctx, AllocDmAttr(4096))
    dm.copy_to_dm(0, b"exporter", 8)
    mr = DMMR(end.pd, 1024, DEVICE, dm, 0)
    hand_over(sock, end.ctx.cmd_fd, end.pd.handle, mr.handle, dm.handle, mr.rkey)
    there = Address(**json.loads(sock.recv(4096)))
    assert there.gid == end.ctx.query_gid(1, 0).gid
    keys = {"rkey": peer.mr.rkey, "addr": peer.mr.buf}
    sock.send(json.dumps(address(peer.qp).as_dict() | keys).encode())
    assert sock.recv(16) == b"connected"
    connect_to(peer.qp, there)
    assert dm.copy_from_dm(0, 16) == b"exporterimporter"
    # By the key that the exporter gave out, through the importer's QP.
    peer.mr.write(b"and peer")
    write = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[peer.mr.sge(0, 8)])
    write.set_wr_rdma(mr.rkey, 16)
    peer.qp.post_send(write)
    peer.wait_ok()
    assert dm.copy_from_dm(0, 24) == b"exporterimporterand peer"
    sock.send(b"written")
    assert sock.recv(16) == b"sent"
    assert peer.mr.read(24) == b"exporterimporterand peer"
    sock.send(b"done")
    assert os.waitpid(pid, 0)[1] == 0
    sock.close()


def test_private_memory_of_another_process_is_not_imported(make_end, capfd) -> None:
    def child(sock: socket.socket) -> None:
        fd, (pd_handle, mr_handle) = take(sock)
        ctx = Context(cmd_fd=fd)
        pd = PD(ctx, handle=pd_handle)
        refused(errno.EOPNOTSUPP, lambda: MR(pd, handle=mr_handle))
        sock.send(b"done")

    pid, sock = in_child(child)
    end = make_end(0)
    hand_over(sock, end.ctx.cmd_fd, end.pd.handle, end.mr.handle)
    assert sock.recv(16) == b"done"
    assert os.waitpid(pid, 0)[1] == 0
    sock.close()
    assert "private memory of another process" in capfd.readouterr().err


def test_an_exporter_that_is_gone_is_not_imported_from(fabric) -> None:
    def child(sock: socket.socket) -> None:
        ctx = Context(fabric=fabric, host=0)
        hand_over(sock, ctx.cmd_fd, PD(ctx).handle)
        sock.recv(1)  # until it is killed

    pid, sock = in_child(child)
    fd, (handle,) = take(sock)
    late = os.dup(fd)
    ctx = Context(cmd_fd=fd)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert [slot.pid for slot in fabric.processes()] == [os.getpid()]
    refused(errno.ENOENT, lambda: PD(ctx, handle=handle))
    refused(errno.ENODEV, lambda: Context(cmd_fd=late))
    os.close(late)
    ctx.close()
    sock.close()
