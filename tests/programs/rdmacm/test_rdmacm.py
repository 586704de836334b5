# SPDX-License-Identifier: BSD-3-Clause
"""rdmacm-utils over librdmacm.so.1: rping, ucmatose, udaddy, mckey, cmtime, rdma_(x)server."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from nupa.programs.pair import PairResult, ProgramOutcome, ProgramPair
from tests.programs.rdmacm.cm_stage import SERVER, port, program, start
from tests.programs.stage import DEADLINE_S, Stage


@pytest.fixture
def infiniband(stage: Stage, tmp_path: Path) -> Iterator[Stage]:
    """The same, with LIDs instead of RoCE."""
    preset = files("nupa.topology") / "presets" / "pair.toml"
    topology = tmp_path / "infiniband.toml"
    topology.write_text('link_layer = "infiniband"\n' + preset.read_text())
    stage.ok("up", "--topology", str(topology))
    yield stage
    stage.ok("down")


def rping(
    stage: Stage,
    *options: str,
    bind: str = "",
    to: str = SERVER,
    client: Sequence[str] = ("-c",),
    client_host: str = "host1",
) -> PairResult:
    """Runs `rping -s` on host0 and `rping -c`, both with *options*, to their ends."""
    number = port()
    rest = ["-p", number, "-V", "-v", *options]
    server = [program("rping"), "-s", *(["-a", bind] if bind else []), *rest]
    asker = [program("rping"), *client, "-a", to, *rest]
    with start(stage, server, asker, number=number, hosts=("host0", client_host)) as pair:
        return pair.wait().check()


def pings(output: str) -> list[int]:
    return [int(n) for n in re.findall(r"ping data: rdma-ping-(\d+)", output)]


def test_rping_finds_its_data_intact(fabric: Stage) -> None:
    result = rping(fabric, "-C", "20")
    assert pings(result.server.stdout) == pings(result.client.stdout) == list(range(20))


@pytest.mark.parametrize("mover", ["cma", "relay"])
def test_rping_with_each_mover(fabric: Stage, mover: str) -> None:
    result = rping(replace(fabric, mover=mover), "-C", "5", "-S", "65000")
    assert pings(result.client.stdout) == list(range(5))


def test_rping_that_modifies_its_qp_itself(fabric: Stage) -> None:
    assert pings(rping(fabric, "-C", "5", "-q").client.stdout) == list(range(5))


@pytest.mark.parametrize("bind", ["", SERVER, "::"])
def test_rping_to_an_address_of_its_host(fabric: Stage, bind: str) -> None:
    assert pings(rping(fabric, "-C", "3", bind=bind).client.stdout) == [0, 1, 2]


@pytest.mark.parametrize("to", [f"::ffff:{SERVER}", "fd4e:5550:4100::1", "fe80::aff:fe00:1"])
@pytest.mark.parametrize("to_any", [True, False])
def test_rping_over_ipv6(fabric: Stage, to: str, to_any: bool) -> None:
    result = rping(fabric, "-C", "3", bind="::" if to_any else to, to=to)
    assert pings(result.client.stdout) == [0, 1, 2]


def test_rping_from_an_ipv6_address_of_its_host(fabric: Stage) -> None:
    own = ["-c", "-I", "fd4e:5550:4100::2"]
    result = rping(fabric, "-C", "3", bind="::", to="fd4e:5550:4100::1", client=own)
    assert pings(result.client.stdout) == [0, 1, 2]


@pytest.mark.parametrize(("bind", "to"), [("", "127.0.0.1"), ("::1", "::1"), ("", SERVER)])
def test_rping_within_one_host(fabric: Stage, bind: str, to: str) -> None:
    result = rping(fabric, "-C", "3", bind=bind, to=to, client_host="host0")
    assert pings(result.client.stdout) == [0, 1, 2]


def test_rping_over_infiniband(infiniband: Stage) -> None:
    assert pings(rping(infiniband, "-C", "3").client.stdout) == [0, 1, 2]


def test_a_persistent_rping_serves_one_after_the_other(fabric: Stage) -> None:
    number = port()
    rest = ["-p", number, "-C", "3"]
    client = [program("rping"), "-c", "-v", "-a", SERVER, *rest]
    server = [program("rping"), "-s", "-P", *rest]
    with start(fabric, server, client, number=number) as pair:
        assert pings(_client(pair).stdout) == [0, 1, 2]
        for _ in range(3):
            outcome = fabric.run(fabric.nupa_run(client, "host1")).check()
            assert pings(outcome.stdout) == [0, 1, 2]
        assert pair.server.running


def _client(pair: ProgramPair) -> ProgramOutcome:
    """Returns how the client of a server that runs for ever ended: well."""
    while pair.client.running:
        assert pair.elapsed_s < pair.deadline_s, "the client hangs"
    return pair.client.outcome().check()


def test_a_client_notices_that_its_server_was_killed(fabric: Stage) -> None:
    number = port()
    rest = ["-p", number, "-v"]  # for ever
    server = [program("rping"), "-s", *rest]
    client = [program("rping"), "-c", "-a", SERVER, *rest]
    with start(fabric, server, client, number=number) as pair:
        fabric.wait_for_contact(pair)
        pid = next(at["pid"] for at in fabric.show()["listeners"])
        fabric.run(["kill", f"-{signal.SIGKILL.value}", str(pid)])
        while pair.client.running:
            assert pair.elapsed_s < pair.deadline_s, "the client hangs"
        outcome = pair.client.outcome()
    said = outcome.stdout + outcome.stderr
    # Two threads of rping are told at the same time; the first one ends the program.
    assert "DISCONNECT EVENT" in said or "cq completion failed" in said


@pytest.mark.parametrize(
    ("to", "what"),
    [
        (SERVER, "RDMA_CM_EVENT_REJECTED, error 8"),  # no listener
        ("10.0.0.77", "RDMA_CM_EVENT_ADDR_ERROR, error -113"),  # no such host: EHOSTUNREACH
        ("fd4e:5550:4100::77", "RDMA_CM_EVENT_ADDR_ERROR, error -113"),
        ("192.0.2.1", "RDMA_CM_EVENT_ADDR_ERROR, error -19"),  # not ours: ENODEV
    ],
)
def test_a_client_says_why_it_cannot_connect(fabric: Stage, to: str, what: str) -> None:
    outcome = fabric.run(fabric.nupa_run([program("rping"), "-c", "-a", to], "host1"))
    assert outcome.returncode != 0
    assert what in outcome.stdout + outcome.stderr


def both(stage: Stage, name: str, *options: str, space: str = "tcp") -> PairResult:
    """Runs `NAME` and `NAME -s SERVER` of one family of programs."""
    number = port()
    rest = ["-p", number, *options]
    server, client = [program(name), *rest], [program(name), "-s", SERVER, *rest]
    with start(stage, server, client, number=number, space=space) as pair:
        return pair.wait().check()


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-c", "50"),
        ("-c", "5", "-m"),
        ("-t", "32"),
        ("-a", "12"),
        ("-C", "100", "-S", "100000"),
        ("-C", "0"),
    ],
    ids=" ".join,
)
def test_ucmatose_transfers_and_disconnects(fabric: Stage, options: tuple[str, ...]) -> None:
    result = both(fabric, "ucmatose", *options)
    assert "return status 0" in result.server.stdout
    assert "return status 0" in result.client.stdout


def test_ucmatose_in_the_ib_port_space(fabric: Stage) -> None:
    assert "return status 0" in both(fabric, "ucmatose", "-P", "ib", space="ib").client.stdout


def test_cmtime_connects_a_thousand_times(fabric: Stage) -> None:
    number = port()
    rest = ["-p", number, "-c", "1000"]
    server, client = [program("cmtime"), *rest], [program("cmtime"), "-s", SERVER, *rest]
    with start(fabric, server, client, number=number) as pair:
        table = _client(pair).stdout
    for step in ("create id", "resolve addr", "create qp", "connect", "disconnect", "destroy"):
        assert re.search(rf"^(cm )?{step}\b.*\d", table, re.MULTILINE), table


#: Their ports are built in: of one fabric, whose ports are its own.
UDADDY_PORT = "7174"


@pytest.mark.parametrize("options", [(), ("-c", "10"), ("-C", "50", "-S", "2000")], ids=" ".join)
def test_udaddy_looks_its_peer_up_and_exchanges_datagrams(
    fabric: Stage, options: tuple[str, ...]
) -> None:
    server = [program("udaddy"), *options]
    client = [program("udaddy"), "-s", SERVER, *options]
    with start(fabric, server, client, number=UDADDY_PORT, space="udp") as pair:
        result = pair.wait().check()
    assert "return status 0" in result.server.stdout
    assert "return status 0" in result.client.stdout


def mckey(stage: Stage, group: str, bind: bool) -> PairResult:
    """Returns a receiver on host0 and a sender, which waits three seconds as for a subnet
    manager."""
    command = [program("mckey"), "-m", group]
    binds = [["-b", address] if bind else [] for address in (SERVER, "10.0.0.2")]
    pair = ProgramPair(
        stage.nupa_run([*command, *binds[0]], "host0"),
        stage.nupa_run([*command, *binds[1], "-s"], "host1"),
        env=stage.env,
        deadline_s=DEADLINE_S,
    )
    return pair.run().check()


@pytest.mark.parametrize(
    ("group", "bind"), [("239.192.0.1", True), ("239.192.0.1", False), ("ff0e::4e55:5041", False)]
)
def test_mckey_receives_what_is_sent_to_its_group(fabric: Stage, group: str, bind: bool) -> None:
    result = mckey(fabric, group, bind)
    assert "data transfers complete" in result.server.stdout
    assert "MULTICAST_ERROR" not in result.server.stdout + result.client.stdout


def test_mckey_over_infiniband(infiniband: Stage) -> None:
    result = mckey(infiniband, "239.192.0.1", True)
    assert "data transfers complete" in result.server.stdout
    assert "MULTICAST_ERROR" not in result.server.stdout + result.client.stdout


@pytest.mark.parametrize(
    "names", [("rdma_server", "rdma_client"), ("rdma_xserver", "rdma_xclient")]
)
def test_endpoints_exchange_a_message(fabric: Stage, names: tuple[str, str]) -> None:
    number = port()
    server = [program(names[0]), "-p", number]
    client = [program(names[1]), "-s", SERVER, "-p", number]
    with start(fabric, server, client, number=number) as pair:
        result = pair.wait().check()
    assert f"{names[0]}: end 0" in result.server.stdout
    assert f"{names[1]}: end 0" in result.client.stdout


def test_endpoints_exchange_a_message_by_xrc(fabric: Stage) -> None:
    number = port()
    server = [program("rdma_xserver"), "-c", "x", "-p", number]
    client = [program("rdma_xclient"), "-c", "x", "-s", SERVER, "-p", number]
    with start(fabric, server, client, number=number, space="ib") as pair:
        result = pair.wait().check()
    assert "end 0" in result.server.stdout
    assert "end 0" in result.client.stdout
