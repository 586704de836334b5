# SPDX-License-Identifier: BSD-3-Clause
"""`nupa trunk`: machines are started, listed, repaired and taken down."""

from __future__ import annotations

import json
import os
import shlex
import signal
from pathlib import Path

import pytest

import nupa
from nupa.programs.pair import NUPA, run
from tests.common.namespaces import DEADLINE_S
from tests.trunk.lab import NAME, Cluster, topology
from tests.trunk.slurm import slurm
from tests.trunk.sshd import servers

pytestmark = pytest.mark.timeout(180)


def test_all_machines_start_and_see_each_other(two: Cluster) -> None:
    for at, machine in enumerate(two.machines):
        other = two[1 - at]
        assert machine.states() == {machine.name: "here", other.name: "up"}
        shown = machine.ls()
        assert shown["trunk"] == "up"
        assert shown["machine"] == machine.name
        assert "libucp" in shown["engine"]
    generations = {machine.ls()["generation"] for machine in two.machines}
    assert len(generations) == 1
    again = two.up().check()
    assert "all 2 machines are up already" in again.stdout


def test_the_table_and_nupa_show_say_where_hosts_are(two: Cluster) -> None:
    alpha = two[0]
    lines = alpha.ok("trunk", "ls").splitlines()
    assert lines[0] == f"{NAME}: this machine is alpha; trunk: up"
    assert [line.split()[0] for line in lines[1:]] == ["MACHINE", "alpha", "beta"]
    shown = alpha.show()
    assert [each["hosts"] for each in shown["machines"]] == [["host0", "host1"], ["host2", "host3"]]
    table = alpha.ok("show", NAME)
    assert [line.split()[-1] for line in table.splitlines() if line.startswith("host")][:4] == [
        "alpha",
        "alpha",
        "beta",
        "beta",
    ]
    asked = two.nupa("trunk", "ls", str(two.file), "--json").check()
    states = {each["name"]: each for each in json.loads(asked.stdout)["machines"]}
    assert states["alpha"]["joined"] == ["beta"]
    assert states["beta"]["joined"] == ["alpha"]


def test_a_machine_runs_programs_on_its_own_hosts_only(two: Cluster) -> None:
    alpha, beta = two.machines
    refused = alpha.nupa("run", "--fabric", NAME, "--host", "host2", "--", "true")
    assert refused.returncode == 1
    assert "host2 of 'lab' is on the machine beta (192.0.2.2): run it there" in refused.stderr
    assert "the hosts here, on alpha, are host0, host1" in refused.stderr
    said = [beta.ok("run", "--fabric", NAME, "--", "sh", "-c", "echo $NUPA_HOST") for _ in range(2)]
    assert said == ["host2\n"] * 2  # the first of equals


def test_a_fabric_with_a_trunk_goes_with_the_trunk(two: Cluster) -> None:
    refused = two[0].nupa("down", NAME)
    assert refused.returncode == 1
    assert f"`nupa trunk down --fabric {NAME}` takes both down" in refused.stderr
    two.down().check()
    assert two.left() == []
    assert two[0].nupa("trunk", "ls").stdout == (
        "no trunk is up here: `nupa trunk up FILE` starts one\n"
    )


def test_a_dead_trunk_is_started_again_by_the_same_command(two: Cluster) -> None:
    alpha, beta = two.machines
    (trunk,) = beta.trunks()
    generation = beta.ls()["generation"]
    os.kill(trunk.pid, signal.SIGKILL)
    two.await_states(0, {"beta": "down"})
    assert beta.ls()["trunk"] == "dead"
    two.up().check()
    assert beta.ls()["generation"] == generation
    assert alpha.states()["beta"] == "up"
    assert beta.states()["alpha"] == "up"


def test_a_machine_that_cannot_start_leaves_nothing_on_the_others(down: Cluster) -> None:
    text = down.file.read_text()
    beta = down[1]
    down.file.write_text(text.replace(beta.command, "/nowhere/nupa"))
    refused = down.up()
    assert refused.returncode == 1
    assert "beta: `/nowhere/nupa` is not found there" in refused.stderr
    assert "by `command` in the cluster file" in refused.stderr
    down.file.write_text(text.replace(beta.space.ipv4, "192.0.2.99"))
    refused = down.up()
    assert "beta: ssh: Could not resolve hostname 192.0.2.99" in refused.stderr
    down.file.write_text(text.replace('by = "ucx"', 'by = "ucx"\nlibrary = "libnowhere.so"'))
    refused = down.up()
    assert "libnowhere.so" in refused.stderr
    assert down.left() == []
    down.file.write_text(text)


