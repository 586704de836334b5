# SPDX-License-Identifier: BSD-3-Clause
"""tshark, with our dissector, shows each field of each layout as the tables have it."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from nupa.base.errors import LocalError
from nupa.cli import main
from nupa.packet.pcapng.reader import Writer
from nupa.packet.tables import cxl_cache as cache_tables
from nupa.packet.tables import cxl_mem as cxl_tables
from nupa.packet.tables import pcie as pcie_tables
from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables import record
from nupa.packet.tables.layout import Field, Layout
from nupa.packet.wireshark import dissector, tables
from tests.packet.shark import dissected, run, tshark

PAGE = Path(__file__).parents[3] / "docs/packet-tables.md"

Shown = list[tuple[str, int | str]]


class Sample(NamedTuple):
    """A record, and the fields that Wireshark must show."""

    data: bytes
    shown: Shown
    names: dict[str, str] = {}  # noqa: RUF012  by filter name: how a value is called


class Maker:
    """Makes random records with the fields that Wireshark must show."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shown: Shown = []
        self.names: dict[str, str] = {}
        self.data = b""

    def add(self, layout: Layout, **fixed: int) -> dict[str, int]:
        """Adds a layout with random values, except the *fixed* ones; returns its values."""
        values = {
            field.name: fixed.get(field.name, self.random.getrandbits(field.bits) << field.shift)
            for field in layout.fields
        }
        self.data += layout.encode(**values)
        for field in filter(tables.is_shown, layout.fields):
            self.show(layout.abbrev_of(field), field, values[field.name])
        return values

    def show(self, abbrev: str, field: Field, value: int) -> None:
        if field.kind == "ipv6":
            self.shown.append((abbrev, str(ipaddress.IPv6Address(value))))
            return
        self.shown.append((abbrev, value))
        if field.flags and field.values:
            for bit, name in field.values.items():
                self.shown.append((f"{abbrev}.{name}", value >> bit & 1))
        elif field.values and value in field.values:
            self.names[abbrev] = f"{field.values[value]} ("

    def bytes(self, abbrev: str, size: int) -> None:
        part = self.random.randbytes(size)
        self.data += part
        if size:
            self.shown.append((abbrev, part.hex(":")))

    def number(self, abbrev: str, size: int, order: str = "big") -> None:
        part = self.random.randbytes(size)
        self.data += part
        self.shown.append((abbrev, int.from_bytes(part, order)))  # type: ignore[arg-type]

    def sample(self) -> Sample:
        return Sample(self.data, self.shown, self.names)


def begin(seed: int, level: int, kind: int) -> Maker:
    maker = Maker(seed)
    maker.add(record.HEADER, version=1, header_bytes=24, level=level, kind=kind)
    return maker


def tlps(seed: int) -> Iterator[Sample]:
    for (fmt, kind), name in pcie_tables.TYPES.items():
        if name.startswith(("IO", "Cfg")):
            continue
        for td in (0, 1):
            maker = begin(seed, record.Level.TLP, record.Kind.PCIE_TLP)
            atomic = name.startswith(("FetchAdd", "Swap", "CAS"))
            words = maker.random.choice([2, 4] if atomic else [1, 2, 5, 16])
            maker.add(pcie_tables.TLP, fmt=fmt, type=kind, td=td, length=words)
            if name.startswith("Cpl"):
                maker.add(pcie_tables.COMPLETION)
            elif name.startswith("Msg"):
                maker.add(pcie_tables.MESSAGE)
            else:
                maker.add(pcie_tables.MEM64 if fmt & 1 else pcie_tables.MEM32)
            if name.startswith("CAS"):
                maker.number("nupa.tlp.compare", 2 * words, "little")
                maker.number("nupa.tlp.swap", 2 * words, "little")
            elif atomic and words == 2:
                maker.number("nupa.tlp.operand", 8, "little")
            elif fmt & 2:
                maker.bytes("nupa.data", 4 * words)
            if td:
                maker.number("nupa.tlp.ecrc", 4, "little")
            yield maker.sample()


def cxl(seed: int) -> Iterator[Sample]:
    for channel, layout in cxl_tables.MESSAGES.items():
        for opcode in range(16):
            for trp in (0, 1):
                maker = begin(seed + opcode, record.Level.TLP, record.Kind.CXL_MEM)
                maker.add(cxl_tables.CXL_MEM, channel=channel)
                fixed = {"opcode": opcode, "trp": trp, "meta_field": opcode % 3}
                known = {field.name for field in layout.fields}
                values = maker.add(layout, **{k: v for k, v in fixed.items() if k in known})
                if channel in (cxl_tables.MemChannel.M2S_RWD, cxl_tables.MemChannel.S2M_DRS):
                    if channel == cxl_tables.MemChannel.M2S_RWD and opcode in (2, 10):
                        maker.number("nupa.cxl.byte_enables", 8)
                    if trp and values["meta_field"] == 1:
                        maker.number("nupa.cxl.ems", 4)
                    maker.bytes("nupa.data", 64)
                yield maker.sample()


