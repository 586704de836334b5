# SPDX-License-Identifier: BSD-3-Clause
"""Makes tests/data/linux_guest.json: what Linux sees of a CXL tree in a guest of `nupa vm up`.

    .venv/bin/python tests/data/capture_guest.py [FILE]

The tree is a pxb-cxl host bridge with two root ports.  A switch with two downstream ports is behind
the first root port; a type 3 device with 256 MiB is behind the first downstream port.  The file
keeps facts alone:

    lspci        `lspci -vvnnxxxx` of each of these functions; hex lines of zeros alone are left out
    after        sysfs of the CXL bus as the guest booted: its region is committed
    before       the same once the region is taken back, as before its making
    registers    of both: {place: {offset: 32 bits}}, what is not 0, read through QEMU's monitor
    cedt         ACPI's table of host bridges and windows, in hex

Needs pciutils.  It is run by hand: tests/unit/cxl/host/test_linux.py reads the file.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from nupa.vm.boot import boot

TIMEOUT_S = 240
CXL_BUS = 12  # nupa/vm/machine/qemu.py
#: CXL 3.1 8.2.3: CXL.cachemem registers are the second 4 KiB of a component's 64 KiB.
COMPONENT_AT, COMPONENT_BYTES = 0x1000, 0x1000
#: CXL 3.1 8.2.8: capabilities array, device status, mailbox without payload, memory device.
DEVICE_BYTES = 0x100

SYSFS = r"""
import json, os
top, found = "/sys/bus/cxl/devices", {}
for name in sorted(os.listdir(top)):
    files = found[name] = {}
    for file in sorted(os.listdir(f"{top}/{name}")):
        path = f"{top}/{name}/{file}"
        if os.path.islink(path):
            if file.startswith(("dport", "uport", "host")):
                files[file] = os.path.basename(os.readlink(path))
        elif os.path.isfile(path) and file not in ("uevent", "waiting_for_supplier"):
            try:
                data = open(path, "rb").read()
                files[file] = data.hex() if file == "CDAT" else data.decode().strip()
            except OSError:
                pass
print(json.dumps(found))
"""

# Takes back what csrc/guest/init_cxl.c made.
UNDO = """
set -e
cd /sys/bus/cxl/devices
echo region0 >/sys/bus/cxl/drivers/cxl_region/unbind
echo 0 >region0/commit
echo >region0/target0
echo region0 >decoder0.0/delete_region
for size in decoder*/dpa_size; do echo 0 >$size; done
"""

BARS = r"""
import json, os
top, bars = "/sys/bus/pci/devices", {}
for name in sorted(os.listdir(top)):
    lines = open(f"{top}/{name}/resource").read().split("\n")[:6]
    bars[name] = [int(line.split()[0], 16) for line in lines]
print(json.dumps(bars))
"""


class Guest:
    """One guest of a machine of its own, and the monitor of its QEMU."""

    def __init__(self, folder: Path, extra: Sequence[str] = ()) -> None:
        """Starts the guest; *extra* are words for QEMU after its own."""
        self.name = f"capture-{folder.name[-8:]}"
        self.monitor_path = folder / "qmp"
        words = shlex.join(boot.prepare(None, lambda text: print(text, file=sys.stderr)).qemu)
        program = folder / "qemu"
        program.write_text(
            f'#!/bin/sh\nexec {words} "$@" {shlex.join(extra)} '
            f"-qmp unix:{self.monitor_path},server=on,wait=off\n"
        )
        program.chmod(0o700)
        self.nupa("up", "--guests", "1", "--name", self.name, "--qemu", str(program))

    @staticmethod
    def nupa(*words: str) -> str:
        command = [str(Path(sys.executable).parent / "nupa"), "vm", *words]
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
        )
        return done.stdout

    def run(self, *words: str) -> str:
        return self.nupa("run", "--name", self.name, "host0", "--", *words)

    def python(self, text: str) -> Any:
        return json.loads(self.run("/usr/bin/python3", "-c", text))

    def close(self) -> None:
        self.nupa("down", "--force", self.name)

    def physical(self, ranges: dict[str, tuple[int, int]]) -> dict[str, dict[str, str]]:
        """Returns memory of the guest by address and size, each as words that are not 0."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(TIMEOUT_S)
            monitor.connect(str(self.monitor_path))
            lines = monitor.makefile("rwb")

            def ask(execute: str, **arguments: str) -> str:
                asked = json.dumps({"execute": execute, "arguments": arguments})
                lines.write(asked.encode() + b"\n")
                lines.flush()
                for line in lines:
                    answer = json.loads(line)
                    if "return" in answer:
                        return cast(str, answer["return"])
                    if "error" in answer:
                        raise RuntimeError(answer["error"])
                raise EOFError(f"{self.monitor_path} was closed")

            lines.readline()  # the greeting
            ask("qmp_capabilities")

            def word(address: int) -> str:
                # One word at a time: QEMU reads these registers by 4 bytes only.
                command = {"command-line": f"xp /xw {address}"}
                return _word(ask("human-monitor-command", **command))

            return {
                place: {
                    f"{at:#05x}": found for at in range(0, size, 4) if (found := word(base + at))
                }
                for place, (base, size) in ranges.items()
            }


def _word(answer: str) -> str:
    """Returns the number of `address: 0x…`; nothing if it is 0, or not there."""
    word = answer.rpartition(":")[2].strip()
    return f"{int(word, 16):#x}" if word.startswith("0x") and int(word, 16) else ""


def _bridge_base(cedt: bytes) -> int:
    """Returns the base of a CHBS (CXL 3.1 9.18.1.2, type 0), at byte 16."""
    at = 36
    while at < len(cedt):
        if cedt[at] == 0:
            return int.from_bytes(cedt[at + 16 : at + 24], "little")
        at += int.from_bytes(cedt[at + 2 : at + 4], "little")
    raise ValueError("no CXL host bridge in CEDT")


def _without_zeros(text: str) -> str:
    return re.sub(r"(?m)^[0-9a-f]{2,3}:(?: 00){16}\n", "", text)


def capture(guest: Guest) -> dict[str, Any]:
    bars = guest.python(BARS)
    after = guest.python(SYSFS)
    cxl = [name for name in bars if int(name[5:7], 16) >= CXL_BUS]
    cedt = guest.run("xxd", "-p", "-c", "0", "/sys/firmware/acpi/tables/CEDT").strip()
    ranges = {"bridge": (_bridge_base(bytes.fromhex(cedt)) + COMPONENT_AT, COMPONENT_BYTES)}
    for name in cxl:
        if bars[name][0]:
            ranges[name] = (bars[name][0] + COMPONENT_AT, COMPONENT_BYTES)
        if bars[name][2]:
            ranges[f"{name} device"] = (bars[name][2], DEVICE_BYTES)
    texts = {name: guest.run("lspci", "-vvnnxxxx", "-s", name) for name in cxl}
    registers = {"after": guest.physical(ranges)}
    guest.run("sh", "-c", UNDO)
    registers["before"] = guest.physical(ranges)
    return {
        "kernel": guest.run("uname", "-r").strip(),
        "lspci": {name: _without_zeros(text).splitlines() for name, text in texts.items()},
        "bars": {name: bars[name] for name in cxl},
        "before": guest.python(SYSFS),
        "after": after,
        "registers": registers,
        "cedt": cedt,
    }


def main() -> None:
    default = Path(__file__).with_name("linux_guest.json")
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    with tempfile.TemporaryDirectory(prefix="nupa-capture-") as folder:
        guest = Guest(Path(folder))
        try:
            found = capture(guest)
        finally:
            guest.close()
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
