# SPDX-License-Identifier: BSD-3-Clause
"""`nupa capture` of files, and what it refuses: one line each."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from nupa.cli import main
from nupa.fabric import Fabric
from nupa.packet.pcapng.reader import OUTBOUND, Reader, Writer
from nupa.packet.scapy.transport import BTH
from nupa.packet.tables.record import LINKTYPE_ETHERNET
from nupa.topology.topology import star


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Ten SENDs, at host0 and host1 in turn."""
    path = tmp_path / "x.pcapng"
    below = Ether(dst="02:00:0a:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(chksum=0)
    with Writer(path) as writer:
        ports = [writer.add_interface(f"host{i}/1", LINKTYPE_ETHERNET) for i in (0, 1)]
        for psn in range(10):
            frame = bytes(below / BTH(opcode="RC_SEND_ONLY", dqpn=0x11, psn=psn) / b"data")
            writer.write(ports[psn % 2], psn, frame, flags=OUTBOUND, packet_id=7)
        writer.statistics(ports[0], 10, 9, 4)
    return path


@pytest.fixture
def fabric(folder: Path) -> Iterator[Fabric]:  # noqa: ARG001
    """The default fabric of a folder of this test; the signals are as before at its end."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with Fabric.create("default", star(2)) as fabric:
        yield fabric
    Fabric.remove("default")
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_file_is_printed_line_by_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "-r", str(file), "-f", "psn < 2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    first, second = out.splitlines()
    assert " host0/1 Out 10.0.0.1 > 10.0.0.2 RC_SEND_ONLY qp 0x11 psn 0 4 bytes" in first
    assert second.endswith(" psn 1 4 bytes transfer 0x7")


def test_a_file_is_printed_as_objects(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "-r", str(file), "-c", "3", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["psn"] for entry in found] == [0, 1, 2]


def test_what_matches_goes_to_another_file(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "y.pcapng"
    match = "host == host1 and psn > 3"
    argv = ["capture", "-r", str(file), "-w", str(other), "-f", match, "--snaplen", "60"]
    assert main(argv) == 0
    assert capsys.readouterr().err == "3 packets captured of 10 seen, 4 records lost\n"
    with Reader(other) as reader:
        packets = list(reader)
    assert [packet.ts_ns for packet in packets] == [5, 7, 9]
    assert {len(packet.data) for packet in packets} == {60}
    assert {packet.packet_id for packet in packets} == {7}


def test_a_file_does_not_overwrite_itself(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(file)
    before = file.read_bytes()
    with pytest.raises(SystemExit):
        main(["capture", "-r", str(file), "-w", str(tmp_path / "link")])
    assert "-w would overwrite" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_levels_choose_from_a_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for levels, count in (("transport", 10), ("net,queue", 0), ("net,transport", 10)):
        assert main(["capture", "-r", str(file), "--level", levels]) == 0
        assert len(capsys.readouterr().out.splitlines()) == count
    argv = ["capture", "-r", str(file), "--level", "transport", "-f", "psn == 1 or psn == 2"]
    assert main(argv) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_fields_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--fields"]) == 0
    assert "\n  dqpn              destination QP\n" in capsys.readouterr().out


def test_a_capture_that_nothing_crosses_ends_after_its_time(
    fabric: Fabric, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.pcapng"
    assert main(["capture", "--for", "10ms", "-w", str(file), "--level", "tlp"]) == 0
    began, ended = capsys.readouterr().err.splitlines()
    assert began == f"capturing on {fabric.name}: any, level tlp; Ctrl-C ends it"
    assert ended == "0 packets captured, 0 lost"
    with Reader(file) as reader:
        assert list(reader) == []
        assert [interface.name for interface in reader.interfaces] == ["host0/1", "host1/1"]


@pytest.mark.usefixtures("fabric")
@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["-i", "host7"], "no port, host or link is named 'host7': ports are host0/1, host1/1"),
        (["--level", "tpl"], "'tpl' is not a level: levels are tlp, queue, transport, net"),
        (["-f", "host == host7"], "there is no host 'host7': near are host"),
        (["-f", "psnn == 1"], "there is no field `psnn`: near are psn"),
        (["-w", "/nowhere/x.pcapng"], "/nowhere/x.pcapng: cannot be opened: No such file"),
        (["-r", "/nowhere/x.pcapng"], "/nowhere/x.pcapng: cannot be opened: No such file"),
        (["-r", os.devnull], "the file ends too early"),
        (["--fabric", "rack"], "no fabric is named 'rack'; up are: default"),
    ],
)
def test_what_is_not_there_is_named_in_one_line(
    argv: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capture", *argv]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("nupa: ")
    assert err.count("\n") == 1
    assert why in err


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["-c", "0"], "'0' is not a number from 1 to 2^32 - 1"),
        (["--snaplen", "-1"], "'-1' is not a number from 1 to 2^32 - 1"),
        (
            ["--for", "soon"],
            "'soon' is not a time above 0, at most 1000000000s, as 5s",
        ),
        (["--for", "0"], "'0' is not a time above 0"),
        (["--for", "nan"], "'nan' is not a time above 0"),
        (["--json", "-w", "x"], "--json prints, -w writes pcapng: choose one of them"),
        (["-r", "x", "-i", "host0"], "-i, --fabric and --for are for live captures"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    argv: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["capture", *argv])
    assert caught.value.code == 2
    assert why in capsys.readouterr().err