def caches(seed: int) -> Iterator[Sample]:
    for channel, layout in cache_tables.MESSAGES.items():
        for opcode in range(32):
            maker = begin(seed + opcode, record.Level.CACHE, record.Kind.CXL_CACHE)
            maker.add(cache_tables.CXL_CACHE, channel=channel, line=opcode % 3, before=opcode % 5)
            named = cache_tables.OPCODES[channel]
            bits = next((f.bits for f in layout.fields if f.name == "opcode"), 0)
            if opcode >> bits:
                continue
            values = maker.add(layout, **({"opcode": opcode} if named else {}))
            if channel in cache_tables.DATA_CHANNELS:
                if values.get("bep"):
                    maker.number("nupa.cxl.byte_enables", 8)
                maker.bytes("nupa.data", 64)
            yield maker.sample()


def queues(seed: int) -> Iterator[Sample]:
    for extra in range(20):
        maker = begin(seed + extra, record.Level.QUEUE, record.Kind.DOORBELL)
        maker.add(queue_tables.DOORBELL, queue=extra % 5)
        yield maker.sample()
        maker = begin(seed + extra, record.Level.QUEUE, record.Kind.CQE)
        maker.add(queue_tables.CQE, status=extra, opcode=extra % 2 * 128 + extra)
        yield maker.sample()
    for count in range(8):
        maker = begin(seed + count, record.Level.QUEUE, record.Kind.WQE)
        kinds = [maker.random.choice(list(queue_tables.SegmentType)) for _ in range(count)]
        tails = [maker.random.randrange(9) for _ in kinds]
        sizes = [
            queue_tables.SEGMENT_LAYOUTS[k].bytes + t for k, t in zip(kinds, tails, strict=True)
        ]
        total = queue_tables.WQE.bytes + sum(sizes)
        maker.add(queue_tables.WQE, bytes=total, queue=count % 3, opcode=count)
        for kind, tail, size in zip(kinds, tails, sizes, strict=True):
            maker.add(queue_tables.SEGMENT_LAYOUTS[kind], type=kind, bytes=size)
            inline = kind == queue_tables.SegmentType.INLINE
            maker.bytes("nupa.data" if inline else "nupa.rest", tail)
        yield maker.sample()


def as_number(text: str) -> int:
    return {"True": 1, "False": 0}[text] if text in ("True", "False") else int(text, 0)


