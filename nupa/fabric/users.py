# SPDX-License-Identifier: BSD-3-Clause
# os: pathlib would cost each `nupa run` 10 ms.
"""Users of a fabric: leases of hosts, and the programs that keep a segment in use.

The module registry says what a use and a lease are.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from nupa.base import locks
from nupa.base.errors import LocalError, NupaError
from nupa.core.segment import Segment

# One range of bytes a host, far behind the segment's end, where a file may be locked, too.
_LEASES_OFF = 1 << 60
_LEASES_PER_HOST = 1 << 16
#: Added to a host's number: the leases of its network interface (nupa/netdev/lent.py).
NET_LEASES = 1 << 10
# struct flock, fcntl(2): type, whence, start, len, pid; native alignment.
_FLOCK = "hhqqi0q"
#: The name of a kernel's own attachment (csrc/kernel/host/libc.c).
_KERNEL = "nupa_core"


def take_lease(segment: Segment, host: int) -> None:
    """Leases *host* until the segment is closed.  The caller holds the control lock."""
    for number in range(_LEASES_PER_HOST):
        byte = _LEASES_OFF + host * _LEASES_PER_HOST + number
        lock = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        try:
            fcntl.fcntl(segment.fd, fcntl.F_OFD_SETLK, lock)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):  # fcntl(2)
                continue
            raise locks.refused("fcntl", segment.path, error) from error
        return
    raise LocalError(
        f"host {host} has {_LEASES_PER_HOST} programs: start this one on another", errno.EBUSY
    )


def drop_lease(segment: Segment, host: int) -> None:
    """Gives up the lease of *host* that this segment took."""
    first = _LEASES_OFF + host * _LEASES_PER_HOST
    lock = struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, first, _LEASES_PER_HOST, 0)
    fcntl.fcntl(segment.fd, fcntl.F_OFD_SETLK, lock)


def leases(segment: Segment, host: int) -> int:
    """Returns how many other `nupa run` have leased *host*."""
    first = _LEASES_OFF + host * _LEASES_PER_HOST
    ranges = [(first, first + _LEASES_PER_HOST)]
    count = 0
    while ranges:
        at, end = ranges.pop()
        if at >= end:
            continue
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, at, end - at, 0)
        try:
            answer = fcntl.fcntl(segment.fd, fcntl.F_OFD_GETLK, asked)
        except OSError as error:
            raise locks.refused("fcntl", segment.path, error) from error
        kind, _, start, length, _ = struct.unpack(_FLOCK, answer)
        if kind == fcntl.F_UNLCK:
            continue
        count += 1
        # The report may be any lock of the range: look on both sides.  Length 0: to the end.
        ranges += [(at, start), (start + length if length else end, end)]
    return count


def users(path: str, *, only_programs: bool = False) -> str:
    """Returns ' by ib_send_lat (pid 12) on host0, ...', as far as it is known.

    These are attached processes and programs of `nupa run`, `nupa shell` and `nupa net exec`; also
    others that hold a use, such as captures and kernels, unless *only_programs*.
    """
    from nupa.base.holders import holders
    from nupa.base.process import children, say

    try:
        segment = Segment.open(path)
    except NupaError:
        return ""
    try:
        segment.reap()
        hosts = segment.hosts()
        slots = list(segment.slots())
        leased = sum(leases(segment, host.index) for host in hosts)
    finally:
        segment.close()
    pumps = {slot.pid for slot in slots if slot.net_queue}
    found = {
        slot.pid: f"{slot.comm} (pid {slot.pid}) on {hosts[slot.host].name}"
        for slot in slots
        if not slot.net_queue and not (only_programs and slot.comm == _KERNEL)
    }
    if leased or not only_programs:
        for pid in holders(path):
            started = children(pid)  # `nupa run` waits for its program
            known = found.keys() | pumps
            if pid > 0 and known.isdisjoint([pid, *started]) and (name := say(pid)):
                found[pid] = " for ".join([name, *filter(None, map(say, started[:1]))])
    if not found and leased:
        programs = "a program" if leased == 1 else f"{leased} programs"
        return f" by {programs} of another container"
    return f" by {', '.join(found.values())}" if found else ""
