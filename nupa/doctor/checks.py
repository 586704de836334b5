# SPDX-License-Identifier: BSD-3-Clause
"""The table of all checks: a probe, the meaning of its outcome, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from nupa.doctor import probes
from nupa.doctor.probes import ProbeError
from nupa.fabric import registry

OK, LIMITED, MISSING = "ok", "limited", "missing"


class Check(NamedTuple):
    """The outcome of one check.

    state: ok, limited (RDMA works without it) or missing (nothing works without it).
    remedy: empty if there is nothing to do.
    """

    name: str
    state: str
    found: str
    follows: str
    remedy: str = ""


class CheckRow(NamedTuple):
    """One check.  *probe* returns what it found, and what follows if that is not *works*."""

    name: str
    probe: Callable[[], str | tuple[str, str]]
    works: str  #: what follows from success
    fails: str  #: what follows from failure, unless the probe says otherwise
    remedy: str
    failed: str = LIMITED  #: the state after failure

    def check(self) -> Check:
        try:
            found = self.probe()
        except ProbeError as error:
            follows, remedy = error.follows or self.fails, error.remedy or self.remedy
            return Check(self.name, self.failed, error.found, follows, remedy)
        seen, follows = (found, self.works) if isinstance(found, str) else found
        return Check(self.name, OK, seen, follows)


def check_all() -> Iterator[Check]:
    """Runs all checks, those first on which most depends."""
    return (row.check() for row in _rows())


def _rows() -> tuple[CheckRow, ...]:
    return (
        CheckRow(
            "engine",
            probes.engine,
            "fabrics within one process work",
            "no fabric can be made",
            "do what FOUND says",
            MISSING,
        ),
        CheckRow(
            "libibverbs",
            probes.drop_in,
            "`nupa run` runs verbs programs unmodified",
            "`nupa run` cannot give programs its verbs; nupa.verbs works",
            "install the package: `pip install .`, or `make build` in a checkout",
        ),
        CheckRow(
            "own libibverbs",
            probes.own_libraries,
            "programs that bring their own (RPATH, wheels, conda, Spack, AppImages) see the device",
            "programs that bring their own libibverbs see no device",
            "use a C library that honours LD_PRELOAD (glibc), and do what FOUND says",
        ),
        CheckRow(
            f"segments in {registry.folder()}",
            probes.folder,
            "named fabrics can be made",
            "no named fabric can be made, so no `nupa run`",
            "set NUPA_DIR to a folder of your own in a tmpfs",
            MISSING,
        ),
        CheckRow(
            "room for segments",
            probes.room,
            "fabrics have room",
            "large fabrics and many connections fail",
            "free space there, or enlarge the file system "
            "(docker run --shm-size=1g; mount -o remount,size=1g /dev/shm)",
        ),
        CheckRow(
            "CMA",
            probes.cma,
            "bulk moves in one copy (cma)",
            "bulk moves through the channel (relay): correct, but slower",
            "allow process_vm_readv and process_vm_writev in the seccomp profile "
            "(docker run --cap-add SYS_PTRACE), and set Yama's ptrace_scope below 2",
        ),
        CheckRow(
            "Yama ptrace_scope",
            probes.yama,
            "the engine admits its peers",
            "CMA needs CAP_SYS_PTRACE; without it, bulk moves by relay",
            "sysctl kernel.yama.ptrace_scope=1",
        ),
        CheckRow(
            "pidfd",
            probes.pidfd,
            "the death of a peer is seen at once",
            "the death of a peer is seen late",
            "use Linux 5.3 or newer, and allow pidfd_open in the seccomp profile",
        ),
        CheckRow(
            "futex",
            probes.futex,
            "doorbells wake sleeping processes",
            "sleeping processes cannot be woken",
            "allow futex in the seccomp profile",
            MISSING,
        ),
        CheckRow(
            "doorbell",
            probes.doorbell,
            "guests that share a fabric wake by interrupts",
            probes.GUESTS_POLL,
            "`nupa vm down`, and `nupa vm up --kind ivshmem --doorbell`",
        ),
        CheckRow(
            "cores",
            probes.cores,
            "two polling programs run beside each other",
            "two polling programs take turns: correct, with high latency",
            "allow two cores (taskset, cpuset, docker run --cpus=2)",
        ),
        CheckRow(
            "perftest",
            probes.program("ib_write_bw"),
            "ib_write_bw and the others can be run",
            "ib_write_bw and the others cannot be run",
            "apt-get install perftest",
        ),
        CheckRow(
            "ibverbs-utils",
            probes.program("ibv_rc_pingpong"),
            "ibv_devinfo and the pingpongs can be run",
            "ibv_devinfo and the pingpongs cannot be run",
            "apt-get install ibverbs-utils",
        ),
        CheckRow(
            "userfaultfd",
            probes.userfaultfd,
            "registered memory is promoted; system calls that write to it meanwhile wait",
            "registered memory is not promoted to shared memory; cma and relay move it",
            "allow userfaultfd in the seccomp profile",
        ),
        CheckRow(
            "user namespaces",
            probes.user_namespaces,
            "a network namespace can be made without root",
            "a network namespace needs root; RDMA does not",
            "sysctl kernel.unprivileged_userns_clone=1, or "
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        CheckRow(
            "TUN",
            probes.tun,
            "a network interface can be made",
            "no network interface can be made; RDMA needs none",
            "modprobe tun, or docker run --device /dev/net/tun",
        ),
        CheckRow(
            "netdev",
            probes.netdev,
            "`nupa net up` gives each host one",
            "`nupa net` does not work; RDMA does",
            "do what FOUND says",
        ),
    )