@pytest.mark.parametrize("make", [tlps, cxl, caches, queues])
def test_every_field_is_shown_with_its_value_and_its_name(
    make: type[Iterator[Sample]], tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print("seed", seed)
    samples = list(make(seed))  # type: ignore[call-arg]
    file = tmp_path / "x.pcapng"
    with Writer(file) as writer:
        number = writer.add_interface("h0/1", record.LINKTYPE_NUPA)
        for i, sample in enumerate(samples):
            writer.write(number, i, sample.data)
    packets = dissected(tmp_path, file)
    assert len(packets) == len(samples)
    for sample, packet in zip(samples, packets, strict=True):
        found: Shown = [
            (name, text if isinstance(value, str) else as_number(text))
            for (name, text, _), (_, value) in zip(packet, sample.shown, strict=True)
        ]
        assert found == sample.shown
        for name, _, shown in packet:
            if name in sample.names:
                assert sample.names[name] in shown


def write(file: Path, *records: bytes, original_bytes: int | None = None) -> None:
    with Writer(file) as writer:
        number = writer.add_interface("h0/1", record.LINKTYPE_NUPA)
        for data in records:
            writer.write(number, 0, data, original_bytes)


def test_records_cut_anywhere_are_malformed_and_no_error_of_lua(tmp_path: Path) -> None:
    whole = [sample.data for make in (tlps, cxl, caches, queues) for sample in list(make(5))[::9]]
    cut = [data[:size] for data in whole for size in range(0, len(data), 7)]
    file = tmp_path / "x.pcapng"
    write(file, *cut)
    packets = dissected(tmp_path, file)
    assert len(packets) == len(cut)
    for data, packet in zip(cut, packets, strict=True):
        assert (len(data) < 24) == any(
            name == "nupa.malformed" and "NUPA record" in shown for name, _, shown in packet
        )


def test_random_records_are_no_error_of_lua(tmp_path: Path) -> None:
    noise = random.Random(11)
    records = [
        record.pack(1, noise.choice([0, 1, 2, 3, 4, 5, 7])) + noise.randbytes(noise.randrange(200))
        for _ in range(600)
    ]
    write(tmp_path / "x.pcapng", *records, *(noise.randbytes(60) for _ in range(100)))
    assert len(dissected(tmp_path, tmp_path / "x.pcapng")) == 700


def test_what_the_snap_length_cut_is_not_called_malformed(tmp_path: Path) -> None:
    data = next(queues(3)).data
    write(tmp_path / "x.pcapng", data[:30], original_bytes=len(data))
    [packet] = dissected(tmp_path, tmp_path / "x.pcapng")
    names = {name for name, _, _ in packet}
    assert "nupa.cut" in names
    assert "nupa.malformed" not in names


def test_another_version_is_said_and_not_guessed_at(tmp_path: Path) -> None:
    data = record.HEADER.encode(version=2, kind=3, header_bytes=24) + bytes(16)
    write(tmp_path / "x.pcapng", data)
    [packet] = dissected(tmp_path, tmp_path / "x.pcapng")
    assert any("version 2" in shown for _, _, shown in packet)
    assert not any(name.startswith("nupa.doorbell") for name, _, _ in packet)


def test_an_ethernet_frame_is_left_to_wiresharks_own_dissectors(tmp_path: Path) -> None:
    frame = bytes.fromhex("02000a000002 02000a000001 0806 0001080006040001".replace(" ", ""))
    frame += bytes.fromhex("02000a0000010a0000010000000000000a000002")
    write(tmp_path / "x.pcapng", record.pack(4, record.Kind.ETHERNET, transfer=5) + frame)
    fields = ["-T", "fields", "-e", "nupa.transfer", "-e", "arp.dst.proto_ipv4"]
    shown = tshark(tmp_path, tmp_path / "x.pcapng", *fields)
    assert shown.split() == ["0x0000000000000005", "10.0.0.2"]


def test_filters_find_a_transfer_at_all_levels(tmp_path: Path) -> None:
    tlp = pcie_tables.TLP.encode(length=1) + pcie_tables.MEM32.encode(address=0x1000)
    bell = queue_tables.DOORBELL.encode(number=0x11)
    write(
        tmp_path / "x.pcapng",
        record.pack(1, 1, transfer=1 << 40) + tlp,
        record.pack(2, 3, transfer=1 << 40) + bell,
        record.pack(2, 3, transfer=7) + bell,
    )
    columns = ["-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"]
    shown = tshark(
        tmp_path, tmp_path / "x.pcapng", "-Y", "nupa.transfer == 0x10000000000", *columns
    )
    assert shown.splitlines() == [
        "PCIe\tMRd32 0x0000000000001000 tag 0, 1 DW",
        "NUPA\tDoorbell SQ 0x11, 0",
    ]


def test_the_tables_of_the_documentation_are_ours() -> None:
    text = PAGE.read_text()
    assert text == tables.rendered(text), f"python -m {tables.__name__} {PAGE}"


def test_a_file_without_marks_is_refused() -> None:
    with pytest.raises(LocalError, match="no marks"):
        tables.rendered("text")


def test_installed_it_is_found_by_wireshark_and_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "tshark", "--version")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    file = tmp_path / "x.pcapng"
    write(file, next(queues(1)).data)
    fields = ("tshark", "-n", "-r", file, "-T", "fields", "-e", "_ws.col.Info")

    assert main(["dissector", "--install"]) == 0
    installed = Path(capsys.readouterr().out.removeprefix("installed: ").strip())
    assert tmp_path in installed.parents
    assert installed.read_text() == dissector.script()
    assert run(tmp_path, *fields).startswith("Doorbell")
    assert main(["dissector", "--install"]) == 0  # over an older one
    assert main(["dissector", "--uninstall"]) == 0
    assert not installed.exists()
    assert not run(tmp_path, *fields).startswith("Doorbell")
    assert main(["dissector", "--uninstall"]) == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_the_path_of_the_whole_script_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["dissector", "--path"]) == 0
    file = Path(capsys.readouterr().out.strip())
    assert file == tmp_path / "nupa" / "nupa.lua"
    assert file.read_text() == dissector.script()


def test_a_script_that_is_not_ours_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "nupa.lua"
    other.write_text("-- another dissector")
    for what in ("--install", "--uninstall"):
        assert main(["dissector", what, "--to", str(tmp_path)]) == 1
        assert "is not NUPA's dissector: move it away" in capsys.readouterr().err
    assert other.read_text() == "-- another dissector"


def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["dissector", "--install", "--to", str(tmp_path / "file" / "x")]) == 1
    assert "file/x/nupa.lua" in capsys.readouterr().err
