# SPDX-License-Identifier: BSD-3-Clause
"""NVMe over Fabrics by a process (nupa.verbs), with a guest's kernel at the other end.

`nvme_process.py ask ADDRESS PORT NQN` is an initiator of the kernel's nvmet-rdma: Connect (the
kernel fetches its data by RDMA READ), Property Get, Property Set, Identify (RDMA WRITE).
`nvme_process.py hold ADDRESS PORT NQN` connects, says so, and waits until it is killed.
`nvme_process.py serve PORT NQN` is a target of the kernel's nvme-rdma: it rejects one request,
accepts the next, reads the data of the Connect command and refuses that.
"""

from __future__ import annotations

import signal
import struct
import sys
from collections.abc import Callable

from nupa.verbs import MR, QPCap, QPInitAttr
from nupa.verbs import cm_enums as ce
from nupa.verbs import enums as e
from nupa.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam

COMMAND, ANSWER, CONNECT, IDENTIFY = 64, 16, 1024, 4096
DEPTH = 32
#: Reject status (NVMe over Fabrics, RDMA transport): no resources.
NO_RESOURCES = 5
INVALID_PARAMETERS = 0x4182  # of Connect; do not retry
_FABRICS, _IDENTIFY_OP = 0x7F, 0x06
_SET, _CONNECT, _GET = 0, 1, 4
_KEYED = 0x40  # SGL: keyed data block; as flags of a command: SGLs
_CAP, _CC = 0, 0x14
_ENABLE = 0x460001
_WAIT_S = 120.0


def say(line: str) -> None:
    print(line, flush=True)


def qp_init() -> QPInitAttr:
    return QPInitAttr(qp_type=e.IBV_QPT_RC, cap=QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH))


def keyed(mr: MR, length: int) -> bytes:
    """Returns a data block of an SGL."""
    size = length.to_bytes(3, "little")
    return struct.pack("<Q", mr.buf) + size + struct.pack("<IB", mr.rkey, _KEYED)


class Initiator:
    """An admin queue to the kernel's target."""

    def __init__(self, address: str, port: str) -> None:
        info = AddrInfo(None, address, None, port, ce.RDMA_PS_TCP)
        self.id = CMID(info, qp_init())
        self.command = self.id.reg_msgs(COMMAND)
        self.answer = self.id.reg_msgs(ANSWER)
        access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE
        self.data = MR(self.id.pd, IDENTIFY, access)
        param = ConnParam(resources=1, depth=0, retry=7, rnr_retry=7)
        param.set_private_data(struct.pack("<5H22x", 0, 0, DEPTH, DEPTH - 1, 0))
        self.id.connect(param)

    def ask(self, command: bytes) -> int:
        """Sends a command and returns the answer's result."""
        self.id.post_recv(self.answer)
        self.command.write(command.ljust(COMMAND, b"\0"), COMMAND)
        self.id.post_send(self.command)
        assert self.id.get_send_comp(_WAIT_S).status == e.IBV_WC_SUCCESS
        assert self.id.get_recv_comp(_WAIT_S).status == e.IBV_WC_SUCCESS
        result, _, _, _, status = struct.unpack("<QHHHH", self.answer.read(ANSWER, 0))
        assert status >> 1 == 0, f"status {status >> 1:#x}"
        return int(result)

    def fabrics(self, kind: int, length: int, rest: bytes) -> int:
        """Sends a command of Fabrics whose data is at most *length* bytes."""
        head = struct.pack("<BBHB19x", _FABRICS, _KEYED, 1, kind)
        return self.ask(head + keyed(self.data, length) + rest)

    def connect(self, nqn: str) -> int:
        host = (bytes(range(16)) + b"\xff\xff").ljust(256, b"\0")
        names = nqn.encode().ljust(256, b"\0") + b"host".ljust(256, b"\0")
        self.data.write(host + names, len(host + names))
        rest = struct.pack("<HHHBxI", 0, 0, DEPTH - 1, 0, 0)
        return self.fabrics(_CONNECT, CONNECT, rest) & 0xFFFF

    def get(self, offset: int) -> int:
        return self.fabrics(_GET, 0, struct.pack("<B3xI", 1, offset))

    def enable(self) -> None:
        self.fabrics(_SET, 0, struct.pack("<B3xIQ", 0, _CC, _ENABLE))

    def identify(self) -> bytes:
        head = struct.pack("<BBHI16x", _IDENTIFY_OP, _KEYED, 4, 0)
        self.ask(head + keyed(self.data, IDENTIFY) + struct.pack("<I", 1))
        return self.data.read(IDENTIFY, 0)


