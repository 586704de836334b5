# SPDX-License-Identifier: BSD-3-Clause
"""NVMe over Fabrics by two guests' kernels: `nvme.py ROLE`."""

from __future__ import annotations

import hashlib
import mmap
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
from tests.system.kernel import PATIENCE, insert, load, unload

ADDRESS, PORT, NQN = "10.0.0.1", "4420", "nupa"
#: Of the namespace: a target that starts anew has the one that initiators know.
_UUID = "5a7e2c11-0b3f-4f0e-9a53-6e7570610001"
_NVMET = Path("/sys/kernel/config/nvmet")
_BYTES, _STEP = 8 << 20, 128 << 10
_DEADLINE_S = 30.0 * PATIENCE
_RECONNECT_S = 600.0 * PATIENCE  # another guest boots meanwhile
#: An I/O error comes 2 s after the loss of the target, and connecting goes on without end.
_PATIENCE = "reconnect_delay=1,fast_io_fail_tmo=2,ctrl_loss_tmo=-1,keep_alive_tmo=5"


def _load_target() -> None:
    """Loads it as one that takes its requests by shared receive queues; modprobe has no words."""
    load("brd", "nvmet_rdma")
    unload("nvmet_rdma")
    insert("nvmet_rdma", "use_srq=1")


def target() -> None:
    """Serves a RAM disk."""
    _load_target()
    if not _NVMET.is_dir():
        subprocess.run(["mount", "-t", "configfs", "none", "/sys/kernel/config"], check=True)
    subsystem, port = _NVMET / "subsystems" / NQN, _NVMET / "ports" / "1"
    namespace = subsystem / "namespaces" / "1"
    namespace.mkdir(parents=True)
    port.mkdir()
    for path, value in (
        (subsystem / "attr_allow_any_host", "1"),
        (namespace / "device_path", "/dev/ram0"),
        (namespace / "device_uuid", _UUID),
        (namespace / "enable", "1"),
        (port / "addr_trtype", "rdma"),
        (port / "addr_adrfam", "ipv4"),
        (port / "addr_traddr", ADDRESS),
        (port / "addr_trsvcid", PORT),
    ):
        path.write_text(value)
    (port / "subsystems" / NQN).symlink_to(subsystem)


def connect(options: str = "") -> tuple[Path, Path]:
    """Returns the controller and its disk."""
    load("nvme_rdma")
    words = f"transport=rdma,traddr={ADDRESS},trsvcid={PORT},nqn={NQN},nr_io_queues=1"
    fabrics = os.open("/dev/nvme-fabrics", os.O_RDWR)
    os.write(fabrics, f"{words},{options}".rstrip(",").encode())
    instance = os.read(fabrics, 100).decode().split(",")[0].removeprefix("instance=")
    disk = Path(f"/dev/nvme{instance}n1")
    _await(disk.is_block_device, f"no {disk}")
    return Path(f"/sys/class/nvme/nvme{instance}"), disk


def disconnect(controller: Path) -> None:
    (controller / "delete_controller").write_text("1")


def _await(condition: Callable[[], bool], otherwise: str, limit_s: float = _DEADLINE_S) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, f"{otherwise} after {limit_s:g} s"
        os.sched_yield()


def _compare(disk: Path) -> None:
    data = random.Random(7).randbytes(_BYTES)
    with disk.open("r+b", buffering=0) as file:
        for at in range(0, _BYTES, _STEP):
            file.write(data[at : at + _STEP])
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        found = b"".join(file.read(_STEP) for _ in range(0, _BYTES, _STEP))
    assert hashlib.sha256(found).digest() == hashlib.sha256(data).digest()


def initiator() -> None:
    """Connects, writes, and reads the same."""
    controller, disk = connect()
    _compare(disk)
    disconnect(controller)


def _write_in_vain(disk: Path) -> None:
    """Writes until that fails."""
    block = mmap.mmap(-1, _STEP)
    descriptor = os.open(disk, os.O_RDWR | os.O_DIRECT)
    print("begun", flush=True)
    began_s = time.monotonic()
    try:
        while True:
            began_s = time.monotonic()
            os.pwrite(descriptor, block, 0)
    except OSError as error:
        print(f"{error.strerror} after {time.monotonic() - began_s:.1f} s", flush=True)
    os.close(descriptor)


def survivor() -> None:
    """Writes until the target is gone, and compares once another one is there."""
    controller, disk = connect(_PATIENCE)
    _write_in_vain(disk)
    state = controller / "state"
    _await(lambda: state.read_text() == "live\n", "not connected again", _RECONNECT_S)
    _compare(disk)
    print("equal", flush=True)
    disconnect(controller)


def loser() -> None:
    """Writes until the device is of no use, and ends the connection."""
    controller, disk = connect(_PATIENCE)
    _write_in_vain(disk)
    disconnect(controller)
    _await(lambda: not controller.exists(), "the controller is left")


if __name__ == "__main__":
    roles = {"target": target, "initiator": initiator, "survivor": survivor, "loser": loser}
    roles[sys.argv[1]]()
