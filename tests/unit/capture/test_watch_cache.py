# SPDX-License-Identifier: BSD-3-Clause
"""Level cache: lines of the fast channel as CXL.cache messages, byte for byte, and legal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from nupa.core.watch import Watch, WatchPacket
from nupa.cxl.cache.coherence import Mesi
from nupa.cxl.cache.states import (
    SNOOPED,
    STORES,
    DataDirection,
    HostAnswer,
    SnoopOutcome,
    may_answer,
    may_ask,
)
from nupa.cxl.cache.tables import D2HRspOpcode, Grant, H2DReqOpcode, H2DRspOpcode
from nupa.fabric import Fabric
from nupa.packet.scapy.link import Nupa
from nupa.packet.tables import cxl_cache as tables
from nupa.packet.tables.cxl_cache import CacheChannel
from nupa.packet.tables.record import Direction, Flag, Kind, Level, pack
from nupa.verbs import connect
from nupa.verbs import enums as e
from tests.unit.capture.watched import one_sided, rest, seen, send
from tests.unit.conftest import End, Pair

OUT, IN = Direction.OUTBOUND, Direction.INBOUND
D2H = (CacheChannel.D2H_REQ, CacheChannel.D2H_RSP, CacheChannel.D2H_DATA)


class Message(NamedTuple):
    """A packet, decoded by the tables."""

    host: int
    direction: int
    front: dict[str, int]
    fields: dict[str, int]
    data: bytes
    packet: WatchPacket

    @property
    def name(self) -> str:
        return tables.name_of(self.front["channel"], self.fields.get("opcode", 0))


def messages(watch: Watch) -> list[Message]:
    found = []
    for packet in rest(watch):
        assert (packet.level, packet.kind) == (Level.CACHE, Kind.CXL_CACHE)
        front = tables.CXL_CACHE.decode(packet.data, 24)
        layout = tables.MESSAGES[CacheChannel(front["channel"])]
        fields = layout.decode(packet.data, 40)
        data = packet.data[40 + layout.bytes :]
        found.append(Message(packet.host, packet.direction, front, fields, data, packet))
    return found


# --- bytes ---

INV, SHD, EXC, MOD = range(4)
# Host of the port, channel, opcode; states of producer and consumer before and after.
Steps = list[tuple[str, CacheChannel, int, tuple[int, int], tuple[int, int]]]
WRITTEN: Steps = [
    ("producer", CacheChannel.D2H_REQ, 2, (INV, INV), (INV, INV)),
    ("producer", CacheChannel.H2D_RSP, 4, (INV, INV), (EXC, INV)),
    ("producer", CacheChannel.H2D_DATA, 0, (EXC, INV), (EXC, INV)),
    ("consumer", CacheChannel.D2H_REQ, 3, (MOD, INV), (MOD, INV)),
    ("producer", CacheChannel.H2D_REQ, 1, (MOD, INV), (MOD, INV)),
    ("producer", CacheChannel.D2H_RSP, 7, (MOD, INV), (SHD, INV)),
    ("producer", CacheChannel.D2H_DATA, 0, (SHD, INV), (SHD, INV)),
    ("consumer", CacheChannel.H2D_RSP, 4, (SHD, INV), (SHD, SHD)),
    ("consumer", CacheChannel.H2D_DATA, 0, (SHD, SHD), (SHD, SHD)),
]
GRANTED = {INV: 3, SHD: 1, EXC: 2, MOD: 6}


def expected(
    sequence: Iterator[int], transfer: int, at: int, hosts: dict[str, int], line: bytes
) -> Iterator[bytes]:
    """Yields the packets of the first message of a ring, made by the tables alone."""
    for who, channel, opcode, before, after in WRITTEN:
        own = who != "producer"
        number = next(sequence)
        fields = {
            CacheChannel.D2H_REQ: {"opcode": opcode, "address": at},
            CacheChannel.H2D_REQ: {"opcode": opcode, "address": at},
            CacheChannel.D2H_RSP: {"opcode": opcode},
            CacheChannel.H2D_RSP: {
                "opcode": opcode,
                "rsp_data": GRANTED[after[own]],
                "rsp_pre": int(own),
            },
        }.get(channel, {})
        data = b""
        if channel in tables.DATA_CHANNELS:
            data = bytes(64) if before == (EXC, INV) else line
        flags = Flag.FIRST if number == 0 else 0
        direction = OUT if channel in D2H else IN
        yield (
            pack(5, 7, direction, flags, transfer, hosts[f"{who} port"], hosts[who], number)
            + tables.CXL_CACHE.encode(
                channel=channel,
                role=1 + own,
                before=before[own],
                after=after[own],
                peer_before=before[not own],
                peer_after=after[not own],
                peer=hosts["producer" if own else "consumer"],
                at=at,
            )
            + tables.MESSAGES[channel].encode(**fields)
            + data
        )


def test_a_line_becomes_messages_that_the_tables_make_byte_for_byte(
    fabric: Fabric, pair: Pair
) -> None:
    with Watch(fabric, ("cache", "transport")) as watch:
        pair.a.mr.write(b"twenty bytes of data", 20)
        send(pair, 20)
        found = [p for p in rest(watch) if p.level == Level.CACHE]
    at = int.from_bytes(found[0].data[32:40], "big")
    ports = [host.port for host in fabric.hosts]
    hosts = {"producer": 0, "consumer": 1, "producer port": ports[0], "consumer port": ports[1]}
    line = found[6].data[44:]
    wanted = list(expected(count(), found[0].transfer, at, hosts, line))
    assert [packet.data for packet in found[:9]] == wanted
    # struct nupa_msg: tag of the first lap, SEND, first and last; the payload behind 32 bytes
    assert line[:4] == (1).to_bytes(4, "little")
    assert line[4] == 1
    assert line[5] & 3 == 3
    assert line[32:52] == b"twenty bytes of data"
    assert found[8].data[44:] == line


def test_scapy_dissects_what_was_captured_and_builds_the_same(fabric: Fabric, pair: Pair) -> None:
    with Watch(fabric, ("cache",)) as watch:
        send(pair, 8)
        found = rest(watch)
    assert len(found) == 18
    for packet in found:
        layers = Nupa(packet.data)
        assert layers.level == Level.CACHE
        assert bytes(layers) == packet.data
    assert "RdOwn" in Nupa(found[0].data).summary()


# --- legal, by the tables of the CXL.cache model ---


def test_both_tables_have_the_same_states() -> None:
    assert {int(one): one.name for one in Mesi} == tables.STATES


class Home:
    """Checks messages one by one, as the home agent of all lines and as their caches."""

    def __init__(self) -> None:
        self.states: dict[int, dict[int, int]] = {}
        self.asked: dict[tuple[int, int], Message] = {}
        self.snooped: dict[tuple[int, int], Message] = {}
        self.owed: Counter[tuple[str, int, int]] = Counter()
        self.seen: Counter[str] = Counter()

    def take(self, message: Message) -> None:
        front, fields, host = message.front, message.fields, message.host
        channel, at = CacheChannel(front["channel"]), front["at"]
        states = self.states.setdefault(at, {})
        assert message.direction == (OUT if channel in D2H else IN)
        self.seen[message.name] += 1
        for who, before in ((host, front["before"]), (front["peer"], front["peer_before"])):
            if before == MOD:  # a store, which is not announced
                states[who] = STORES[Mesi(states.get(who, INV))]
            assert states.get(who, INV) == before
        assert channel not in (CacheChannel.D2H_REQ, CacheChannel.H2D_REQ) or (
            fields["address"] == at
        )
        getattr(self, channel.name.lower())(message, host)
        changes = channel in (CacheChannel.D2H_RSP, CacheChannel.H2D_RSP)
        assert changes or front["before"] == front["after"]
        assert front["peer_before"] == front["peer_after"]
        states[host] = front["after"]
        owners = [who for who, state in states.items() if state in (EXC, MOD)]
        assert not owners or [who for who in states if states[who] != INV] == owners

    def d2h_req(self, message: Message, host: int) -> None:
        may_ask(message.name, Mesi(message.front["before"]))
        assert (host, message.fields["cqid"]) not in self.asked
        self.asked[host, message.fields["cqid"]] = message

    def h2d_req(self, message: Message, host: int) -> None:
        assert message.front["before"] != INV  # the snoop filter knows who has it
        [asked] = [
            m
            for m in self.asked.values()
            if m.front["at"] == message.front["at"] and m.host != host
        ]
        assert (message.name == "SnpData") == (asked.name == "RdShared")
        self.snooped[host, message.fields["uqid"]] = message

    def d2h_rsp(self, message: Message, host: int) -> None:
        snoop = self.snooped.pop((host, message.fields["uqid"]))
        assert snoop.front["at"] == message.front["at"]
        response, before = D2HRspOpcode(message.fields["opcode"]), Mesi(message.front["before"])
        outcome = SnoopOutcome(response, Mesi(message.front["after"]), "Fwd" in response.name)
        assert outcome in SNOOPED[H2DReqOpcode(snoop.fields["opcode"]), before]
        self.owed["D2H", host, message.fields["uqid"]] += outcome.has_data

    def d2h_data(self, message: Message, host: int) -> None:
        self.owed["D2H", host, message.fields["uqid"]] -= 1
        self.last = message.data

    def h2d_rsp(self, message: Message, host: int) -> None:
        asked = self.asked.pop((host, message.fields["cqid"]))
        assert asked.front["at"] == message.front["at"]
        assert not self.snooped
        row = may_ask(asked.name, Mesi(message.front["before"]))
        data = DataDirection.NONE if asked.name == "RdOwnNoData" else DataDirection.TO_DEVICE
        grant, go = Grant(message.fields["rsp_data"]), H2DRspOpcode(message.fields["opcode"])
        may_answer(row, HostAnswer((go,), grant, data, Mesi(message.front["after"])))
        self.owed["H2D", host, message.fields["cqid"]] += data is DataDirection.TO_DEVICE
        self.reads = asked.name == "RdShared"

    def h2d_data(self, message: Message, host: int) -> None:
        self.owed["H2D", host, message.fields["cqid"]] -= 1
        assert message.data == (self.last if self.reads else bytes(64))

    def close(self) -> None:
        assert not self.asked
        assert not self.snooped
        assert not any(self.owed.values())


def test_all_messages_of_mixed_traffic_are_legal(
    fabric: Fabric, make_pair: Callable[..., Pair]
) -> None:
    pair, home = make_pair(), Home()
    datagrams = make_pair(e.IBV_QPT_UC)
    with Watch(fabric, ("cache",)) as watch:
        for i in range(600):  # two laps of a ring, of messages and of answers
            send(datagrams if i % 7 == 0 else pair, 1 + 13 * i % 300)
            opcode = (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_ATOMIC_FETCH_AND_ADD)[i % 3]
            pair.a.qp.post_send(one_sided(pair, opcode, 8 if i % 3 == 2 else 64))
            pair.a.wait_ok()
            for message in messages(watch):
                home.take(message)
        for _ in range(900):
            send(pair, 20)
        for message in messages(watch):
            home.take(message)
    home.close()
    assert home.seen["RdOwnNoData"] > 400  # lines of the second lap
    assert home.seen["SnpInv"] == home.seen["RspIHitSE"] == home.seen["RdOwnNoData"]
    assert home.seen["RdShared"] == home.seen["RdOwn"] + home.seen["RdOwnNoData"]
    assert home.seen["D2H Data"] == home.seen["RdShared"]


def test_the_records_of_a_transfer_tell_its_number_at_every_level(
    fabric: Fabric, pair: Pair
) -> None:
    with Watch(fabric, ("cache", "transport", "queue")) as watch:
        send(pair, 100)
        found = rest(watch)
    by_level = {level: [p for p in found if p.level == level] for level in Level}
    [transfer] = {p.transfer for p in by_level[Level.CACHE]}
    assert transfer == by_level[Level.TRANSPORT][0].transfer
    assert [p.sequence for p in by_level[Level.CACHE]] == list(range(18))
    assert by_level[Level.CACHE][-1].flags & Flag.LAST


def test_processes_of_one_host_send_nothing_through_its_port(
    fabric: Fabric, make_end: Callable[..., End]
) -> None:
    a, b = make_end(0), make_end(0)
    connect(a.qp, b.qp)
    with Watch(fabric, ("cache", "transport")) as watch:
        send(Pair(a, b), 8)
        assert {p.level for p in rest(watch)} == {Level.TRANSPORT}


def test_other_levels_are_as_they_were(fabric: Fabric, pair: Pair) -> None:
    with Watch(fabric, ("tlp", "queue", "transport", "net")) as watch:
        send(pair, 20)
        assert not seen(watch, Level.CACHE)
