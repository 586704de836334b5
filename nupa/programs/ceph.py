# SPDX-License-Identifier: BSD-3-Clause
"""A Ceph cluster of one monitor and one OSD that keeps objects in memory; `rados bench` on it.

Written for Ceph 16, whose messenger has a transport by verbs (ms_type async+rdma).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nupa.base.closing import Closing
from nupa.programs.disk import DiskRate, DiskWorkload
from nupa.programs.hosted import HostedCommand
from nupa.programs.pair import Program, ProgramError, run
from nupa.programs.unpacked import Unpacked

#: What is unpacked for it.
PACKAGES = ("ceph-mon", "ceph-osd", "ceph-common")
_FSID = "7e0d8f38-0000-4000-8000-000000000001"
_POOL = "bench"
_MIB = 1 << 20
_START_S = 40.0  # until the pool is there; longer has hung
_STORED_BYTES_MAX = 1024 * _MIB  # by one workload, in the OSD's memory

_CONFIGURATION = """\
[global]
fsid = {fsid}
mon_host = [v2:{address}:{port}]
public_network = {address}/24
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_type = async+{messenger}
ms_async_rdma_device_name = nupa_rdma0
ms_bind_msgr1 = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_data_avail_crit = 1
client_mount_timeout = 30
run_dir = {folder}
admin_socket = {folder}/$name.$pid.asok
log_file = {folder}/$name.log
mon_data = {folder}/mon
osd_data = {folder}/osd
osd_objectstore = memstore
# Threads change memstore's count of used bytes without a lock.  One lost change, and it is below
# zero after a cleanup, or the disk is full: the OSD drops writes without an answer.
osd_op_num_shards = 1
osd_op_num_threads_per_shard = 1
memstore_device_bytes = 4294967296
erasure_code_dir = {plugins}/erasure-code
osd_class_dir = {classes}
plugin_dir = {plugins}
"""


class CephError(Exception):
    """The output of rados has no result; the message quotes it."""


@dataclass(frozen=True)
class CephHosts:
    """Monitor and OSD run on *server*, clients on *client*; the monitor listens on *port*."""

    server: HostedCommand
    client: HostedCommand
    port: int


class CephCluster(Closing):
    """A cluster whose files are in *folder*; `close` kills it."""

    def __init__(self, programs: Unpacked, hosts: CephHosts, folder: Path) -> None:
        """Starts it.  ProgramError: a daemon or the pool cannot be made."""
        self._programs, self._hosts, self._folder = programs, hosts, folder
        self._daemons: list[Program] = []
        self._plugins = programs.libraries[0] / "ceph"
        for name in ("mon", "osd"):
            (folder / name).mkdir()
        (folder / "ceph.conf").write_text(
            _CONFIGURATION.format(
                fsid=_FSID,
                address=hosts.server.address,
                port=hosts.port,
                messenger="rdma" if hosts.server.rdma else "posix",
                folder=folder,
                plugins=self._plugins,
                classes=programs.libraries[0] / "rados-classes",
            )
        )
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        monitors = str(self._folder / "monmap")
        address = f"[v2:{self._hosts.server.address}:{self._hosts.port}]"
        make = ["--create", "--fsid", _FSID, "--addv", "a", address, monitors]
        self._serve_once("monmaptool", make)
        self._serve_once("ceph-mon", ["-i", "a", "--mkfs", "--monmap", monitors])
        self._daemon("ceph-mon", ["-f", "-i", "a"])
        self._serve_once("ceph-osd", ["-i", "0", "--mkfs", "--osd-uuid", _FSID])
        self._daemon("ceph-osd", ["-f", "-i", "0"])
        script = str(self._programs.program("ceph"))
        words = [script, *self._configured, "osd", "pool", "create", _POOL, "8"]
        argv = self._programs.python(*words, ours=self._hosts.client.rdma)
        self._checked(self._hosts.client.command(argv))

    @property
    def _configured(self) -> list[str]:
        return ["--conf", str(self._folder / "ceph.conf")]

    def _command(self, host: HostedCommand, program: str, words: Sequence[str]) -> list[str]:
        more = [self._plugins]
        words = words if program == "monmaptool" else [*self._configured, *words]
        return host.command(self._programs.command(program, *words, ours=host.rdma, more=more))

    def _serve_once(self, program: str, words: Sequence[str]) -> None:
        self._checked(self._command(self._hosts.server, program, words))

    def _daemon(self, program: str, words: Sequence[str]) -> None:
        self._daemons.append(Program(self._command(self._hosts.server, program, words)))

    def _checked(self, argv: Sequence[str]) -> str:
        """Runs a command while the daemons live.  ProgramError: it, or a daemon, failed."""
        outcome = run(argv, deadline_s=_START_S)
        for daemon in self._daemons:
            if not outcome.ok and not daemon.running:
                raise ProgramError(daemon.outcome().describe())
        return outcome.check().stdout

    def bench(self, block_bytes: int, depth: int, seconds: float) -> list[DiskRate]:
        """Returns the rates of writes, and of reads of what was written, which rados compares.

        ProgramError, CephError: a run failed.
        """
        most = max(2 * depth, _STORED_BYTES_MAX // block_bytes)
        write = ["write", "-b", str(block_bytes), "--no-cleanup", "--max-objects", str(most)]
        rates = []
        for words in (write, ["rand"]):
            whole = str(max(1, round(seconds)))
            text = self._rados("bench", whole, *words, "-t", str(depth), "--format", "json")
            rates.append(parse_bench(text, block_bytes))
        self._rados("cleanup")
        return rates

    def _rados(self, *words: str) -> str:
        return self._checked(self._command(self._hosts.client, "rados", ["-p", _POOL, *words]))

    def close(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.close()


def parse_bench(text: str, block_bytes: int) -> DiskRate:
    """Parses the JSON of `rados bench`, which stands behind notes.  CephError: it has no rate."""
    try:
        found: dict[str, Any] = json.loads(text[text.index("{") :])
        operations = int(found.get("total_writes_made") or found["total_reads_made"])
        rate = operations / float(found["total_time_run"])
        mean_us = float(found["average_latency"]) * 1e6
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise CephError(f"JSON with a rate was expected, rados wrote: {text[-300:]!r}") from error
    if rate <= 0:
        raise CephError("rados bench moved no object during the measurement")
    return DiskRate(rate, rate * block_bytes, mean_us)


def both_ways(block_bytes: int, depth: int) -> list[DiskWorkload]:
    """Returns the workloads of `CephCluster.bench`, in its order."""
    return [
        DiskWorkload("write", block_bytes, depth),
        DiskWorkload("read", block_bytes, depth, random=True),
    ]
