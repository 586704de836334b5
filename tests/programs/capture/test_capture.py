# SPDX-License-Identifier: BSD-3-Clause
"""`nupa capture` and `nupa run --capture` of real programs: what tshark and our decoders see."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nupa.packet.decode import fast
from nupa.packet.pcapng.reader import Reader
from nupa.packet.tables.opcodes import CODES, NAMES
from nupa.packet.tables.record import Kind
from nupa.packet.wireshark.dissector import install
from nupa.programs.pair import free_port
from tests.packet.shark import NOT_ROOT
from tests.programs.stage import DEADLINE_S, Stage

SEND, ACK = CODES["RC_SEND_ONLY"], CODES["RC_ACKNOWLEDGE"]


def on_one_host(*test: str) -> list[str]:
    """Returns a script that runs both ends of *test*, whose client asks until the server
    listens."""
    command = " ".join([*test, "-p", str(free_port())])
    return [
        "sh",
        "-c",
        f"{command} >/dev/null & until {command} localhost 2>/dev/null; do :; done; wait $!",
    ]


def captured(stage: Stage, file: Path, command: list[str], *options: str) -> None:
    argv = stage.nupa("run", "--capture", str(file), *options, "--", *command)
    outcome = stage.run(argv).check()
    assert "nupa" not in outcome.stderr, outcome.stderr


def statistics_of(file: Path) -> tuple[int, int, int]:
    """Packets in the file; received and dropped, as its statistics have it."""
    with Reader(file) as reader:
        count = sum(len(batch) for batch in reader.batches())
        said = reader.statistics.values()
        return count, sum(s.received or 0 for s in said), sum(s.dropped or 0 for s in said)


def tshark(file: Path, *options: str) -> list[str]:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is missing: Debian's tshark has it (.ci/setup packages test)")
    argv = [*NOT_ROOT, "tshark", "-n", "--disable-protocol", "rpcordma", "-r", str(file), *options]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=DEADLINE_S)
    return done.stdout.splitlines()


@contextmanager
def capturing(stage: Stage, *options: str, text: bool = True) -> Iterator[subprocess.Popen[str]]:
    """Yields `nupa capture` from its first line on stderr on, when it watches."""
    env = {**os.environ, **stage.env}
    with subprocess.Popen(
        stage.nupa("capture", *options),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=text,
    ) as process:
        try:
            assert process.stderr is not None
            assert select.select([process.stderr], [], [], DEADLINE_S)[0], "it does not begin"
            line = process.stderr.readline()
            assert "capturing on default" in str(line), line
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


@pytest.fixture
def up(stage: Stage) -> Iterator[Stage]:
    """With a fabric that stays."""
    assert stage.run(stage.nupa("up")).ok
    yield stage
    stage.ok("down")


def test_a_ping_pong_is_an_infiniband_dialogue_to_tshark(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    captured(stage, file, on_one_host("ib_send_lat", "-F", "-n", "20"))
    rows = [
        tuple(row.split())
        for row in tshark(
            file,
            *("-T", "fields", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.destqp"),
            *("-e", "infiniband.bth.psn", "-e", "infiniband.aeth.syndrome.opcode"),
        )
    ]
    sends = [(qp, int(psn)) for opcode, qp, psn in (r[:3] for r in rows) if int(opcode) == SEND]
    assert len(rows) == 80  # 20 there, 20 back, each with its acknowledgement
    for qp in {qp for qp, _ in sends}:
        psns = [psn for other, psn in sends if other == qp]
        assert psns == [(psns[0] + i) % (1 << 24) for i in range(20)]
    assert {row[3] for row in rows if int(row[0]) == ACK} == {"0"}
    assert any("RC Send Only" in line for line in tshark(file))


def test_lengths_numbers_and_crcs_of_a_long_write_are_as_hardware_has_them(
    stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "x.pcapng"
    captured(stage, file, on_one_host("ib_write_bw", "-F", "-s", "65536", "-n", "20"))
    seen: dict[int, list[tuple[str, int, int]]] = {}
    for _, headers in fast.read(file, check_icrc=True):
        assert set(headers.icrc_state) == {fast.Icrc.RIGHT}
        assert set(headers.fault) == {fast.FrameFault.NONE}
        for i in range(len(headers)):
            entry = (NAMES[headers.opcode[i]], headers.psn[i], headers.payload_bytes[i])
            seen.setdefault(headers.dqpn[i], []).append(entry)
    requests = max(seen.values(), key=len)
    assert len(requests) == 20 * 16
    parts = ["RC_RDMA_WRITE_FIRST", *["RC_RDMA_WRITE_MIDDLE"] * 14, "RC_RDMA_WRITE_LAST"]
    assert [name for name, _, _ in requests] == parts * 20
    first = requests[0][1]
    assert [psn for _, psn, _ in requests] == [(first + i) % (1 << 24) for i in range(320)]
    assert {size for _, _, size in requests} == {4096}
    assert statistics_of(file) == (340, 340, 0)


@pytest.mark.parametrize(
    ("program", "operation"),
    [
        ("ibv_rc_pingpong -g 1 -n 20 -s 64", "RC_SEND_ONLY"),
        ("ibv_uc_pingpong -g 1 -n 20 -s 64", "UC_SEND_ONLY"),
        ("ibv_ud_pingpong -g 1 -n 20 -s 64", "UD_SEND_ONLY"),
        ("ib_read_lat -F -n 20", "RC_RDMA_READ_REQUEST"),
        ("ib_atomic_lat -F -n 20", "RC_FETCH_ADD"),
    ],
)
def test_each_operation_is_seen(stage: Stage, tmp_path: Path, program: str, operation: str) -> None:
    file = tmp_path / "x.pcapng"
    captured(stage, file, on_one_host(*program.split()))
    seen = []
    for _, headers in fast.read(file, check_icrc=True):
        assert set(headers.icrc_state) == {fast.Icrc.RIGHT}
        seen += [NAMES[code] for code in headers.opcode]
    assert seen.count(operation) >= 20


def test_a_program_of_rdma_cm_is_seen(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    port = free_port()
    server, client = f"rping -s -a 10.0.0.1 -p {port} -C 3", f"rping -c -a 10.0.0.1 -p {port} -C 3"
    captured(stage, file, ["sh", "-c", f"{server} & until {client} 2>/dev/null; do :; done; wait"])
    seen = []
    for _, headers in fast.read(file, check_icrc=True):
        assert set(headers.icrc_state) == {fast.Icrc.RIGHT}
        seen += [NAMES[code] for code in headers.opcode]
    assert seen.count("RC_RDMA_READ_REQUEST") == seen.count("RC_RDMA_READ_RESPONSE_ONLY") == 3
    assert seen.count("RC_RDMA_WRITE_ONLY") == 3


def test_the_exit_code_stays_the_programs_and_the_file_is_whole(
    stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "x.pcapng"
    outcome = stage.run(stage.nupa("run", "--capture", str(file), "--", "sh", "-c", "exit 7"))
    assert (outcome.returncode, outcome.stderr) == (7, "")
    assert statistics_of(file) == (0, 0, 0)
    outcome = stage.run(
        stage.nupa("run", "--capture", str(file), "--", "sh", "-c", "kill -KILL $$")
    )
    assert outcome.returncode == -signal.SIGKILL
    assert statistics_of(file) == (0, 0, 0)


def test_what_the_program_left_behind_is_captured_to_its_end(stage: Stage, tmp_path: Path) -> None:
    file, gate = tmp_path / "x.pcapng", tmp_path / "gate"
    os.mkfifo(gate)
    test = on_one_host("ib_send_lat", "-F", "-n", "20")[2]
    script = f"(read line < {gate}; {test}; exit 0) & exit 3"
    argv = stage.nupa("run", "--capture", str(file), "--", "sh", "-c", script)
    with subprocess.Popen(argv, env={**os.environ, **stage.env}) as process:
        gate.write_text("go\n")
        assert process.wait(DEADLINE_S) == 3
    assert statistics_of(file) == (80, 80, 0)


def test_a_file_that_cannot_be_written_is_said_before_the_program_starts(
    stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "no" / "x.pcapng"
    argv = stage.nupa("run", "--capture", str(file), "--", "touch", str(tmp_path / "ran"))
    outcome = stage.run(argv)
    assert outcome.returncode == 1
    assert outcome.stderr == (
        f"nupa: cannot capture: {file}: cannot be opened: No such file or directory\n"
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_file_is_whole_however_nupa_run_ends(
    stage: Stage, tmp_path: Path, number: signal.Signals
) -> None:
    file, gate = tmp_path / "x.pcapng", tmp_path / "gate"
    os.mkfifo(gate)
    test = on_one_host("ib_send_lat", "-F", "-n", "20")[2]
    argv = stage.nupa(
        *("run", "--capture", str(file), "--"),
        *("sh", "-c", f"{test} >/dev/null; echo done > {gate}; exec cat {gate}"),
    )
    with subprocess.Popen(argv, env={**os.environ, **stage.env}, start_new_session=True) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        assert gate.read_text() == "done\n"
        pidfds = [os.pidfd_open(int(pid)) for pid in children.read_text().split()]
        assert len(pidfds) == 2  # the program, and who captures
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == -number
        if number == signal.SIGKILL:  # which is not handed on
            gate.write_text("end\n")
        for pidfd in pidfds:
            assert select.select([pidfd], [], [], DEADLINE_S)[0]
            os.close(pidfd)
    assert statistics_of(file) == (80, 80, 0)
    stage.run(stage.nupa("up"))  # takes away what a killed nupa left
    assert stage.run(stage.nupa("down")).ok


def test_stdout_is_the_programs(stage: Stage) -> None:
    outcome = stage.run(stage.nupa("run", "--capture", "-", "--", "true"))
    assert outcome.returncode == 2
    assert "stdout belongs to the command: name a file with --capture" in outcome.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_capture_with_a_whole_file(
    up: Stage, tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "x.pcapng"
    with capturing(up, "-w", str(file)) as process:
        assert up.run(up.nupa_run(on_one_host("ib_send_lat", "-F", "-n", "20"))).ok
        process.send_signal(number)
        _, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, said
    assert said == "80 packets captured, 0 lost\n"
    assert statistics_of(file) == (80, 80, 0)


def test_a_capture_ends_after_n_packets_that_match(up: Stage) -> None:
    match = "opcode == RC_SEND_ONLY and host == host0"
    with capturing(up, "-c", "5", "-f", match) as process:
        assert up.run(up.nupa_run(on_one_host("ib_send_lat", "-F", "-n", "20"))).ok
        out, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    lines = out.splitlines()
    assert len(lines) == 5
    assert all(" host0/1 Out 10.0.0.1 > 10.0.0.1 RC_SEND_ONLY qp " in line for line in lines)
    assert "5 packets captured of " in said


def test_a_capture_is_printed_as_objects(up: Stage) -> None:
    with capturing(up, "--json", "-c", "2") as process:
        assert up.run(up.nupa_run(on_one_host("ib_send_lat", "-F", "-n", "5"))).ok
        out, _ = process.communicate(timeout=DEADLINE_S)
    sent, answer = (json.loads(line) for line in out.splitlines())
    assert sent["opcode"] == "RC_SEND_ONLY"
    assert answer["opcode"] == "RC_ACKNOWLEDGE"
    assert sent["transfer"] == answer["transfer"] != 0
    assert sent["source"] == "10.0.0.1"


def test_tshark_reads_along_live(up: Stage) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is missing: Debian's tshark has it (.ci/setup packages test)")
    with capturing(up, "-w", "-", text=False) as process:
        argv = ["tshark", "-n", "-l", "-i", "-", "-c", "4"]
        with subprocess.Popen(
            argv, stdin=process.stdout, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as reader:
            assert up.run(up.nupa_run(on_one_host("ib_send_lat", "-F", "-n", "20"))).ok
            out, _ = reader.communicate(timeout=DEADLINE_S)  # while the capture goes on
        assert process.poll() is None
        assert out.count("RRoCE") == 4


def test_a_capture_ends_when_nobody_reads_it_any_more(up: Stage) -> None:
    with capturing(up) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert up.run(up.nupa_run(on_one_host("ib_send_lat", "-F", "-n", "20"))).ok
        assert process.wait(DEADLINE_S) == 1
        assert process.stderr is not None
        said = process.stderr.read()
    assert re.fullmatch(r"\d+ packets? captured( of \d+ seen)?, 0 lost\n", said)


def test_a_stopped_watcher_holds_up_nobody_and_counts_what_it_lost(
    up: Stage, tmp_path: Path
) -> None:
    slow, quick = tmp_path / "slow.pcapng", tmp_path / "quick.pcapng"
    bulk = on_one_host("ib_write_bw", "-F", "-s", "65536", "-n", "1000")
    with (
        capturing(up, "-w", str(slow)) as stopped,
        capturing(up, "-w", str(quick), "--snaplen", "64") as running,
    ):
        stopped.send_signal(signal.SIGSTOP)
        up.run(up.nupa_run(bulk)).check()
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=DEADLINE_S)
        assert "packets captured" in said
        stopped.send_signal(signal.SIGCONT)
        stopped.send_signal(signal.SIGINT)
        stopped.communicate(timeout=DEADLINE_S)
        assert (stopped.returncode, running.returncode) == (0, 0)
    count, received, dropped = statistics_of(slow)
    assert dropped > 0
    assert received == count + dropped
    count, received, dropped = statistics_of(quick)
    assert received == count + dropped


def test_a_snap_length_is_kept_by_run_too(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    test = on_one_host("ib_send_lat", "-F", "-n", "5", "-s", "4000")
    captured(stage, file, test, "--capture-snaplen", "70", "--capture-level", "transport")
    with Reader(file) as reader:
        packets = list(reader)
    assert len(packets) == 20
    assert max(len(packet.data) for packet in packets) == 70
    assert max(packet.original_bytes for packet in packets) > 4000


def test_tlps_and_queue_entries_are_dissected_by_tshark(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    test = on_one_host("ib_write_bw", "-F", "-s", "5000", "-n", "5")
    captured(stage, file, test, "--capture-level", "tlp,queue")
    fields = ("-T", "fields", "-e", "nupa.kind", "-e", "nupa.transfer", "-e", "_ws.malformed")
    rows = [
        row.split("\t") for row in tshark(file, "-X", f"lua_script:{install(tmp_path)}", *fields)
    ]
    assert {row[2] for row in rows} == {""}
    kinds = Counter(int(row[0]) for row in rows)
    assert kinds[Kind.WQE] >= 5
    assert kinds[Kind.CQE] >= 1  # perftest asks for few
    # 5000 bytes are read by 10 or 11 MRds, answered by twice as many CplDs, and written by MWrs.
    assert kinds[Kind.PCIE_TLP] >= 5 * (10 + 20 + 20)
    assert len({row[1] for row in rows if int(row[0]) == Kind.WQE}) >= 5


def test_levels_that_are_asked_for_tie_together(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    test = on_one_host("ib_send_lat", "-F", "-n", "5")
    captured(stage, file, test, "--capture-level", "queue,transport")
    found = stage.run(stage.nupa("capture", "-r", str(file), "--json"))
    assert found.ok, found.describe()
    by_transfer: dict[int, set[str]] = {}
    for line in found.stdout.splitlines():
        packet = json.loads(line)
        what = packet["kind"] if packet["level"] == "queue" else packet["opcode"]
        by_transfer.setdefault(packet["transfer"], set()).add(what)
    whole = {"wqe", "RC_SEND_ONLY", "RC_ACKNOWLEDGE", "cqe"}
    assert sum(whole <= kinds for transfer, kinds in by_transfer.items() if transfer) == 10
