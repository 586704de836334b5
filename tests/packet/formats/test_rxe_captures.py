# SPDX-License-Identifier: BSD-3-Clause
"""Three captures of the kernel's rdma_rxe (tests/data/record_rxe.py): decoder, layers, trace and
replay read another implementation's packets as tshark does."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from scapy.utils import rdpcap

from nupa.cli import main
from nupa.diagram.draw.diagram import read_diagram
from nupa.diagram.find.index import read_index
from nupa.packet.decode import fast
from nupa.packet.decode.fast import FrameFault, Icrc, Layer
from nupa.packet.scapy.transport import BTH
from nupa.packet.tables.opcodes import NAMES, OPCODES
from nupa.replay import replay
from tests.unit.packet.test_tshark import both, compare

DATA = Path(__file__).parents[2] / "data"
ETH0, ANY, MORE = DATA / "rxe_eth0.pcap", DATA / "rxe_any.pcap", DATA / "rxe_more.pcap"
EACH = pytest.mark.parametrize("file", [ETH0, ANY, MORE], ids=["eth0", "any", "more"])


@EACH
def test_each_packet_is_decoded_to_its_transport_and_its_icrc_is_right(file: Path) -> None:
    count = 0
    for batch, headers in fast.read(file, check_icrc=True):
        count += len(batch)
        assert set(headers.layer.tolist()) == {Layer.TRANSPORT}
        assert set(headers.fault.tolist()) == {FrameFault.NONE}
        assert set(headers.icrc_state.tolist()) == {Icrc.RIGHT}
    assert count > 40
    assert file.stat().st_size < 36 << 10


@EACH
def test_the_layers_and_the_decoder_find_the_same_and_the_layers_compute_the_icrc(
    file: Path,
) -> None:
    [(_, headers)] = fast.read(file)
    packets = rdpcap(str(file))
    assert len(packets) == len(headers)
    for i, packet in enumerate(packets):
        bth = packet[BTH]
        assert (bth.opcode, bth.dqpn, bth.psn, bth.pkey, bth.padcount) == (
            headers.opcode[i], headers.dqpn[i], headers.psn[i], headers.pkey[i],
            headers.padcount[i],
        )  # fmt: skip
        said = bth.icrc
        bth.icrc = None
        assert packet.__class__(bytes(packet))[BTH].icrc == said


@EACH
def test_tshark_agrees_field_by_field(file: Path) -> None:
    compared: set[str] = set()
    for packet, said in both(file):
        compared |= compare(packet, said)
    assert {"infiniband.bth.psn", "infiniband.invariant.crc", "infiniband.aeth.msn"} <= compared
    if file != ETH0:
        assert {"infiniband.cm.req.startpsn", "infiniband.cm.rep.localqpn"} <= compared
    else:
        assert {"infiniband.reth.va", "infiniband.atomicacketh.origremdt"} <= compared


@EACH
def test_psns_of_each_stream_of_requests_follow_one_another(file: Path) -> None:
    """A READ takes as many PSNs as it has responses (IBTA 9.7.2)."""
    [(_, headers)] = fast.read(file)
    streams: defaultdict[tuple[bytes, bytes, int], list[tuple[int, int]]] = defaultdict(list)
    for i, opcode in enumerate(headers.opcode.tolist()):
        if OPCODES[opcode].request and headers.dqpn[i] != 1:
            psns = max(1, -(-headers.dma_bytes[i] // 1024)) if "READ" in NAMES[opcode] else 1
            key = (headers.source(i), headers.destination(i), headers.dqpn[i])
            streams[key].append((headers.psn[i], psns))
    assert len(streams) >= 4
    for stream in streams.values():
        for (psn, psns), (following, _) in pairwise(stream):
            assert following == (psn + psns) % (1 << 24)


def operations(file: Path) -> Counter[tuple[str, int]]:
    return Counter((one.op, one.payload_bytes) for one in read_index(file).transfers)


def test_trace_finds_each_transfer_of_the_programs_on_eth0() -> None:
    """perftest's five READs of the same bytes are five transfers."""
    assert operations(ETH0) == {
        ("SEND", 1101): 4,
        ("SEND", 101): 4,
        ("SEND", 61): 4,
        ("RDMA WRITE", 1027): 10,
        ("RDMA READ", 1026): 5,
        ("FETCH AND ADD", 8): 5,
    }


def test_trace_finds_each_transfer_of_the_programs_on_any() -> None:
    found = operations(ANY)
    assert {what: n for what, n in found.items() if not what[0].startswith("CM")} == {
        ("SEND", 16): 12,
        ("RDMA READ", 100): 3,
        ("RDMA WRITE", 100): 3,
        ("SEND WITH IMM", 50): 4,
    }
    assert {what[0] for what in found if what[0].startswith("CM")} == {"CM REQ", "CM SIDR_REQ"}


def test_trace_finds_each_transfer_of_the_further_programs() -> None:
    found = operations(MORE)
    assert {what: n for what, n in found.items() if not what[0].startswith("CM ")} == {
        ("SEND", 16): 8,
        ("RDMA READ", 65): 2,
        ("RDMA WRITE", 65): 2,
        ("SEND", 129): 6,
        ("SEND", 2101): 4,
        ("CMP AND SWP", 8): 5,
        ("RDMA READ", 1025): 5,
        ("RDMA WRITE", 1333): 5,
        ("SEND", 19): 5,
    }


def test_a_packet_that_any_shows_at_two_interfaces_is_no_retry(tmp_path: Path) -> None:
    """A bridge, and its port: SLL2 has the index of the interface in bytes 4 to 7."""
    raw = ANY.read_bytes()
    twice, at = bytearray(raw[:24]), 24
    while at < len(raw):
        behind = at + 16 + int.from_bytes(raw[at + 8 : at + 12], "little")
        index = at + 16 + 4
        twice += raw[at:behind] + raw[at:index] + bytes((0, 0, 0, 9)) + raw[index + 4 : behind]
        at = behind
    file = tmp_path / "twice.pcap"
    file.write_bytes(twice)
    assert operations(file) == operations(ANY)
    index_of = read_index(file)
    assert index_of.packets == 2 * read_index(ANY).packets
    assert not any(one.marks for one in index_of.transfers)
    [read, *_] = [one for one in index_of.transfers if one.op == "RDMA READ"]
    diagram = read_diagram(index_of, read)
    assert [row.count for row in diagram.rows] == [1, 1]
    report = replay(file)
    assert (report.played, report.matched) == (22, 22)


@EACH
def test_trace_draws_each_transfer(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = read_index(file)
    assert index.unassigned == 0
    for transfer in index.transfers:
        assert main(["trace", str(file), "--number", str(transfer.number), "--all"]) == 0
        drawn = capsys.readouterr().out
        assert drawn.count("►") + drawn.count("◄") == len(index.packets_of(transfer))


@pytest.mark.parametrize(
    ("file", "played", "left_out"),
    [
        (ETH0, 32, {}),
        (ANY, 22, {"management datagrams": 7}),
        (MORE, 42, {"management datagrams": 14}),
    ],
    ids=["eth0", "any", "more"],
)
def test_replay_plays_the_requests_and_names_what_it_leaves_out(
    file: Path, played: int, left_out: dict[str, int]
) -> None:
    report = replay(file)
    assert (report.played, report.matched, report.differed) == (played, played, 0)
    assert dict(report.left_out) == left_out


@EACH
def test_capture_reads_and_filters_them(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "-r", str(file), "--json", "-f", "psn > 0 and va > 0"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(found) == {ETH0: 20, ANY: 6, MORE: 19}[file]
