# SPDX-License-Identifier: BSD-3-Clause
"""`nupa vm storage`: makes a machine of two guests, measures storage in it, takes it down."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_boot_timeout, add_fabric, add_json, seconds, size
from nupa.cli.common.command import EXIT_USAGE, Subparsers, add_command, exit_by_signals, fail

if TYPE_CHECKING:
    from nupa.measure.storage_report import StorageReport
    from nupa.vm.storage.session import StoragePlan
    from nupa.vm.storage.transport import StorageTransport

_EPILOG = """\
Boots two guests.  host0 serves a disk or a file system in its memory, by the kernel's own target;
host1 uses it by the kernel's own initiator.  fio writes blocks of all sizes, reads them and
compares their CRC; then it measures.  All of it is done over one transport after another:
  nupa    RDMA by NUPA's kernel modules, which are built for it
  rxe     RDMA by the kernel's rdma_rxe (soft-RoCE), over nupa_net0
  tcp     TCP over nupa_net0
  virtio  TCP over virtio-net
Takes two minutes.  Guests are emulated: compare columns, not figures with hardware.  All is taken
down at the end, also after Ctrl-C.
Exit code: 0 if all was verified and measured, 1 if a transport failed, 2 if a program is missing.

examples:
  nupa vm storage nvme
  nupa vm storage nfs --over nupa,tcp --seconds 5
  nupa vm storage iser --json | jq '.results[] | {transport, direction, block_bytes, bytes_per_s}'
"""
_MIB = 1 << 20


def add_parser(verbs: Subparsers) -> None:
    what = "measure NVMe-oF, NFS or iSER between two guests, over RDMA and TCP"
    parser = add_command(verbs, "storage", what, _EPILOG, _storage)
    parser.add_argument(
        "protocol", choices=["nvme", "nfs", "iser"], help="NVMe over Fabrics, NFS 4.2, or iSER"
    )
    parser.add_argument(
        "--over",
        type=_transports,
        metavar="NAME[,NAME...]",
        help="measure these transports (default: all)",
    )
    parser.add_argument(
        "--seconds",
        type=seconds(3600),
        default=2.0,
        metavar="N",
        help="measure each workload for so long (default: 2)",
    )
    parser.add_argument(
        "--size",
        type=size(_MIB, least=_MIB, most=256 * _MIB),
        default=32 * _MIB,
        metavar="SIZE",
        help="verify and use so much of the disk, 1M to 256M (default: 32M)",
    )
    add_json(parser)
    parser.add_argument("--kind", help="show the memory as cxl, or as ivshmem (default: cxl)")
    add_fabric(parser, "name machine and fabric (default: storage)", "--name")
    parser.add_argument("--qemu", metavar="PATH", help="run this QEMU, as with `nupa vm up`")
    add_boot_timeout(parser)


def _transports(text: str) -> tuple[StorageTransport, ...]:
    from nupa.base.errors import LocalError
    from nupa.vm.storage.transport import named

    try:
        return named(text)
    except LocalError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _storage(args: argparse.Namespace) -> int:
    """Returns 0: all was measured; 1: a step failed; 2: programs are missing."""
    from nupa.cli.common.text import print_json
    from nupa.measure.storage_report import render
    from nupa.programs.cpus import busy_cpus, load_note
    from nupa.vm.storage.protocol import PROTOCOLS
    from nupa.vm.storage.session import StoragePlan, missing
    from nupa.vm.storage.transport import TRANSPORTS

    exit_by_signals()
    transports = args.over or TRANSPORTS
    lacking = missing(transports)
    if lacking:
        return fail(lacking, EXIT_USAGE)
    (protocol,) = (each for each in PROTOCOLS if each.name == args.protocol)
    load = load_note(busy_cpus())
    report = _measure(StoragePlan(protocol, transports, args.size, args.seconds), args)
    if load:
        report.notes.append(load)
    if args.json:
        print_json(report.to_json())
    else:
        print(render(report))
    return 0 if report.ok else 1


def _measure(plan: StoragePlan, args: argparse.Namespace) -> StorageReport:
    """Boots the guests, runs the plan, and takes all down."""
    from nupa.base.progress import Progress
    from nupa.cli.vm.machine import say
    from nupa.vm.boot import boot
    from nupa.vm.files.topology import MachineTopology, changed
    from nupa.vm.machine import machine
    from nupa.vm.storage.session import StorageSession

    name = args.fabric or "storage"
    variables = plan.protocol.variables(say)
    up = machine.up(
        name,
        changed(MachineTopology(), kind=args.kind),
        lambda: boot.prepare(args.qemu, say, plan.modules, nupa_modules=plan.nupa_modules),
        say,
        timeout_s=args.timeout,
    )
    try:
        with Progress(plan.steps) as progress:
            return StorageSession(plan, progress, up, variables).run()
    finally:
        machine.down(name, force=True)
