# SPDX-License-Identifier: BSD-3-Clause
"""rdma-core's own programs over rsockets: rstream, riostream, rcopy, udpong."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

import pytest

from nupa.programs.pair import PairResult, ProgramOutcome, ProgramPair
from tests.programs.stage import DEADLINE_S, Stage

UNTIL_BOUND = Path(__file__).with_name("until_bound.py")
PORT = "7471"
SERVER = "10.0.0.1"
SHORT = ("-S", "5000", "-C", "40", "-I", "5")
LONG = ("-S", "1000000", "-C", "4", "-I", "2")


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}: apt-get install rdmacm-utils")
    return found


def pair(stage: Stage, server: list[str], client: list[str], kind: str = "stream") -> ProgramPair:
    """Starts both, the client after the server has its port.  The caller ends them."""
    made = ProgramPair(
        stage.nupa_run(server, "host0"),
        stage.nupa_run(client, "host1"),
        env=stage.env,
        deadline_s=DEADLINE_S,
    )
    made.start_server()
    bound: ProgramOutcome = stage.run(
        stage.nupa_run([stage.user.python, str(UNTIL_BOUND), kind, SERVER, PORT], "host0")
    )
    assert bound.ok, bound.describe()
    made.start_client()
    return made


def run(stage: Stage, name: str, *options: str) -> PairResult:
    """Runs `NAME -b SERVER` and `NAME -s SERVER` to their ends."""
    server = [program(name), "-p", PORT, "-b", SERVER, *options]
    client = [program(name), "-p", PORT, "-s", SERVER, *options]
    with pair(stage, server, client) as both:
        return both.wait().check()


def rows(result: PairResult) -> list[str]:
    """Returns the names of the tests whose results both ends print."""
    tables = [
        re.findall(r"^(\w+) .*\d+\.\d+s", outcome.stdout, re.MULTILINE)
        for outcome in (result.server, result.client)
    ]
    assert tables[0] == tables[1]
    assert not result.server.stderr
    assert not result.client.stderr
    return tables[0]


MODES = [(), ("-T", "a"), ("-T", "b"), ("-T", "n"), ("-T", "r")]


@pytest.mark.parametrize("shape", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("mode", MODES, ids=["default", "async", "blocking", "nonblocking", "rai"])
def test_rstream_verifies_what_it_streams(
    fabric: Stage, mode: tuple[str, ...], shape: tuple[str, ...]
) -> None:
    assert rows(run(fabric, "rstream", "-T", "v", *mode, *shape)) == ["custom"]


@pytest.mark.parametrize(
    "options",
    [("-B", "4096"), ("-B", "1000000"), ("-i", "0"), ("-i", "300"), ("-k", "7")],
    ids=" ".join,
)
def test_rstream_with_options_of_its_sockets(fabric: Stage, options: tuple[str, ...]) -> None:
    assert rows(run(fabric, "rstream", "-T", "v", *SHORT, *options)) == ["custom"]


def test_rstream_runs_all_of_its_default_tests(fabric: Stage) -> None:
    assert rows(run(fabric, "rstream")) == [
        f"{size}_{kind}" for kind in ("lat", "bw") for size in ("64", "4k", "64k", "1m")
    ]


@pytest.mark.parametrize("mode", [(), ("-T", "a"), ("-T", "b")], ids=["default", "async", "block"])
@pytest.mark.parametrize("shape", [SHORT, LONG], ids=["short", "long"])
def test_riostream_places_data_directly(
    fabric: Stage, mode: tuple[str, ...], shape: tuple[str, ...]
) -> None:
    assert rows(run(fabric, "riostream", "-T", "v", *mode, *shape)) == ["custom"]


def test_rcopy_copies_a_file_of_64_mib(fabric: Stage, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(os.urandom(64 << 20))
    server = [program("rcopy"), "-p", PORT]
    client = [program("rcopy"), str(source), f"{SERVER}:{copy}", "-p", PORT]
    with pair(fabric, server, client) as both:
        both.client.wait(DEADLINE_S).check()
    digests = {hashlib.sha256(path.read_bytes()).digest() for path in (source, copy)}
    assert len(digests) == 1


@pytest.mark.parametrize("mode", ["a", "b", "n"])
def test_udpong_echoes_datagrams(fabric: Stage, mode: str) -> None:
    server = [program("udpong"), "-p", PORT, "-b", SERVER, "-T", mode]
    client = [program("udpong"), "-p", PORT, "-s", SERVER, "-T", mode, "-T", "e"]
    with pair(fabric, server, [*client, "-S", "1000", "-C", "200"], kind="datagram") as both:
        outcome = both.client.wait(DEADLINE_S).check()
    assert re.search(r"^custom .*\d+\.\d+s", outcome.stdout, re.MULTILINE)
