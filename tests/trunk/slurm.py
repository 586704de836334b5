# SPDX-License-Identifier: BSD-3-Clause
"""A real Slurm on the machines of a test: Debian's slurmctld, slurmd and srun, unpacked.

Its daemons trust each other (auth/none), which is why it runs in namespaces of the test only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from nupa.programs.pair import Program, ProgramOutcome
from tests.programs.needs import UNPACKED, needs
from tests.trunk.lab import Cluster, Machine

_CONTROLLER = "controller"
_READY_S = 30.0
_TICK_S = 0.1
_CONF = """ClusterName=test
SlurmctldHost={controller}({address})
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
PluginDir={plugins}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/linear
SchedulerType=sched/builtin
SwitchType=switch/none
KillWait=5
MailProg=/bin/true
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE OverSubscribe=YES
"""


@dataclass(frozen=True)
class Slurm:
    """The nodes are the machines of a cluster, by their names."""

    at: Machine
    env: dict[str, str]

    def srun(self, *words: str) -> list[str]:
        """Returns the command line of srun with these words."""
        return self.at.space.argv(needs("srun", "slurm-client"), *words)

    def run(self, *words: str, deadline_s: float = 40.0) -> ProgramOutcome:
        with Program(self.srun(*words), env=self.env) as program:
            return program.wait(deadline_s)

    def job(self) -> str:
        """Returns the number of the job that runs, the only one."""
        query = [needs("squeue", "slurm-client"), "-h", "-t", "running", "-o", "%i"]
        (job,) = self.at.space.run(*query, env=self.env).check().stdout.split()
        return job

    def start(self, *words: str) -> Program:
        return Program(self.srun(*words), env=self.env)


@contextmanager
def slurm(lab: Cluster, folder: Path) -> Iterator[Slurm]:
    """Starts the controller on the first machine, and a slurmd on each."""
    daemons = needs("slurmctld-wlm", "slurmctld"), needs("slurmd-wlm", "slurmd")
    (plugins,) = (UNPACKED / "lib").glob("*/slurm-wlm")
    for name in ("state", *(f"spool.{machine.name}" for machine in lab.machines)):
        (folder / name).mkdir()
    nodes = [
        f"NodeName={each.name} NodeAddr={each.space.ipv4} NodeHostname={each.name} Port=6818"
        for each in lab.machines
    ]
    conf = folder / "slurm.conf"
    conf.write_text(
        _CONF.format(
            controller=_CONTROLLER,
            address=lab[0].space.ipv4,
            folder=folder,
            plugins=plugins,
            nodes="\n".join(nodes),
        )
    )
    conf.with_name("cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    libraries = f"{plugins}:{plugins.parent}"
    env = {"SLURM_CONF": str(conf), "LD_LIBRARY_PATH": libraries}
    step = str(UNPACKED / "sbin" / "slurmstepd-wlm")
    with ExitStack() as stack:
        started = [_start(lab[0], _CONTROLLER, [daemons[0], "-D", "-i", "-f", str(conf)], env)]
        stack.enter_context(started[0])
        for each in lab.machines:
            argv = [daemons[1], "-D", "-N", each.name, "-f", str(conf), "-d", step]
            started.append(stack.enter_context(_start(each, each.name, argv, env)))
        _await_nodes(lab, env, started)
        yield Slurm(lab[0], env)


def _start(machine: Machine, hostname: str, argv: Sequence[str], env: dict[str, str]) -> Program:
    # The /sys of a machine is bare, and slurmd wants a place of cgroups, though it uses none.
    script = f'mount -t tmpfs tmpfs /sys/fs/cgroup && hostname {hostname} && exec "$@"'
    own = ["unshare", "--uts", "--mount", "--", "sh", "-c", script, "sh"]
    return Program(machine.space.argv(*own, *argv), env=env)


def _await_nodes(lab: Cluster, env: dict[str, str], started: Sequence[Program]) -> None:
    end_s = time.monotonic() + _READY_S
    want = {machine.name for machine in lab.machines}
    query = [needs("sinfo", "slurm-client"), "-h", "-N", "-t", "idle", "-o", "%N"]
    while set(lab[0].space.run(*query, env=env).stdout.split()) != want:
        for program in started:
            assert program.running, program.outcome().describe()
        assert time.monotonic() < end_s, [program.said() for program in started]
        time.sleep(_TICK_S)  # nothing tells of a node
