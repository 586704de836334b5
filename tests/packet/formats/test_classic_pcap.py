# SPDX-License-Identifier: BSD-3-Clause
"""Classic pcap files, of µs and ns, of either endianness, of Ethernet, SLL and SLL2, are read as
tshark reads them.  Damage is named with file and offset."""

from __future__ import annotations

import io
import re
import struct
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import IO, cast

import pytest

from nupa.cli import main
from nupa.diagram.find.index import read_index
from nupa.packet.decode import fast
from nupa.packet.decode.fast import FrameFault, Icrc, Layer
from nupa.packet.pcapng.reader import Packet, PcapngError, Reader
from nupa.replay import replay
from tests.packet.shark import run

DATA = Path(__file__).parents[2] / "data"
ETH0, ANY = DATA / "rxe_eth0.pcap", DATA / "rxe_any.pcap"
TIME_NS = 1_700_000_000_123_456_789
ETHERNET, SLL, SLL2 = 1, 113, 276
MICRO, NANO = 0xA1B2C3D4, 0xA1B23C4D


def header(order: str = "<", magic: int = MICRO, linktype: int = ETHERNET, minor: int = 4) -> bytes:
    """Returns a header (draft-ietf-opsawg-pcap, 4): magic, version, two zeros, snap length,
    type."""
    return struct.pack(order + "IHHIIII", magic, 2, minor, 0, 0, 65535, linktype)


def record(
    data: bytes, order: str = "<", fraction: int = 0, original: int | None = None, size: int = -1
) -> bytes:
    """Returns a record (5): seconds, fraction, captured length, original length."""
    captured = len(data) if size < 0 else size
    length = len(data) if original is None else original
    return struct.pack(order + "4I", TIME_NS // 10**9, fraction, captured, length) + data


def read(data: bytes) -> list[Packet]:
    return list(Reader(io.BytesIO(data)))


# --- the file ---


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "fraction", "ns"), [(MICRO, 7, 7000), (NANO, 7, 7)])
def test_either_endianness_and_resolution_is_read(
    order: str, magic: int, fraction: int, ns: int
) -> None:
    data = header(order, magic) + record(b"abc", order, fraction) + record(b"d", order, 0, 99)
    reader = Reader(io.BytesIO(data))
    first, second = reader
    assert (first.ts_ns, first.data, first.original_bytes) == (
        1_700_000_000 * 10**9 + ns,
        b"abc",
        3,
    )
    assert (second.data, second.original_bytes, second.options) == (b"d", 99, ())
    assert (first.interface.linktype, first.interface.snaplen, first.interface.name) == (
        ETHERNET, 65535, "",
    )  # fmt: skip
    assert reader.section is not None
    assert reader.section.big_endian == (order == ">")


def test_a_file_without_packets_and_one_with_the_length_of_an_fcs_are_read() -> None:
    assert read(header()) == []
    [packet] = read(header(linktype=0x5400_0001) + record(b"x"))
    assert packet.interface.linktype == ETHERNET


class Drip(io.BytesIO):
    """A pipe that returns five bytes at a time."""

    def read1(self, _size: int | None = -1, /) -> bytes:
        return self.read(5)


def test_a_pipe_that_gives_little_at_a_time_gives_the_same_packets() -> None:
    with Reader(ANY) as reader:
        whole = list(reader)
    assert list(Reader(cast(IO[bytes], Drip(ANY.read_bytes())))) == whole
    assert len(whole) > 40


@pytest.mark.parametrize("kind", ["pcap", "nsecpcap", "pcapng"])
@pytest.mark.parametrize("file", [ETH0, ANY], ids=["eth0", "any"])
def test_what_editcap_writes_gives_the_same_packets(file: Path, kind: str, tmp_path: Path) -> None:
    run(tmp_path, "editcap", "-F", kind, file, tmp_path / "out")
    unit = 1000 if kind == "pcap" else 1
    with Reader(file) as expected, Reader(tmp_path / "out") as reader:
        for one, other in zip(expected, reader, strict=True):
            assert (other.data, other.original_bytes) == (one.data, one.original_bytes)
            assert other.ts_ns == one.ts_ns // unit * unit
            assert other.interface.linktype == one.interface.linktype


