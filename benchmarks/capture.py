# SPDX-License-Identifier: BSD-3-Clause
"""The cost of captures for programs, and the rates of writing, filtering and surveying captures.

As a program, this module prints one rate:

python -m benchmarks.capture export|filter|trace [--quick]
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.case import Bench, Case, at_most, no_less, output
from nupa.programs.pair import NUPA, Program, ProgramError

_SNAP_BYTES = 64
_PACKETS = 200_000  # of a file that is filtered or traced
_BATCHES = 40  # of 64 WRITEs, between two drains: less than a ring holds
_FILTER = "dqpn > 0 and opcode in (RC_ACKNOWLEDGE, RC_SEND_ONLY) and psn != 7"
_START_S = 10.0


class _Writes:
    """WRITEs of 8 B between two hosts of this process: 2 packets each."""

    def __init__(self, stack: ExitStack) -> None:
        from benchmarks.python_verbs import End, post_many
        from nupa.fabric import Fabric
        from nupa.verbs.enums import IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE
        from nupa.verbs.wr import SGE, SendWR

        self.fabric = stack.enter_context(Fabric(hosts=2))
        here, there = (End(stack, self.fabric, host) for host in range(2))
        here.connect(there)
        there.connect(here)
        wr = SendWR(
            opcode=IBV_WR_RDMA_WRITE,
            num_sge=1,
            sg=[SGE(here.mr.buf, 8, here.mr.lkey)],
            send_flags=IBV_SEND_SIGNALED,
        )
        wr.set_wr_rdma(there.mr.rkey, there.mr.buf)
        self._post = post_many(here, wr)

    def run(self) -> None:
        for _ in range(_BATCHES):
            self._post()


def _export(file: Path, packets: int) -> float:
    """Returns packets a second from the rings to a file, of the time that the watcher works."""
    from nupa.capture.live import Live
    from nupa.capture.loop import Capture
    from nupa.capture.sinks import FileSink

    with ExitStack() as stack:
        writes = _Writes(stack)
        live = stack.enter_context(Live(writes.fabric, ["any"], ["transport"], _SNAP_BYTES))
        capture = Capture(FileSink(file, interfaces=live.interfaces))
        stack.callback(capture.close)
        spent_s = 0.0
        while capture.seen < packets:
            writes.run()
            time.sleep(0.002)  # records younger than a read wait for the next one
            begin = time.perf_counter()
            for batch in live.batches():
                capture.take(batch)
            spent_s += time.perf_counter() - begin
        if live.counts.lost:
            raise ProgramError(f"{live.counts.lost} records were lost: make _BATCHES smaller")
        return capture.seen / spent_s


def _best_per_s(work: Callable[[], int], rounds: int) -> float:
    rates = []
    for _ in range(rounds):
        begin = time.perf_counter()
        done = work()
        rates.append(done / (time.perf_counter() - begin))
    return max(rates)


def _filter(file: Path) -> int:
    from nupa.capture.filter import Filter
    from nupa.capture.loop import Capture
    from nupa.capture.sinks import FileSink
    from nupa.packet.pcapng.reader import Reader

    with Reader(file) as reader:
        capture = Capture(FileSink("/dev/null"), Filter(_FILTER))
        capture.from_file(reader)
        capture.close()
    assert 0 < capture.taken < capture.seen
    return capture.seen


def _trace(file: Path) -> int:
    from nupa.diagram.find.index import read_index

    return read_index(file).packets


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.capture", description=__doc__)
    parser.add_argument("what", choices=["export", "filter", "trace"])
    parser.add_argument("--quick", action="store_true", help="a tenth of the packets")
    args = parser.parse_args()
    packets = _PACKETS // 10 if args.quick else _PACKETS
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "capture.pcapng"
        per_s = _export(file, packets)
        if args.what != "export":
            work = _filter if args.what == "filter" else _trace
            per_s = _best_per_s(lambda: work(file), 3)
    print(json.dumps({"per_s": per_s}))


def _rate(what: str) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        argv = [sys.executable, "-m", "benchmarks.capture", what]
        text = output([*argv, "--quick"] if bench.quick else argv, bench.cpus[0])
        return float(json.loads(text)["per_s"]) / 1e6

    return measure


def watched(measure: Callable[[Bench], float], levels: str) -> Callable[[Bench], float]:
    """Measures the same while `nupa capture` writes records."""

    def measure_watched(bench: Bench) -> float:
        argv = [*NUPA, "capture", "--fabric", bench.fabric, "--level", levels]
        with Program([*argv, "--snaplen", str(_SNAP_BYTES), "-w", "/dev/null"]) as capture:
            capture.wait_said("capturing on", _START_S)
            value = measure(bench)
            capture.signal(signal.SIGINT)
            outcome = capture.outcome().check()
        if " 0 packets" in outcome.stderr:
            raise ProgramError(outcome.describe())
        return value

    return measure_watched


def cases(
    send_lat: Callable[[Bench], float], write_lat: Callable[[Bench], float]
) -> tuple[Case, ...]:
    """Returns the cases of this file; the arguments measure the two latencies."""
    return (
        *(
            Case(
                f"capture: {name}, {what}",
                "µs",
                at_most(2) if target else None,
                watched(measure, levels),
                "without a capture",
                measure,
            )
            for name, measure, what, levels, target in (
                ("ib_send_lat", send_lat, "packets", "transport,net", True),
                ("ib_send_lat", send_lat, "all levels", "tlp,queue,transport,net", True),
                ("ib_write_lat", write_lat, "packets", "transport,net", False),
            )
        ),
        *(
            Case(f"capture: {what}", "M/s", no_less(0.5), _rate(program))
            for what, program in (
                ("packets to a file", "export"),
                ("packets filtered", "filter"),
                ("packets surveyed", "trace"),
            )
        ),
    )


if __name__ == "__main__":
    main()
