# SPDX-License-Identifier: BSD-3-Clause
"""Other readers judge the packets of wires: tshark, scapy, and tcpdump's view of the cable."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from nupa.packet.decode import fast
from nupa.packet.decode.fast import FrameFault, Icrc, Layer
from nupa.packet.scapy.transport import BTH
from nupa.packet.tables.opcodes import CNP, NAMES
from tests.common.impair import Impairment, impaired
from tests.common.namespaces import Namespace, machines
from tests.packet.shark import tshark as lua_tshark
from tests.programs import users
from tests.programs.needs import needs
from tests.unit.packet import tshark
from tests.unit.packet.test_tshark import both, compare
from tests.wire import capture, talk
from tests.wire.lab import NAMES as MACHINES
from tests.wire.lab import Wired, wired
from tests.wire.test_connections import meet

pytestmark = pytest.mark.timeout(120)

QP_1 = 1
DREQ, DREP = b"\x00\x15", b"\x00\x16"  # IBTA table 118
_PROBE = b"NUPA"  # in the private data of the keeper's DREQs
_ATTRIBUTE = 12 + 8 + 16  # behind BTH and DETH, in the MAD

#: They meet by TCP.  lab.py chooses the GIDs, -g and -x.  Wireshark takes the
#: first two bytes of a payload whose next two are 0 for an Ethertype, so no data are that short.
PROGRAMS: dict[str, list[str]] = {
    "rc_pingpong": ["ibv_rc_pingpong", "-c", "-s", "3001", "-n", "10", "-g", "0"],
    "uc_pingpong": ["ibv_uc_pingpong", "-c", "-s", "1025", "-n", "10", "-g", "0"],
    "ud_pingpong": ["ibv_ud_pingpong", "-c", "-s", "999", "-n", "10", "-g", "0"],
    "send_bw": ["ib_send_bw", "-s", "7777", "-n", "10", "-t", "8", "-b"],
    "write_bw": ["ib_write_bw", "-s", "65536", "-n", "5", "-t", "5", "-b"],
    "write_lat": ["ib_write_lat", "-s", "5", "-n", "20"],
    "read_bw": ["ib_read_bw", "-s", "20000", "-n", "5", "-t", "5", "-b"],
    "atomic_bw": ["ib_atomic_bw", "-n", "5", "-t", "5", "-b"],
    "atomic_lat": ["ib_atomic_lat", "-A", "CMP_AND_SWAP", "-n", "5"],
    "send_lat UD": ["ib_send_lat", "-c", "UD", "-s", "64", "-n", "10"],
}
#: All opcodes that these have to show.
EXPECTED = {
    *(f"RC_SEND_{what}" for what in ("FIRST", "MIDDLE", "LAST", "ONLY")),
    *("RC_SEND_LAST_WITH_IMMEDIATE", "RC_SEND_ONLY_WITH_IMMEDIATE", "RC_SEND_ONLY_WITH_INVALIDATE"),
    *(f"RC_RDMA_WRITE_{what}" for what in ("FIRST", "MIDDLE", "LAST", "ONLY")),
    *("RC_RDMA_WRITE_LAST_WITH_IMMEDIATE", "RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE"),
    "RC_RDMA_READ_REQUEST",
    *(f"RC_RDMA_READ_RESPONSE_{what}" for what in ("FIRST", "MIDDLE", "LAST", "ONLY")),
    *("RC_ACKNOWLEDGE", "RC_ATOMIC_ACKNOWLEDGE", "RC_COMPARE_SWAP", "RC_FETCH_ADD"),
    *("UC_SEND_FIRST", "UC_SEND_LAST", "UD_SEND_ONLY"),
}
MARKS = Impairment(mark=0.1)
LATE = "nupa: dropped"
SEED = 1


@dataclass(frozen=True)
class Seen:
    """The files of one run: of the left machine and the right one."""

    marked: bool  #: packets on their way
    cable: tuple[Path, Path]
    fabric: tuple[Path, Path]

    @property
    def all(self) -> tuple[Path, ...]:
        return (*self.cable, *self.fabric)


def _programs(wire: Wired) -> None:
    """Runs all of them, one after the other, with checked data."""
    tcp = wire.machines[0].ipv4  # whatever the wire has
    for name, command in PROGRAMS.items():
        talk.perftest(wire, command, tcp)
        print(f"{name} has run")
    talk.operations(wire, tcp)
    meet(wire, "rping")


@pytest.fixture(scope="module", params=["IPv4", "IPv6", "IPv4 with marks"])
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, impair: str
) -> Seen:
    folder = tmp_path_factory.mktemp("seen")
    files = [
        tuple(folder / f"{name}{suffix}" for name in MACHINES) for suffix in (".pcap", ".pcapng")
    ]
    path, marked = request.param[:4], "marks" in request.param
    found = Seen(marked, (files[0][0], files[0][1]), (files[1][0], files[1][1]))
    with ExitStack() as stack:
        pair = stack.enter_context(machines(2))
        for machine in pair:
            _segment_before_the_cable(machine)
        wire = stack.enter_context(wired(pair, users.ourselves(), ipv6=path == "IPv6"))
        if marked:
            stack.enter_context(impaired(impair, *pair, MARKS, seed=SEED))
        with ExitStack() as captures:
            for end in (0, 1):
                captures.enter_context(capture.at_cable(pair[end], pair[1 - end], found.cable[end]))
            for end in (0, 1):
                captures.enter_context(capture.of_fabric(wire, end, found.fabric[end]))
            _programs(wire)
            told = [wire.side(end).wire() for end in (0, 1)]
    for end in told:
        assert (end["malformed"], end["icrc_errors"]) == (0, 0), end
    return found


def _segment_before_the_cable(machine: Namespace) -> None:
    """One frame is one packet, where tcpdump looks."""
    features = ("tx-udp-segmentation", "off", "gro", "off")
    machine.must(needs("ethtool", "ethtool"), "-K", "eth0", *features)


def is_late(opcode: int, said: dict[str, list[str]]) -> bool:
    """Tells whether it is a CNP for a QP that was gone, which is all that our capture remarks."""
    return opcode == CNP and said["_ws.expert.message"] == [LATE]


def _is_of_a_probe(packet: bytes) -> bool:
    """Tells whether it is a keeper's DREQ, or a DREP, which answers one."""
    bth = 28 if packet[0] >> 4 == 4 else 48
    attribute = packet[bth + _ATTRIBUTE : bth + _ATTRIBUTE + 2]
    return attribute == DREP or (attribute == DREQ and _PROBE in packet)


