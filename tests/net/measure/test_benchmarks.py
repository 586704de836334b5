# SPDX-License-Identifier: BSD-3-Clause
"""The benchmarks of the network run, each for an instant; what they make goes with them.

The results are checked for plausibility only.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import net, priority
from benchmarks.case import Bench, Case
from benchmarks.links import Kind, Link, Links
from nupa.measure import raw
from nupa.netdev import state
from nupa.programs.cpus import pick_two
from nupa.programs.fabric import temporary_fabric
from nupa.programs.pair import Program, ProgramError, await_end
from tests.programs.needs import needs
from tests.programs.users import User

pytestmark = pytest.mark.usefixtures("_possible")

REFERENCES: tuple[Kind, ...] = (
    "TAP loop",
    "TAP loop, plain",
    "veth",
    "veth, MTU 9000",
    "veth, MTU 65535",
)
DEADLINE_S = 20.0


@pytest.fixture
def links() -> Iterator[Links]:
    with Links() as links:
        yield links


@pytest.fixture
def bench(links: Links) -> Iterator[Bench]:
    """A fabric of its own, and instants."""
    cpus = pick_two() or (0, 0)
    with temporary_fabric("test-bench") as fabric:
        yield Bench(fabric.name, cpus, quick=True, links=links)
        # Before the fabric.
        links.close()


def test_over_each_reference_all_that_is_measured_arrives(links: Links) -> None:
    bench = Bench("none", pick_two() or (0, 0), quick=True, links=links)
    for kind in REFERENCES:
        assert 1 < net.round_trip_us(kind)(bench) < 1e5
        assert 1 < net.round_trip_on_one_cpu_us(kind)(bench) < 1e5
        assert 0.1 < net.datagrams_k_per_s(kind)(bench) < 1e5


@pytest.mark.parametrize("kind", REFERENCES)
def test_iperf3_runs_over_each_reference(links: Links, kind: Kind) -> None:
    needs("iperf3", "iperf3")
    bench = Bench("none", pick_two() or (0, 0), quick=True, links=links)
    assert 0.01 < net.stream(kind)(bench) < 1e4


@pytest.mark.parametrize("case", net.CASES, ids=lambda case: case.what)
def test_each_case_of_the_network_measures_nupa_net0(bench: Bench, case: Case) -> None:
    if "iperf3" in case.what:
        needs("iperf3", "iperf3")
    assert 0 <= case.measure(bench) < 1e5


@pytest.mark.parametrize("case", priority.CASES, ids=lambda case: case.what)
def test_verbs_and_tcp_both_get_through_at_once(bench: Bench, case: Case) -> None:
    needs("iperf3", "iperf3")
    needs("ib_send_lat", "perftest")
    assert 0 < case.measure(bench) < 1e5


def test_a_veth_pair_has_the_mtu_that_was_asked_for(links: Links) -> None:
    link = links.get("veth, MTU 9000", "none")
    for end, interface in enumerate(("veth0", "veth1")):
        command = link.command(end, ["ip", "-o", "link", "show", interface])
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert " mtu 9000 " in shown


def test_links_end_with_their_block(links: Links) -> None:
    pidfds = [os.pidfd_open(pid) for pid in pids(links)]
    links.close()
    for pidfd in pidfds:
        assert ended(pidfd)
        os.close(pidfd)


def pids(links: Links) -> list[int]:
    """Makes a link of each reference; returns its process."""
    found = [pid for kind in REFERENCES for pid in links.get(kind, "none").pids]
    assert len(found) == len(REFERENCES)
    return found


HOLDS_LINKS = """
import sys
from benchmarks.links import Links
with Links() as links:
    print(*(links.get(kind, "none").pids[0] for kind in sys.argv[1:]), flush=True)
    sys.stdin.read()
"""


def test_links_end_even_if_their_process_is_killed() -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_LINKS, *REFERENCES],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        pidfds = [os.pidfd_open(int(pid)) for pid in holder.stdout.readline().split()]
        holder.kill()
    assert len(pidfds) == len(REFERENCES)
    for pidfd in pidfds:
        assert ended(pidfd)
        os.close(pidfd)


def ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], DEADLINE_S)[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_takes_its_interfaces_down(number: signal.Signals, tmp_path: Path) -> None:
    env = {"NUPA_DIR": str(tmp_path)}
    argv = [sys.executable, "-m", "benchmarks", "--only", "net: idle"]
    with Program(argv, env=env) as program:
        while not list(tmp_path.glob(".*.net")):
            assert program.running, program.outcome().describe()
            await_end([program], 0.01)
        os.kill(program.pid, number)
        outcome = program.wait(DEADLINE_S)
        assert not outcome.ok
        assert not outcome.killed
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_what_cannot_be_made_is_an_error_with_its_remedy(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "BIN", Path("/usr/bin/nothing"))
    with pytest.raises(ProgramError, match="raw_tap is missing: `make build` installs it"):
        links.get("TAP loop", "none")
    with pytest.raises(ProgramError, match=r"no fabric|root, or user namespaces"):
        links.get("nupa_net0", "no-such-fabric")
    assert state.load("no-such-fabric") is None


def test_an_ordinary_user_makes_a_tap_loop_too(nobody: User) -> None:
    folder = Path(nobody.env.get("PYTHONPATH", raw.BIN.parents[1]))
    raw_tap = str(folder / "nupa" / "bin" / "raw_tap")
    loop = subprocess.Popen([*nobody.prefix, raw_tap], stdout=subprocess.PIPE, text=True)
    with loop:
        try:
            assert loop.stdout is not None
            _, _, enter = loop.stdout.readline().strip().partition(": ")
            assert "--user=" in enter
            probe = [*nobody.prefix, *enter.split(), needs("ping", "iputils-ping")]
            arguments = ["-c", "1", "-w", "10", "10.0.0.2"]
            subprocess.run([*probe, *arguments], check=True, capture_output=True)
        finally:
            loop.kill()


def test_the_processor_time_of_a_link_is_that_of_all_its_threads() -> None:
    link = Link(("", ""), ((), ()), (os.getpid(),))
    before_ns = link.cpu_ns()
    total = sum(range(1_000_000))
    assert total
    assert link.cpu_ns() > before_ns
