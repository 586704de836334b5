# SPDX-License-Identifier: BSD-3-Clause
"""NVMe over Fabrics by two guests' kernels: run in a guest as `kernel.py ROLE`."""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

ADDRESS, PORT, NQN = "10.0.0.1", "4420", "nupa"
_NVMET = Path("/sys/kernel/config/nvmet")
_BYTES, _STEP = 8 << 20, 128 << 10
_DEADLINE_S = 30.0
_DELETE_MODULE = 176  # of x86-64


def load(*names: str) -> None:
    for name in names:
        subprocess.run(["/sbin/modprobe", name], check=True)


def target() -> None:
    """Serves a RAM disk."""
    load("brd", "nvmet_rdma")
    if not _NVMET.is_dir():
        subprocess.run(["mount", "-t", "configfs", "none", "/sys/kernel/config"], check=True)
    subsystem, port = _NVMET / "subsystems" / NQN, _NVMET / "ports" / "1"
    namespace = subsystem / "namespaces" / "1"
    namespace.mkdir(parents=True)
    port.mkdir()
    for path, value in (
        (subsystem / "attr_allow_any_host", "1"),
        (namespace / "device_path", "/dev/ram0"),
        (namespace / "enable", "1"),
        (port / "addr_trtype", "rdma"),
        (port / "addr_adrfam", "ipv4"),
        (port / "addr_traddr", ADDRESS),
        (port / "addr_trsvcid", PORT),
    ):
        path.write_text(value)
    (port / "subsystems" / NQN).symlink_to(subsystem)


def initiator() -> None:
    """Connects, writes, and reads the same."""
    load("nvme_rdma")
    words = f"transport=rdma,traddr={ADDRESS},trsvcid={PORT},nqn={NQN},nr_io_queues=1"
    fabrics = os.open("/dev/nvme-fabrics", os.O_RDWR)
    os.write(fabrics, words.encode())
    instance = os.read(fabrics, 100).decode().split(",")[0].removeprefix("instance=")
    disk = Path(f"/dev/nvme{instance}n1")
    until = time.monotonic() + _DEADLINE_S
    while not disk.is_block_device():
        assert time.monotonic() < until, f"no {disk} after {_DEADLINE_S:g} s"
        os.sched_yield()
    data = random.Random(7).randbytes(_BYTES)
    with disk.open("r+b", buffering=0) as file:
        for at in range(0, _BYTES, _STEP):
            file.write(data[at : at + _STEP])
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        found = b"".join(file.read(_STEP) for _ in range(0, _BYTES, _STEP))
    assert hashlib.sha256(found).digest() == hashlib.sha256(data).digest()
    Path(f"/sys/class/nvme/nvme{instance}/delete_controller").write_text("1")


def unload() -> None:
    """Takes the modules out, users first (delete_module(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("nvme_rdma", "nupa_rdma", "nupa_core"):
        if libc.syscall(_DELETE_MODULE, name.encode(), os.O_NONBLOCK):
            raise OSError(ctypes.get_errno(), f"cannot unload {name}")


if __name__ == "__main__":
    {"target": target, "initiator": initiator, "unload": unload}[sys.argv[1]]()
