# SPDX-License-Identifier: BSD-3-Clause
"""The rates of dissecting and decoding packets; as a program, this module prints one rate:

python -m benchmarks.packets nupa|scapy|fast|fast-icrc|records|tuples [--quick]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.case import Bench, Case, at_least, no_less, output

_SECONDS = 0.5
_RECORDS = 100_000


def _per_s(work: Callable[[], int], seconds: float) -> float:
    """Returns the best rate of three runs, each of at least *seconds*."""
    best = 0.0
    for _ in range(3):
        done, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds:
            done += work()
        best = max(best, done / spent)
    return best


def _frames() -> list[bytes]:
    """Returns packets of RC, UC and UD, without connection management."""
    from tests.unit.packet import roce_dialogues

    names = set(roce_dialogues.NAMES) - {"connection", "extended"}
    return [bytes(packet) for packet in roce_dialogues.packets(*sorted(names))]


def _scapy_per_s(layers: str, seconds: float) -> float:
    from scapy.layers.inet import UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import split_layers

    frames = _frames()
    if layers == "scapy":
        from scapy.contrib import roce

        from nupa.packet.scapy.transport import BTH

        split_layers(UDP, BTH, dport=4791)
        assert type(Ether(frames[0])[UDP].payload) is roce.BTH

    def dissect() -> int:
        for frame in frames:
            Ether(frame)
        return len(frames)

    return _per_s(dissect, seconds)


def _fast_per_s(check_icrc: bool, seconds: float) -> float:
    """Measures from a pcapng file to a count of each opcode."""
    from nupa.packet.decode import fast
    from nupa.packet.pcapng.reader import Writer

    frames = _frames() * (_RECORDS // len(_frames()))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "packets.pcapng"
        with Writer(file) as writer:
            port = writer.add_interface("port", fast.LINKTYPE_ETHERNET)
            for number, frame in enumerate(frames):
                writer.write(port, number, frame)

        def decode() -> int:
            found: Counter[int] = Counter()
            for _batch, headers in fast.read(file, check_icrc=check_icrc):
                found.update(headers.opcode)
            return found.total()

        assert decode() == len(frames)
        return _per_s(decode, seconds)


def _records_per_s(tuples: bool, seconds: float) -> float:
    """Measures from a pcapng file of TLPs to the bytes of each transfer.

    It decodes by columns or, *tuples*, by a named tuple for each packet and its header.
    """
    from nupa.packet.decode import records
    from nupa.packet.pcapng.reader import INBOUND, Reader, Writer
    from nupa.packet.tables import pcie as pcie_tables
    from nupa.packet.tables import record

    tlp = pcie_tables.TLP.encode(fmt=3, length=8) + pcie_tables.MEM64.encode() + bytes(32)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.pcapng"
        with Writer(file) as writer:
            port = writer.add_interface("port", record.LINKTYPE_NUPA)
            for number in range(_RECORDS):
                data = record.pack(record.Level.TLP, record.Kind.PCIE_TLP, transfer=number // 7)
                writer.write(port, number, data + tlp, flags=INBOUND, packet_id=number // 7)

        def by_columns() -> int:
            found: Counter[int] = Counter()
            for _batch, columns in records.read(file):
                for transfer, length in zip(columns.transfer, columns.length, strict=True):
                    found[transfer] += length
            return found.total() // 32

        def by_tuples() -> int:
            found: Counter[int] = Counter()
            with Reader(file) as reader:
                for packet in reader:
                    found[record.unpack(packet.data).transfer] += len(packet.data) - 40
            return found.total() // 32

        work = by_tuples if tuples else by_columns
        assert work() == _RECORDS
        return _per_s(work, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.packets", description=__doc__)
    parser.add_argument("what", choices=["nupa", "scapy", "fast", "fast-icrc", "records", "tuples"])
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    args = parser.parse_args()
    seconds = _SECONDS / 10 if args.quick else _SECONDS
    if args.what.startswith("fast"):
        per_s = _fast_per_s(args.what == "fast-icrc", seconds)
    elif args.what in ("records", "tuples"):
        per_s = _records_per_s(args.what == "tuples", seconds)
    else:
        per_s = _scapy_per_s(args.what, seconds)
    print(json.dumps({"per_s": per_s}))


def _rate(what: str, scale: float) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        argv = [sys.executable, "-m", "benchmarks.packets", what]
        text = output([*argv, "--quick"] if bench.quick else argv, bench.cpus[0])
        return float(json.loads(text)["per_s"]) * scale

    return measure


CASES = (
    Case(
        "packets: our scapy layers",
        "k/s",
        at_least(0.8),
        _rate("nupa", 1e-3),
        "scapy's contrib/roce",
        _rate("scapy", 1e-3),
    ),
    Case("packets: without scapy", "M/s", no_less(0.5), _rate("fast", 1e-6)),
    Case("packets: the same, and ICRCs", "M/s", no_less(0.5), _rate("fast-icrc", 1e-6)),
    Case("packets: TLPs, by columns", "M/s", no_less(0.5), _rate("records", 1e-6)),
    Case("packets: TLPs, by named tuples", "M/s", None, _rate("tuples", 1e-6)),
)

if __name__ == "__main__":
    main()
