# SPDX-License-Identifier: BSD-3-Clause
"""`nupa vm demo`: makes a machine of two guests, measures in it, takes it down."""

from __future__ import annotations

import argparse
import sys

from nupa.base.progress import Progress
from nupa.cli.common.command import EXIT_USAGE, fail
from nupa.cli.common.text import print_json
from nupa.cli.vm.machine import say
from nupa.measure.guest_report import GuestReport, render
from nupa.measure.text import glyphs_for
from nupa.programs.cpus import busy_cpus, load_note
from nupa.vm import demo
from nupa.vm.boot import boot
from nupa.vm.files.state import MachineState
from nupa.vm.files.topology import MachineTopology, changed
from nupa.vm.machine import machine


def run(args: argparse.Namespace) -> int:
    """Returns 0: all was measured; 1: a step failed; 2: programs are missing."""
    lacking = demo.missing()
    if lacking:
        return fail(lacking, EXIT_USAGE)
    load = load_note(busy_cpus())
    topology = changed(MachineTopology(), kind=args.kind)
    name = args.fabric or "demo"
    up = machine.up(
        name, topology, lambda: boot.prepare(args.qemu, say), say, timeout_s=args.timeout
    )
    kept = False
    try:
        report = _measure(up, demo.QUICK if args.quick else demo.FULL)
        if load:
            report.notes.append(load)
        kept = args.keep
    finally:
        if not kept:
            machine.down(name, force=True)
    if args.json:
        print_json(report.to_json())
    else:
        print(render(report, glyphs_for(sys.stdout.encoding)))
    if kept:
        say(f"the machine stays: `nupa vm shell host0`, `nupa vm down {name}`")
    return 0 if report.ok else 1


def _measure(up: MachineState, plan: demo.Workload) -> GuestReport:
    with Progress(demo.Demo.STEPS) as progress:
        return demo.Demo(plan, progress, up).run()