def test_parts_are_started_by_hand_in_any_order(down: Cluster) -> None:
    alpha, beta = down.machines
    said = beta.ok("trunk", "up", str(down.file), "--machine", "beta")
    assert said == "lab: beta is up (host2, host3)\n"
    assert beta.states() == {"beta": "here", "alpha": "connecting"}
    alpha.ok("trunk", "up", str(down.file), "--machine", "alpha", "--wait", "20")
    down.await_states(1, {"alpha": "up"})
    assert beta.ok("trunk", "down") == ("its parts were started by hand: those of alpha stay up\n")
    down.await_states(0, {"beta": "down"})
    wrong = alpha.nupa("trunk", "up", str(down.file), "--machine", "beta")
    assert "this machine is 'alpha' of the fabric 'lab' already" in wrong.stderr
    unknown = alpha.nupa("trunk", "up", str(down.file), "--machine", "omega")
    assert "has no machine 'omega': its machines are alpha, beta" in unknown.stderr


def test_a_part_in_the_foreground_goes_with_its_command(down: Cluster) -> None:
    alpha = down[0]
    argv = alpha.argv("trunk", "up", str(down.file), "--machine", "alpha", "--foreground")
    for number in (signal.SIGTERM, signal.SIGKILL):
        program = down.start(argv)
        program.wait_said("alpha is up", 30)
        program.signal(number)
        program.outcome()
        alpha.await_end()
        assert down.left() == []


def test_ucx_of_a_trunk_loads_the_real_verbs_and_no_library_of_ours(down: Cluster) -> None:
    down.file.write_text(down.file.read_text() + 'transports = "tcp,rc_verbs"\n')
    ours = Path(nupa.__file__).with_name("lib")
    start = ["trunk", "up", str(down.file), "--machine", "alpha"]
    run(down[0].argv(*start), env={"LD_LIBRARY_PATH": str(ours)}, deadline_s=DEADLINE_S).check()
    (trunk,) = down[0].trunks()
    maps = Path(f"/proc/{trunk.pid}/maps").read_text().splitlines()
    mapped = {Path("/" + line.partition("/")[2]) for line in maps}
    assert any(path.name.startswith("libibverbs.so.1") for path in mapped), mapped
    assert not [path for path in mapped if path.parent == ours]


def test_by_a_real_ssh(down: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "sshd"
    folder.mkdir()
    with servers(down, folder) as words:
        ssh = shlex.join(words)
        alpha = down[0]
        # As from a laptop: both machines are others.
        inside = alpha.argv("trunk", "up", str(down.file), "--ssh", ssh)
        said = down.start(inside).wait(60).check().stdout
        assert "lab is up: 4 hosts on 2 machines" in said
        assert alpha.states()["beta"] == "up"
        wrong = alpha.nupa("trunk", "ls", str(down.file), "--ssh", "ssh -F none -o BatchMode=yes")
        assert "alpha: " in wrong.stderr
        assert "try: ssh 192.0.2.1 true" in wrong.stderr
        alpha.ok("trunk", "down", "--ssh", ssh)
    assert down.left() == []


#: Each node has a folder of its own, as it has a /dev/shm of its own in a real cluster.
_ON_NODE = """#!/bin/sh
case $SLURMD_NODENAME in
{cases}
esac
export NUPA_DIR
exec {nupa} "$@"
"""


@pytest.mark.parametrize("named", [False, True], ids=["nodes of the step", "nodes of the file"])
def test_by_a_real_srun(down: Cluster, tmp_path: Path, named: bool) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    hosts = folder / "hosts"
    hosts.write_text("".join(f"{each.space.ipv4} {each.name}\n" for each in down.machines))
    for machine in down.machines:
        machine.space.must("mount", "--bind", str(hosts), "/etc/hosts")
    if not named:
        down.file.write_text(topology(4) + '[[trunk]]\nby = "ucx"\n')
    script = folder / "nupa"
    cases = [f"{each.name}) NUPA_DIR={each.folder} ;;" for each in down.machines]
    script.write_text(_ON_NODE.format(cases="\n".join(cases), nupa=shlex.join(NUPA)))
    script.chmod(0o755)
    with slurm(down, folder) as step:
        each = ["-N", "2", "--ntasks-per-node=1", str(script)]
        twice = ["-N", "2", "--ntasks-per-node=2", "--overcommit", str(script)]
        refused = step.run(*twice, "trunk", "up", str(down.file), "--foreground")
        assert "4 tasks run on 2 nodes: a trunk is one task on each" in refused.stderr
        with step.start(*each, "trunk", "up", str(down.file), "--foreground") as task:
            for name in ("alpha", "beta"):
                task.wait_said(f"{name} is up", 60)
            down.await_states(0, {"beta": "up"})
            assert down[1].ls()["made_by"] == "srun"
            within = ["--jobid", step.job(), "--overlap"]
            said = step.run(*within, *each, "run", "--fabric", NAME, "--", "printenv", "NUPA_HOST")
            assert sorted(said.check().stdout.split()) == ["host0", "host2"]
            task.signal(signal.SIGTERM)
            task.outcome()
            for machine in down.machines:
                machine.await_end()
    assert down.left() == []
