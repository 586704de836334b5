# SPDX-License-Identifier: BSD-3-Clause
"""Ordinary TCP programs over rsockets, by rdma-core's librspreload: neither end knows of RDMA."""

from __future__ import annotations

import hashlib
import os
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from nupa.programs.pair import ProgramPair, free_port
from tests.programs.stage import DEADLINE_S, Stage

SCRIPTS = Path(__file__).parent
SERVER = "10.0.0.1"


@pytest.fixture
def preload(tmp_path: Path) -> str:
    """LD_PRELOAD: librspreload, before it what an old one lacks."""
    found = [*Path("/usr/lib").glob("*/rsocket/librspreload.so")]
    found += [*Path("/usr/lib64").glob("rsocket/librspreload.so")]
    if not found:
        pytest.skip("no librspreload.so: apt-get install librdmacm1")
    symbols = subprocess.run(["nm", "-D", found[0]], capture_output=True, text=True, check=True)
    if re.search(r" T accept4$", symbols.stdout, re.MULTILINE):
        return str(found[0])
    newer = tmp_path / "newer_preload.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", newer, SCRIPTS / "newer_preload.c"], check=True
    )
    return f"{newer} {found[0]}"


def under(preload: str, *command: str, **env: str) -> list[str]:
    settings = [f"{name}={value}" for name, value in env.items()]
    return ["env", f"LD_PRELOAD={preload}", *settings, *command]


def wait_for_port(stage: Stage, port: int) -> None:
    script = str(SCRIPTS / "until_bound.py")
    command = [stage.user.python, script, "stream", SERVER, str(port)]
    stage.run(stage.nupa_run(command, "host0")).check()


def tcp(stage: Stage, name: str, port: int, *more: str, host: str = SERVER) -> list[str]:
    return [stage.user.python, str(SCRIPTS / "tcp.py"), name, host, str(port), *more]


def tcp_pair(stage: Stage, preload: str, server: str, client: str, *more: str) -> ProgramPair:
    """Returns both started, the client when the server listens.  The caller ends them."""
    port = 8000
    made = ProgramPair(
        stage.nupa_run(under(preload, *tcp(stage, server, port)), "host0"),
        stage.nupa_run(under(preload, *tcp(stage, client, port, *more)), "host1"),
        env=stage.env,
        deadline_s=DEADLINE_S,
    )
    made.start_server()
    wait_for_port(stage, port)
    made.start_client()
    return made


def test_curl_gets_a_file_of_64_mib_from_pythons_http_server(
    fabric: Stage, preload: str, tmp_path: Path
) -> None:
    if not shutil.which("curl"):
        pytest.skip("no curl: apt-get install curl")
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "file").write_bytes(os.urandom(64 << 20))
    got = tmp_path / "got"
    options = ("8000", "--bind", SERVER, "--directory", str(folder))
    server = under(preload, fabric.user.python, "-m", "http.server", *options)
    url = f"http://{SERVER}:8000/file"
    client = under(preload, "curl", "-sS", "--noproxy", "*", "-o", str(got), url)
    pair = ProgramPair(
        fabric.nupa_run(server, "host0"), fabric.nupa_run(client, "host1"), env=fabric.env
    )
    with pair:
        pair.start_server()
        wait_for_port(fabric, 8000)
        pair.start_client()
        pair.client.wait(DEADLINE_S).check()
    digests = {hashlib.sha256(path.read_bytes()).digest() for path in (folder / "file", got)}
    assert len(digests) == 1


def test_thousands_of_messages_are_echoed(fabric: Stage, preload: str) -> None:
    with tcp_pair(fabric, preload, "echo_server", "echo_client") as pair:
        assert pair.wait().check().client.stdout == "echoed\n"


def test_one_thread_serves_several_clients_by_poll(fabric: Stage, preload: str) -> None:
    with tcp_pair(fabric, preload, "many_server", "many_client") as pair:
        assert pair.wait().check().client.stdout == "counted\n"


def test_a_client_notices_that_its_server_was_killed(
    fabric: Stage, preload: str, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    ready = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with tcp_pair(fabric, preload, "silent_server", "forsaken_client", str(fifo)) as pair:
        assert select.select([ready], [], [], DEADLINE_S)[0]
        os.close(ready)
        pair.server.signal(signal.SIGKILL)
        start_s = time.monotonic()
        outcome = pair.client.wait(DEADLINE_S).check()
        assert time.monotonic() - start_s < 5
    assert outcome.stdout == "reset\n"


@pytest.mark.parametrize("mode", ["n", "a", "b"])
def test_a_program_of_nonblocking_sockets_and_poll(fabric: Stage, preload: str, mode: str) -> None:
    """rstream with ordinary sockets is one: connect in progress, partial sends, SO_ERROR."""
    rstream = shutil.which("rstream")
    if rstream is None:
        pytest.skip("no rstream: apt-get install rdmacm-utils")
    shape = ("-p", "8000", "-T", "s", "-T", "v", "-T", mode, "-S", "50000", "-C", "20", "-I", "4")
    pair = ProgramPair(
        fabric.nupa_run(under(preload, rstream, "-b", SERVER, *shape), "host0"),
        fabric.nupa_run(under(preload, rstream, "-s", SERVER, *shape), "host1"),
        env=fabric.env,
        deadline_s=DEADLINE_S,
    )
    with pair:
        pair.start_server()
        wait_for_port(fabric, 8000)
        pair.start_client()
        result = pair.wait().check()
    assert re.search(r"^custom .*\d+\.\d+s", result.client.stdout, re.MULTILINE)


def test_what_rsockets_cannot_reach_is_tried_by_tcp(fabric: Stage, preload: str) -> None:
    """An address of this machine, where nothing listens: librspreload asks both in turn."""
    client = tcp(fabric, "refused_client", free_port(), host="127.0.0.1")
    outcome = fabric.run(fabric.nupa_run(under(preload, *client))).check()
    assert outcome.stdout == "refused\n"


def test_a_server_that_forks_moves_its_connection_to_the_child(fabric: Stage, preload: str) -> None:
    """RDMAV_FORK_SAFE: TCP until the fork, rsockets from the first byte on; one host's loopback."""
    rstream = shutil.which("rstream")
    if rstream is None:
        pytest.skip("no rstream: apt-get install rdmacm-utils")
    port = free_port()
    shape = ("-p", str(port), "-T", "f", "-T", "b", "-T", "v", "-S", "10000", "-C", "20", "-I", "9")
    server = under(preload, rstream, "-b", "127.0.0.1", *shape, RDMAV_FORK_SAFE="1")
    client = under(preload, rstream, "-s", "127.0.0.1", *shape, RDMAV_FORK_SAFE="1")
    pair = ProgramPair(
        fabric.nupa_run(server, "host0"),
        fabric.nupa_run(client, "host0"),
        env=fabric.env,
        port=port,
        deadline_s=DEADLINE_S,
    )
    try:
        result = pair.run().check()
    finally:  # librspreload's semaphore, which it never removes
        Path("/dev/shm/sem.rsocket_fork").unlink(missing_ok=True)
    assert re.search(r"^custom .*\d+\.\d+s", result.client.stdout, re.MULTILINE)
