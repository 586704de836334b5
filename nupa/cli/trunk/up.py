# SPDX-License-Identifier: BSD-3-Clause
"""`nupa trunk up`: by ssh, by srun, or by hand."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from nupa.base.quantity import say_count
from nupa.cli.common.command import EXIT_ERROR, exit_by_signals, fail
from nupa.cli.trunk.command import WAIT_S

if TYPE_CHECKING:
    from nupa.trunk.cluster import Cluster, Machine
    from nupa.trunk.file import ClusterText
    from nupa.trunk.slurm import SlurmStep
    from nupa.trunk.up import PartUp


def run(args: argparse.Namespace) -> int:
    from nupa.trunk import slurm
    from nupa.trunk.file import read

    exit_by_signals()
    files = read(args.file)
    if args.machine is not None:
        cluster = files.parse()
        return _here(args, cluster, cluster.machine(args.machine), "", "hand")
    step = None if args.ssh is not None else slurm.find(os.environ)
    if step is not None:
        cluster = files.parse(step.machines())
        return _here(args, cluster, _of_step(cluster, step), step.session, "srun")
    if args.foreground:
        args.parser.error("--foreground is for --machine, or for a task of srun")
    return _everywhere(args, files)


def _of_step(cluster: Cluster, step: SlurmStep) -> Machine:
    """Returns the machine of a task: by its node's name, as the file or Slurm has it."""
    from nupa.base.errors import LocalError

    known = {machine.name: machine for machine in cluster.machines}
    for name in (step.name, step.nodes[step.node]):
        if name in known:
            return known[name]
    raise LocalError(
        f"the node {step.name} is none of the cluster's machines, {', '.join(known)}: name them "
        f"as Slurm does, or leave [[machine]] out"
    )


def _here(
    args: argparse.Namespace, cluster: Cluster, machine: Machine, session: str, made_by: str
) -> int:
    from nupa.trunk import up

    report = up.up(cluster, machine, session, made_by, attached=args.foreground)
    if report.started:
        print(f"{cluster.name}: {machine.name} is up ({', '.join(machine.hosts)})", flush=True)
    else:
        print(f"{cluster.name}: {machine.name} is up already; nothing to do", flush=True)
    if args.wait:
        missing = up.await_peers(cluster.name, args.wait)
        if missing:
            fail(f"{machine.name} is not joined to {', '.join(missing)} after {args.wait:g} s")
            if not args.foreground:
                return EXIT_ERROR
    if args.foreground:
        return _stay(cluster, report)
    return 0


def _stay(cluster: Cluster, report: PartUp) -> int:
    """Waits for a signal, which raises SystemExit, or for the end of the trunk."""
    from nupa.trunk.down import down

    if report.trunk is None:
        return fail(
            f"the trunk of {cluster.name!r} was started by another command, and stays in the "
            f"background"
        )
    try:
        report.trunk.watch()
    except SystemExit:
        down(cluster.name)
        return 0
    return fail(f"the trunk of {cluster.name!r} has ended")


def _everywhere(args: argparse.Namespace, files: ClusterText) -> int:
    from nupa.base.progress import Progress
    from nupa.trunk.all import up_all
    from nupa.trunk.remote import ssh_words

    ssh = ssh_words(args.ssh)
    count = len(files.parse().machines)
    with Progress(2 * count, quiet_s=1.0, beats=True) as progress:
        report = up_all(
            files,
            ssh=ssh,
            wait_s=args.wait or WAIT_S,
            each=lambda machine, _: progress.step(machine.name),
        )
    cluster = report.cluster
    for name, why in report.errors.items():
        fail(f"{name}: {why}")
    if report.errors:
        return EXIT_ERROR
    hosts = say_count(sum(len(machine.hosts) for machine in cluster.machines), "host")
    if not report.started:
        print(f"{cluster.name}: all {count} machines are up already; nothing to do")
        return 0
    print(f"{cluster.name} is up: {hosts} on {count} machines")
    for machine in cluster.machines:
        print(f"  {machine.name} ({machine.address}): {_span(machine.hosts)}")
    return 0


def _span(hosts: tuple[str, ...]) -> str:
    return ", ".join(hosts) if len(hosts) <= 4 else f"{hosts[0]}, {hosts[1]}, … {hosts[-1]}"
