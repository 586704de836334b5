# SPDX-License-Identifier: BSD-3-Clause
"""The fresh fabric: hosts for the capture's addresses, queue pairs for its queue pairs, memory for
its keys."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass, field

from nupa.base.closing import Closing
from nupa.fabric import Fabric
from nupa.packet.tables.opcodes import Transport
from nupa.packet.tables.transport import GRH
from nupa.replay.flows import PacketFlow
from nupa.replay.memory import AddressRange, CapturedRegion, Key
from nupa.replay.packets import ReplayError
from nupa.replay.requests import CapturedRequest, RequestKind
from nupa.verbs import CQ, MR, MW, PD, QP, Context, QPAttr, QPCap, QPInitAttr, SendWR
from nupa.verbs import enums as e
from nupa.verbs.addr import AH, GID, AHAttr, GlobalRoute
from nupa.verbs.connection import address, connect_to
from nupa.verbs.mw import MWBindInfo

HOSTS_MAX = 254
GRH_BYTES = GRH.bytes  # before each datagram that is received
NO_KEY = 0xFFFFFF00  # invalid: the largest number of a region is 2^20

_RDMA_ACCESS = {
    RequestKind.WRITE: e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_LOCAL_WRITE,
    RequestKind.READ: e.IBV_ACCESS_REMOTE_READ,
    RequestKind.COMPARE_SWAP: e.IBV_ACCESS_REMOTE_ATOMIC | e.IBV_ACCESS_LOCAL_WRITE,
    RequestKind.FETCH_ADD: e.IBV_ACCESS_REMOTE_ATOMIC | e.IBV_ACCESS_LOCAL_WRITE,
}
_TYPES = {Transport.RC: e.IBV_QPT_RC, Transport.UC: e.IBV_QPT_UC, Transport.UD: e.IBV_QPT_UD}
_MTUS = {
    256: e.IBV_MTU_256,
    512: e.IBV_MTU_512,
    1024: e.IBV_MTU_1024,
    2048: e.IBV_MTU_2048,
}
_CAP = QPCap(max_send_wr=4, max_recv_wr=4)
_PORT = 1

_DatagramKey = tuple[str, int, int]  # address, QP, Q_Key


class ReplayHost:
    """One host: its device, its queues, and two buffers.

    All hosts share the buffers, as one message is outstanding at a time: *out* is sent, *landing*
    receives.
    """

    def __init__(self, fabric: Fabric, index: int, out: mmap.mmap, landing: mmap.mmap) -> None:
        self.ctx = Context(fabric=fabric, host=index)
        self.pd = PD(self.ctx)
        self.sends = CQ(self.ctx, 64)
        self.receives = CQ(self.ctx, 64)
        self.out = MR(self.pd, out, e.IBV_ACCESS_LOCAL_WRITE)
        self.landing = MR(self.pd, landing, e.IBV_ACCESS_LOCAL_WRITE)
        self.paths: dict[int, AH] = {}

    def qp(self, transport: Transport, qkey: int = 0) -> QP:
        """Creates a queue pair; UD is ready to send."""
        init = QPInitAttr(_TYPES[transport], None, self.sends, self.receives, cap=_CAP)
        if transport != Transport.UD:
            return QP(self.pd, init)
        attr = QPAttr()
        attr.qkey = qkey
        return QP(self.pd, init, attr)

    def path(self, to: ReplayHost) -> AH:
        """Returns the address handle of a host, for datagrams."""
        ah = self.paths.get(to.ctx.host)
        if ah is None:
            gid = to.ctx.query_gid(_PORT, 0).gid
            route = GlobalRoute(dgid=GID(gid), sgid_index=0, hop_limit=64)
            lid = to.ctx.query_port(_PORT).lid
            attr = AHAttr(dlid=lid, is_global=1, port_num=_PORT, gr=route)
            ah = self.paths[to.ctx.host] = AH(self.pd, attr)
        return ah


@dataclass(eq=False, slots=True)
class BoundWindow:
    mw: MW
    rkey: int
    open: bool = True


@dataclass(eq=False, slots=True)
class ConnectionEnd:
    """One side of a connection."""

    host: ReplayHost
    qp: QP
    windows: dict[Key, BoundWindow] = field(default_factory=dict)

    def close(self) -> None:
        for window in self.windows.values():
            window.mw.close()
        self.qp.close()


@dataclass(eq=False, slots=True)
class Connection:
    """Two connected queue pairs, or for datagrams one that sends and one that receives.

    *near* sends the requests of *flow*, *far* those of its partner.  *epochs*: the current one of
    each flow; *broken*: a request has failed on it.
    """

    flow: PacketFlow
    near: ConnectionEnd
    far: ConnectionEnd
    epochs: dict[int, int] = field(default_factory=dict)
    broken: bool = False

    def ends(self, request: CapturedRequest) -> tuple[ConnectionEnd, ConnectionEnd]:
        """Returns the requester and the responder."""
        return (self.near, self.far) if request.flow is self.flow else (self.far, self.near)

    def close(self) -> None:
        self.near.close()
        if self.far.qp is not self.near.qp:
            self.far.close()


class Stage(Closing):
    """Hosts; connections and regions are made when first needed.  A context manager.

    *mapped*: addresses are assigned to the fabric's hosts in turn, several to one if needed.
    """

    def __init__(
        self, fabric: Fabric, addresses: Iterable[str], buffer_bytes: int, mapped: bool = False
    ) -> None:
        self._out = mmap.mmap(-1, buffer_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._landing = mmap.mmap(-1, buffer_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.hosts: dict[str, ReplayHost] = {}
        self._made: dict[int, ReplayHost] = {}
        self._connections: dict[int, Connection] = {}
        self._datagram_ends: dict[_DatagramKey, ConnectionEnd] = {}
        self._regions: dict[tuple[Key, int], MR] = {}
        self._wr_id = 0
        count = len(fabric.hosts)
        try:
            for number, name in enumerate(addresses):
                index = number % count if mapped else number
                if index not in self._made:
                    self._made[index] = ReplayHost(fabric, index, self._out, self._landing)
                self.hosts[name] = self._made[index]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for host in self._made.values():
            host.ctx.close()

    def next_id(self) -> int:
        """Returns a unique wr_id."""
        self._wr_id += 1
        return self._wr_id

    def connection(self, request: CapturedRequest) -> Connection:
        """Returns the connection of a request; connects it again if needed."""
        flow = request.flow
        if request.transport == Transport.UD:
            return self._datagrams(request)
        owner = flow
        if id(flow) not in self._connections and flow.partner is not None:
            owner = flow.partner
        found = self._connections.get(id(owner))
        epochs = {id(flow): request.epoch}
        if found is not None:
            if not found.broken and found.epochs.setdefault(id(flow), request.epoch) == (
                request.epoch
            ):
                return found
            found.close()
            epochs = found.epochs | epochs
        made = self._connections[id(owner)] = self._connect(request, owner)
        made.epochs = epochs
        return made

    def _connect(self, request: CapturedRequest, owner: PacketFlow) -> Connection:
        near = ConnectionEnd(self.hosts[owner.source], self.hosts[owner.source].qp(owner.transport))
        far = near  # loopback: connected to itself
        if owner.partner is not owner:
            host = self.hosts[owner.destination]
            far = ConnectionEnd(host, host.qp(owner.transport))
        flows = [(owner, near, far)]
        if owner.partner is not owner:
            flows.append((owner.partner or PacketFlow("", "", 0, owner.transport), far, near))
        psns = [
            request.psn if flow is request.flow else (flow.requests[0].psn if flow.requests else 0)
            for flow, _, _ in flows
        ]
        mtu = _MTUS.get(request.mtu, e.IBV_MTU_4096)
        for (_, end, peer), mine, theirs in zip(flows, psns, reversed(psns), strict=True):
            # Without RNR retries: a receive is posted, or the capture had none.
            to = address(peer.qp, theirs)
            connect_to(end.qp, to, psn=mine, mtu=mtu, rnr_retry=0)
        return Connection(owner, near, far)

    def _datagrams(self, request: CapturedRequest) -> Connection:
        ends: list[ConnectionEnd] = []
        for key in _datagram_ends(request):
            if key not in self._datagram_ends:
                host = self.hosts[key[0]]
                self._datagram_ends[key] = ConnectionEnd(host, host.qp(Transport.UD, request.qkey))
            ends.append(self._datagram_ends[key])
        return Connection(request.flow, ends[0], ends[1])

    def end_datagrams(self, request: CapturedRequest) -> None:
        """Lets go of the queue pairs of a datagram that did not go as it should."""
        for key in _datagram_ends(request):
            end = self._datagram_ends.pop(key, None)
            if end is not None:
                end.close()

    def region(self, region: CapturedRegion, extent: AddressRange) -> MR:
        """Returns the memory that stands for *extent*, at the same addresses."""
        key = (region.key, extent.start)
        mr = self._regions.get(key)
        if mr is None:
            host = self.hosts[region.key[0]]
            access = 0
            for kind in region.kinds:
                access |= _RDMA_ACCESS[kind]
            if region.window:
                access |= e.IBV_ACCESS_MW_BIND | e.IBV_ACCESS_LOCAL_WRITE
            before = extent.start % mmap.PAGESIZE
            size = extent.end - extent.start
            pages = mmap.mmap(-1, before + size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory = memoryview(pages)[before:]
            mr = self._regions[key] = MR(host.pd, memory, access, iova=extent.start)
        return mr

    def key(self, region: CapturedRegion, extent: AddressRange, responder: ConnectionEnd) -> int:
        """Returns the key of *extent* on the fresh fabric, for requests to *responder*."""
        mr = self.region(region, extent)
        if not region.window:
            return mr.rkey
        window = responder.windows.get(region.key)
        if window is None or not window.open:
            window = self._bind(region, extent, mr, responder)
            responder.windows[region.key] = window
        return window.rkey

    def _bind(
        self, region: CapturedRegion, extent: AddressRange, mr: MR, responder: ConnectionEnd
    ) -> BoundWindow:
        """Binds a memory window, which a peer can invalidate."""
        access = 0
        for kind in region.kinds or {RequestKind.READ}:
            access |= _RDMA_ACCESS[kind] & ~e.IBV_ACCESS_LOCAL_WRITE
        mw = MW(responder.host.pd, e.IBV_MW_TYPE_2)
        info = MWBindInfo(mr, extent.start, extent.end - extent.start, access)
        wr = SendWR(wr_id=self.next_id(), opcode=e.IBV_WR_BIND_MW)
        wr.set_bind_wr(mw, info)
        responder.qp.post_send(wr)
        (wc,) = responder.host.sends.wait(1, timeout=10)
        wc.raise_for_status()
        return BoundWindow(mw, wr.rkey)


def _datagram_ends(request: CapturedRequest) -> tuple[_DatagramKey, _DatagramKey]:
    flow = request.flow
    return (
        (flow.source, request.source_qpn, request.qkey),
        (flow.destination, flow.dqpn, request.qkey),
    )


def hosts_for(addresses: list[str]) -> int:
    """Returns the number of hosts for *addresses*.  ReplayError past HOSTS_MAX."""
    if len(addresses) > HOSTS_MAX:
        raise ReplayError(
            f"the capture has requests between {len(addresses)} addresses; a fabric has at most "
            f"{HOSTS_MAX} hosts: a display filter of `tshark -w` takes some of them"
        )
    return max(len(addresses), 1)
