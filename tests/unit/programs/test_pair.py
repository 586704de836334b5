# SPDX-License-Identifier: BSD-3-Clause
"""Pairs of programs that are small Python scripts, without a fabric."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from pathlib import Path

import pytest

from nupa.programs.pair import (
    Program,
    ProgramError,
    ProgramPair,
    free_port,
    is_listening,
    nupa_run,
)

PREFIX = "import os, signal, socket, sys\n"
SERVER = (
    "s = socket.create_server(('127.0.0.1', PORT)); c, _ = s.accept(); print(c.recv(9).decode())"
)
CLIENT = "c = socket.create_connection(('127.0.0.1', PORT)); c.sendall(b'hello'); print('sent')"
FOREVER = "signal.pause()"


def script(source: str, port: int = 0) -> list[str]:
    return [sys.executable, "-c", PREFIX + source.replace("PORT", str(port))]


def has_ended(pid: int) -> bool:
    """Tells whether it comes true within five seconds."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    ended = bool(poller.poll(5000))
    os.close(pidfd)
    return ended


def test_the_client_starts_when_the_server_listens_and_both_outputs_come_back() -> None:
    port = free_port()
    result = ProgramPair(script(SERVER, port), script(CLIENT, port), port=port).run().check()
    assert (result.server.stdout, result.client.stdout) == ("hello\n", "sent\n")
    assert (result.server.returncode, result.client.returncode) == (0, 0)


def test_a_server_that_ends_before_it_listens_is_an_error_with_its_output() -> None:
    with pytest.raises(ProgramError, match=r"(?s)did not listen on port.*ended with 3.*no device"):
        ProgramPair(
            script("print('no device', file=sys.stderr); sys.exit(3)"),
            script(CLIENT),
            port=free_port(),
        ).run()


def test_a_server_that_never_listens_is_killed_at_the_deadline() -> None:
    port = free_port()
    with pytest.raises(ProgramError, match=rf"did not listen on port {port} in 0\.2 s"):
        ProgramPair(script(FOREVER), script(CLIENT), port=port, deadline_s=0.2).run()


def test_programs_that_hang_are_killed_at_the_deadline_with_their_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    parent = f"pid = os.fork()\nif pid: open({str(pid_file)!r}, 'w').write(str(pid))\n{FOREVER}"
    result = ProgramPair(script(parent), script(FOREVER), deadline_s=1.0).run()
    assert result.server.returncode == result.client.returncode == -signal.SIGKILL
    assert "not done after" in result.client.killed
    assert has_ended(int(pid_file.read_text()))
    with pytest.raises(ProgramError, match="was killed"):
        result.check()


def test_after_one_end_failed_the_other_has_the_grace_and_no_more() -> None:
    with ProgramPair(script(FOREVER), script("sys.exit(7)"), grace_s=0.2, deadline_s=20) as pair:
        pair.start_server()
        pair.start_client()
        result = pair.wait()
    assert result.client.returncode == 7
    assert result.server.returncode == -signal.SIGKILL
    assert result.elapsed_s < 10


def test_an_end_may_be_killed_on_the_way_and_its_signal_is_reported() -> None:
    port = free_port()
    waits = "s = socket.create_server(('127.0.0.1', PORT)); signal.pause()"
    with ProgramPair(script(waits, port), script(FOREVER), port=port, grace_s=0.1) as pair:
        pair.start_server()
        pair.start_client()
        pair.server.signal(signal.SIGTERM)
        result = pair.wait()
    assert (result.server.returncode, result.server.killed) == (-signal.SIGTERM, "")


def test_leaving_the_pair_early_leaves_no_process() -> None:
    with ProgramPair(script(FOREVER), script(FOREVER)) as pair:
        pair.start_server()
        pid = pair.server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_more_output_than_a_pipe_holds_blocks_nobody() -> None:
    result = (
        ProgramPair(script("print('x' * 1_000_000)"), script("print('y')"), deadline_s=20)
        .run()
        .check()
    )
    assert len(result.server.stdout) == 1_000_001


def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(ProgramError, match="`/no/such/program -x` did not start"):
        Program(["/no/such/program", "-x"])


def test_each_end_runs_on_its_cpu_and_we_keep_ours() -> None:
    usable = sorted(os.sched_getaffinity(0))
    shows = script("print(*os.sched_getaffinity(0))")
    result = ProgramPair(shows, shows, cpus=(usable[0], usable[-1])).run().check()
    assert [result.server.stdout, result.client.stdout] == [f"{usable[0]}\n", f"{usable[-1]}\n"]
    assert sorted(os.sched_getaffinity(0)) == usable


def test_a_cpu_that_we_may_not_use_is_refused() -> None:
    beyond = max(os.sched_getaffinity(0)) + 1
    with pytest.raises(ProgramError, match=f"cannot pin to CPU {beyond}.*usable are"):
        Program(script(""), cpu=beyond)


def test_the_environment_is_added_to_ours() -> None:
    shows = script("print(os.environ['NUPA_TEST_END'], 'PATH' in os.environ)")
    result = ProgramPair(shows, shows, env={"NUPA_TEST_END": "here"}).run().check()
    assert result.server.stdout == "here True\n"


def test_the_tick_is_called_while_we_wait() -> None:
    seen: list[float] = []
    ProgramPair(script(FOREVER), script(FOREVER), deadline_s=0.5, tick=seen.append).run()
    assert len(seen) >= 2
    assert seen == sorted(seen)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_listening_port_is_seen_and_a_connected_one_is_not(family: socket.AddressFamily) -> None:
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError as error:
        pytest.skip(f"no {family.name} on this machine: {error}")
    port = server.getsockname()[1]
    with server, socket.create_connection((address, port)) as client:
        assert is_listening(port)
        assert not is_listening(client.getsockname()[1])
    assert not is_listening(port)


def test_the_command_line_of_nupa_run_names_fabric_host_and_mover() -> None:
    argv = nupa_run(["ib_send_lat", "-s", "8"], fabric="f", host="host1", mover="cma")
    assert argv[argv.index("run") :] == [
        *("run", "--fabric", "f", "--host", "host1", "--mover", "cma", "--", "ib_send_lat"),
        *("-s", "8"),
    ]