@pytest.mark.parametrize("file", [ETH0, ANY], ids=["eth0", "any"])
def test_tshark_reads_the_same_times_lengths_and_psns(file: Path, tmp_path: Path) -> None:
    fields = ("frame.time_epoch", "frame.len", "infiniband.bth.psn")
    shown = run(
        tmp_path, "tshark", "-n", "-r", file, "-T", "fields",
        *(word for field in fields for word in ("-e", field)),
    )  # fmt: skip
    [(batch, headers)] = fast.read(file)
    ours = [(Decimal(row[0]) / 10**9, row[5], headers.psn[i]) for i, row in enumerate(batch.rows())]
    theirs = [line.split("\t") for line in shown.splitlines()]
    assert [(Decimal(time), int(size), int(psn)) for time, size, psn in theirs] == ours


GOOD = header() + record(b"data")
END = len(GOOD)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GOOD[:20], "at byte 0: the header of the pcap file is incomplete"),
        (header(minor=2), "at byte 0: the pcap file has version 2.2; 2.4 is supported"),
        (header(linktype=1 << 20), "at byte 0: .*link type is 0x100000; link types have 16 bits"),
        (GOOD + b"abc", f"at byte {END}: 3 bytes are not a packet's header"),
        (GOOD + record(b"abc", size=9, original=9), f"at byte {END}: a packet has 9 bytes"),
        (GOOD[:-1], "at byte 24: a packet has 4 bytes, of which 3 are there"),
        (GOOD + record(b"", size=(16 << 20) + 1), f"at byte {END}: .*longer than 16 MiB"),
        (GOOD + record(b"", fraction=10**6), f"at byte {END}: .*fraction of its time is a second"),
        (GOOD + record(b"abc", original=2), f"at byte {END}: .*more bytes were captured"),
        (b"\xa1\xb2\xcd\x34" + bytes(40), "Kuznetzov's longer packet headers: convert it first"),
        (b"\x1f\x8b\x08\x00" + bytes(40), "compressed by gzip: convert it first"),
    ],
)  # fmt: skip
def test_damage_is_named_with_its_place(data: bytes, message: str) -> None:
    with pytest.raises(PcapngError, match=message):
        read(data)


