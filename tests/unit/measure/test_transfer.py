# SPDX-License-Identifier: BSD-3-Clause
"""Parts of a file transfer: the file, the command lines, the talk between the ends."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.measure.control import Control, TargetAddress, TransferError
from nupa.measure.transfer import TransferJob, main
from nupa.programs.pair import PairResult, ProgramOutcome

HERE = TargetAddress("::ffff:10.0.0.1", 65537, 7, 1 << 40, 4097)
THERE = TargetAddress("::ffff:10.0.0.2", 131073, 8, 1 << 41, 8193)


@pytest.fixture
def ends() -> Iterator[tuple[Control, Control]]:
    left, right = socket.socketpair()
    with left, right:
        left.settimeout(5)
        right.settimeout(5)
        yield Control(left), Control(right)


def test_the_file_is_random_of_the_size_asked_and_the_same_each_time(tmp_path: Path) -> None:
    digests = set()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        job = TransferJob("write", 3 * (1 << 20) + 5, tmp_path / folder, 1)
        job.make_file()
        data = job.sent.read_bytes()
        assert len(data) == 3 * (1 << 20) + 5
        assert data[: 1 << 20] != data[1 << 20 : 2 << 20]
        digests.add(hashlib.sha256(data).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize(("operation", "sender"), [("write", "client"), ("read", "server")])
def test_with_read_the_server_has_the_file_else_the_client(
    tmp_path: Path, operation: str, sender: str
) -> None:
    job = TransferJob(operation, 8, tmp_path, 1)  # type: ignore[arg-type]
    for role in ("server", "client"):
        name = job.command(role)[-1]  # type: ignore[arg-type]
        assert Path(name) == (job.sent if role == sender else job.received)


@pytest.mark.parametrize(("operation", "sent"), [("send", "c"), ("read", "s")])
def test_the_result_says_what_the_sender_and_the_receiver_hashed(
    tmp_path: Path, operation: str, sent: str
) -> None:
    pair = PairResult(
        ProgramOutcome(("s",), 0, json.dumps({"sha256": "s", "seconds": 9.0}), ""),
        ProgramOutcome(("c",), 0, json.dumps({"sha256": "c", "seconds": 0.5}), ""),
        1.0,
    )
    transfer = TransferJob(operation, 100, tmp_path, 1).result(pair)  # type: ignore[arg-type]
    assert transfer.sent_sha256 == sent
    assert not transfer.intact
    assert transfer.bytes_per_s == 200.0


def test_the_ends_swap_addresses_and_meet(ends: tuple[Control, Control]) -> None:
    left, right = ends
    left.put({"gid": HERE.gid, "qpn": HERE.qpn, "psn": 7, "addr": HERE.addr, "rkey": 4097})
    assert right.swap(THERE) == HERE
    assert left.get() == {"gid": THERE.gid, "qpn": 131073, "psn": 8, "addr": 1 << 41, "rkey": 8193}
    left.put("ready")
    right.meet("ready")


def test_an_end_that_goes_away_is_reported_and_not_waited_for() -> None:
    left, right = socket.socketpair()
    control = Control(left)
    right.sendall(b'"rea')
    right.close()
    with left, pytest.raises(TransferError, match="closed the connection before"):
        control.get()


def test_an_end_that_is_out_of_step_is_reported(ends: tuple[Control, Control]) -> None:
    left, right = ends
    left.put("done")
    with pytest.raises(TransferError, match="'ready' was expected, the other end sent 'done'"):
        right.meet("ready")
    left.put(["no", "address"])
    with pytest.raises(TransferError, match="an address was expected"):
        right.swap(HERE)


def test_a_client_without_a_server_ends_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    argv = ["client", "write", "--port", str(port), "--bytes", "8", "--file", str(tmp_path / "f")]
    assert main(argv) == 1
    assert "client: " in capsys.readouterr().err


@pytest.mark.parametrize("size", ["0", "-1", str((1 << 30) + 1)])
def test_a_size_beyond_the_limits_is_refused(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["client", "write", "--port", "1", "--bytes", size, "--file", "f"])
    assert "choose 1 to 1073741824 bytes" in capsys.readouterr().err