def ask(address: str, port: str, nqn: str) -> None:
    queue = Initiator(address, port)
    say(f"controller {queue.connect(nqn)}")
    say(f"capabilities {queue.get(_CAP):#x}")
    queue.enable()
    found = queue.identify()[768:1024].rstrip(b"\0").decode()
    say(f"identified {found}")
    queue.id.disconnect()
    queue.id.close()
    say("disconnected")


def hold(address: str, port: str, nqn: str) -> None:
    queue = Initiator(address, port)
    say(f"controller {queue.connect(nqn)}")
    signal.pause()  # until it is killed


def expect(channel: CMEventChannel, kind: int) -> CMEvent:
    event = CMEvent(channel, _WAIT_S)
    assert event.event_type == kind, (event.event_type.name, event.status)
    return event


def serve(port: str, nqn: str) -> None:
    with CMEventChannel() as channel:
        listener = CMID(channel)
        listener.bind_addr(AddrInfo(None, None, port, None, ce.RDMA_PS_TCP, ce.RAI_PASSIVE))
        listener.listen()
        say("listens")
        refuse(channel, listener)
        command, data = take(channel, listener)
        say(f"connect from {data[512:768].rstrip(bytes(1)).decode()} to {nqn}")
        assert data[256:512].rstrip(b"\0").decode() == nqn
        assert command[0] == _FABRICS
        assert command[4] == _CONNECT


def refuse(channel: CMEventChannel, listener: CMID) -> None:
    request = expect(channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    fields = struct.unpack_from("<4H", request.private_data or b"")
    say(f"request recfmt {fields[0]} qid {fields[1]} queue {fields[3] + 1}")
    child = CMID(request, listen_id=listener)
    child.reject(struct.pack("<HH", 0, NO_RESOURCES))
    request.ack_cm_event()
    child.close()


def take(channel: CMEventChannel, listener: CMID) -> tuple[bytes, bytes]:
    """Accepts, reads the data of the Connect command, and refuses that."""
    request = expect(channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    child = CMID(request, listen_id=listener)
    child.create_qp(qp_init())
    command, answer, data = child.reg_msgs(COMMAND), child.reg_msgs(ANSWER), child.reg_msgs(CONNECT)
    child.post_recv(command)
    param = ConnParam(resources=1, depth=1, rnr_retry=7)
    param.set_private_data(struct.pack("<HH28x", 0, DEPTH))
    request.ack_cm_event()
    child.accept(param)
    expect(channel, ce.RDMA_CM_EVENT_ESTABLISHED).ack_cm_event()
    say("established")
    assert child.get_recv_comp(_WAIT_S).status == e.IBV_WC_SUCCESS
    sqe = command.read(COMMAND, 0)
    (address,), low, key = struct.unpack("<Q", sqe[24:32]), sqe[32:35], sqe[35:39]
    length = int.from_bytes(low, "little")
    assert length == CONNECT
    child.post_read(data, length, address, int.from_bytes(key, "little"), e.IBV_SEND_SIGNALED)
    assert child.get_send_comp(_WAIT_S).status == e.IBV_WC_SUCCESS
    answer.write(sqe[2:4].rjust(14, b"\0") + struct.pack("<H", INVALID_PARAMETERS << 1), ANSWER)
    child.post_send(answer)
    assert child.get_send_comp(_WAIT_S).status == e.IBV_WC_SUCCESS
    expect(channel, ce.RDMA_CM_EVENT_DISCONNECTED).ack_cm_event()
    say("disconnected")
    taken = sqe, data.read(CONNECT, 0)
    child.close()
    return taken


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {"ask": ask, "serve": serve, "hold": hold}
    roles[sys.argv[1]](*sys.argv[2:])