@pytest.mark.parametrize(("command", "status"), [("capture -r", 1), ("trace", 1), ("replay", 2)])
def test_the_commands_name_file_and_offset_of_damage(
    command: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "torn.pcap"
    file.write_bytes(ANY.read_bytes()[:-1])
    assert main([*command.split(), str(file)]) == status
    said = capsys.readouterr()
    expected = rf"{re.escape(str(file))}: at byte \d+: a packet has \d+ bytes, of which \d+ are"
    assert re.search(expected, said.err + said.out)


def test_capture_reads_from_stdin_what_tcpdump_pipes(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "nupa.cli", "capture", "-r", "-", "-f", "opcode == UD_SEND_ONLY"]
    done = subprocess.run(
        argv, input=ANY.read_bytes(), capture_output=True, timeout=50, check=True, cwd=tmp_path
    )
    assert done.stdout.decode().count("CM ") == 7


def test_capture_writes_a_pcapng_that_tshark_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.pcapng"
    assert main(["capture", "-r", str(ANY), "-w", str(file)]) == 0
    with Reader(ANY) as reader:
        count = len(list(reader))
    assert f"{count} packets captured" in capsys.readouterr().err
    shown = [
        run(tmp_path, "tshark", "-n", "-r", path, "-t", "e").splitlines() for path in (ANY, file)
    ]
    assert shown[0] == shown[1]


# --- the link ---


def frames() -> list[bytes]:
    with Reader(ETH0) as reader:
        return [packet.data for packet in reader]


# LINKTYPE_LINUX_SLL: packet type, ARPHRD, address length, address, protocol.
# LINKTYPE_LINUX_SLL2: protocol, reserved, interface, ARPHRD, packet type, address length, address.
TAG = bytes.fromhex("8100 6005")  # 802.1Q, priority 3, VLAN 5
LINKS = {
    "ethernet, tagged": (ETHERNET, lambda f: f[:12] + TAG + f[12:]),
    "ethernet, tagged twice": (ETHERNET, lambda f: f[:12] + b"\x88\xa8\0\7" + TAG + f[12:]),
    "sll": (SLL, lambda f: b"\0\0\0\1\0\6" + f[6:12] + b"\0\0" + f[12:]),
    "sll, tagged": (SLL, lambda f: b"\0\4\0\1\0\6" + f[6:12] + b"\0\0" + TAG + f[12:]),
    "sll2": (SLL2, lambda f: f[12:14] + b"\0\0\0\0\0\2\0\1\0\6" + f[6:12] + b"\0\0" + f[14:]),
    "sll2, tagged": (
        SLL2,
        lambda f: TAG[:2] + b"\0\0\0\0\0\2\0\1\4\6" + f[6:12] + b"\0\0" + TAG[2:] + f[12:],
    ),
}


@pytest.mark.parametrize("link", LINKS)
def test_each_link_header_leads_to_the_same_transfers(link: str, tmp_path: Path) -> None:
    linktype, wrap = LINKS[link]
    file = tmp_path / "x.pcap"
    file.write_bytes(
        header(linktype=linktype) + b"".join(record(wrap(frame)) for frame in frames())
    )
    [(_, headers)] = fast.read(file, check_icrc=True)
    assert set(headers.icrc_state.tolist()) == {Icrc.RIGHT}
    assert set(headers.vlan.tolist()) == {
        0 if "tagged" not in link else 7 if "twice" in link else 0x6005
    }
    assert [(t.op, t.payload_bytes, t.source, t.target) for t in read_index(file).transfers] == [
        (t.op, t.payload_bytes, t.source, t.target) for t in read_index(ETH0).transfers
    ]
    report = replay(file)
    assert (report.matched, report.differed) == (32, 0)
    shown = run(tmp_path, "tshark", "-n", "-r", file, "-T", "fields", "-e", "infiniband.bth.psn")
    assert [int(line) for line in shown.split()] == headers.psn.tolist()


# RFC 826: Ethernet, IPv4, who has 10.0.0.2, tell 02:00:00:00:00:01 of 10.0.0.1
ARP = bytes.fromhex("0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002")
SENDER = bytes.fromhex("020000000001")


@pytest.mark.parametrize(
    ("linktype", "link"),
    [
        (SLL, b"\0\1\0\1\0\6" + SENDER + b"\0\0\x08\x06"),
        (SLL2, b"\x08\x06\0\0\0\0\0\2\0\1\1\6" + SENDER + b"\0\0"),
    ],
    ids=["sll", "sll2"],
)
def test_a_cooked_frame_without_ip_shows_its_sender(
    linktype: int, link: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "arp.pcap"
    file.write_bytes(header(linktype=linktype) + record(link + ARP))
    assert main(["capture", "-r", str(file)]) == 0
    assert "ARP who has 10.0.0.2? tell 10.0.0.1" in capsys.readouterr().out
    [transfer] = read_index(file).transfers
    assert (transfer.op, transfer.source, transfer.target) == ("ARP", "02:00:00:00:00:01", "")
    assert main(["trace", str(file), "--number", "1"]) == 0
    assert "ARP request" in capsys.readouterr().out


def test_packets_cut_by_a_snapshot_length_are_traced_with_their_lengths_and_replayed_or_named(
    tmp_path: Path,
) -> None:
    cut = tmp_path / "cut.pcap"
    run(tmp_path, "editcap", "-F", "pcap", "-s", "90", ETH0, cut)
    [(batch, headers)] = fast.read(cut)
    assert max(row[4] for row in batch.rows()) == 90
    assert max(row[5] for row in batch.rows()) > 1000
    assert set(headers.layer.tolist()) == {Layer.TRANSPORT}
    assert [(t.op, t.payload_bytes) for t in read_index(cut).transfers] == [
        (t.op, t.payload_bytes) for t in read_index(ETH0).transfers
    ]
    report = replay(cut)
    assert (report.played, report.differed) == (32, 0)

    run(tmp_path, "editcap", "-F", "pcap", "-s", "50", ETH0, cut)
    [(_, headers)] = fast.read(cut)
    assert set(headers.fault.tolist()) == {FrameFault.CUT}
    assert main(["replay", str(cut)]) == 2