def test_a_capture_of_the_fabric_is_the_dialogue_on_the_cable(seen: Seen) -> None:
    """Byte for byte, in each direction of each QP.  QP 1 has several senders, so their order is
    free; of the keepers' probes tcpdump sees more, as it begins first and ends last."""
    for cable, fabric in zip(seen.cable, seen.fabric, strict=True):
        on_cable, of_fabric = capture.flows(cable), capture.flows(fabric)
        assert set(of_fabric) == set(on_cable)
        for flow, packets in of_fabric.items():
            if flow.dqpn != QP_1:
                assert packets == on_cable[flow], flow
            else:
                assert not Counter(packets) - Counter(on_cable[flow]), flow
                more = Counter(on_cable[flow]) - Counter(packets)
                assert all(map(_is_of_a_probe, more)), flow
        assert len([flow for flow in of_fabric if flow.dqpn != QP_1]) > 2 * len(PROGRAMS)


def test_both_machines_have_seen_the_same_packets(seen: Seen) -> None:
    left, right = map(capture.flows, seen.cable)
    assert set(left) == set(right)
    for flow, packets in left.items():
        if flow.dqpn != QP_1:
            assert packets == right[flow], flow


def test_all_kinds_of_requests_and_answers_are_there_and_all_icrcs_are_right(seen: Seen) -> None:
    opcodes: set[str] = set()
    for file in seen.all:
        for _, headers in fast.read(file, check_icrc=True):
            assert set(headers.layer.tolist()) == {Layer.TRANSPORT}
            assert set(headers.fault.tolist()) == {FrameFault.NONE}
            assert set(headers.icrc_state.tolist()) == {Icrc.RIGHT}
            opcodes |= {NAMES[opcode] for opcode in headers.opcode.tolist()}
    assert opcodes >= EXPECTED
    assert ("CNP" in opcodes) == seen.marked


def test_scapys_own_layers_compute_the_same_icrcs(seen: Seen) -> None:
    for file in (seen.cable[0], seen.fabric[1]):
        assert capture.wrong_by_scapy(capture.frames(file)) == []


def test_tshark_finds_nothing_malformed_and_reads_the_fields_that_our_layers_read(
    seen: Seen,
) -> None:
    compared: set[str] = set()
    for file in (seen.cable[0], seen.fabric[1]):  # the others have the same packets
        for packet, said in both(file):
            remarks = {name for name in said if name.startswith("_ws.")}
            assert not remarks or is_late(packet[BTH].opcode, said), (packet, said)
            compared |= compare(packet, said)
    assert {"infiniband.aeth.syndrome", "infiniband.reth.va", "infiniband.ieth"} <= compared
    assert {"infiniband.cm.req.startpsn", "infiniband.cm.rep.localqpn"} <= compared


def test_tshark_with_our_dissector_finds_nothing_malformed_either(
    seen: Seen, tmp_path: Path
) -> None:
    """Each packet of each file has a PSN, and tshark remarks nothing."""
    fields = ("infiniband.bth.psn", "_ws.expert.message")
    wanted = ["-T", "fields", *(word for field in fields for word in ("-e", field))]
    late = {f"0\t{LATE}"} if seen.marked else set()  # a CNP, whose PSN is 0
    for file in seen.all:
        rows = lua_tshark(tmp_path, file, *wanted, *tshark.without_guessers()).splitlines()
        assert len(rows) == len(capture.frames(file))
        assert [row for row in rows if not row.strip().isdecimal() and row not in late] == []
