# SPDX-License-Identifier: BSD-3-Clause
"""Makes tests/data/linux_interleave.json: how Linux programs decoders of interleaved regions.

    .venv/bin/python tests/data/capture_interleave.py [FILE]

The tree of capture_guest.py, and a second switch below the other root port; each of the four
downstream ports has a device with 256 MiB.  The file keeps facts alone, of each region: what was
asked, sysfs of its decoders, and its HDM decoder registers.  These are {place: {offset: 32 bits}},
without zeros, read through QEMU's monitor.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from capture_guest import BARS, COMPONENT_AT, CXL_BUS, SYSFS, UNDO, Guest, _bridge_base

#: Functions of the devices, by the ports on the way: root port, downstream port.
A, B, C, D = "0000:0f:00.0", "0000:10:00.0", "0000:13:00.0", "0000:14:00.0"
REGIONS = {
    "2 ways by one switch": (1024, [A, B]),
    "2 ways by the bridge": (256, [A, C]),
    "4 ways by both": (256, [A, C, B, D]),
    "4 ways by both, of 4 KiB": (4096, [C, A, D, B]),
}
HDM, HDM_BYTES = 5, 0x90
_MEMORY = 256 << 20

EXTRA = ["-device", "cxl-upstream,id=us1,bus=rp1"]
for _port in (0, 1):
    EXTRA += ["-device", f"cxl-downstream,id=es{_port},bus=us1,port={_port},slot={8 + _port}"]
for _bus in ("ds1", "es0", "es1"):
    EXTRA += ["-object", f"memory-backend-ram,id=ram-{_bus},size={_MEMORY},share=on"]
    EXTRA += ["-device", f"cxl-type3,id=memory-{_bus},bus={_bus},volatile-memdev=ram-{_bus}"]

#: As csrc/guest/init_cxl.c does it, for several devices.
MAKE = r"""
import os, sys
top, granularity, names = "/sys/bus/cxl/devices", sys.argv[1], sys.argv[2:]
def write(path, value):
    with open(f"{top}/{path}", "w") as file:
        file.write(value)
decoders = {}
for name in os.listdir(top):
    if name.startswith("endpoint"):
        memory = os.path.basename(os.readlink(f"{top}/{name}/uport"))
        function = os.path.realpath(f"{top}/{memory}").split("/")[-2]
        decoders[function] = f"decoder{name[8:]}.0"
with open(f"{top}/decoder0.0/create_ram_region") as file:
    region = file.read().strip()
for name in names:
    write(f"{decoders[name]}/mode", "ram")
    write(f"{decoders[name]}/dpa_size", str(256 << 20))
write("decoder0.0/create_ram_region", region)
write(f"{region}/interleave_granularity", granularity)
write(f"{region}/interleave_ways", str(len(names)))
write(f"{region}/size", str(len(names) * (256 << 20)))
for number, name in enumerate(names):
    write(f"{region}/target{number}", decoders[name])
write(f"{region}/commit", "1")
"""

DELETE = """
cd /sys/bus/cxl/devices
for region in region*; do
    echo $region >/sys/bus/cxl/drivers/cxl_region/unbind 2>/dev/null
    echo 0 >$region/commit
    for target in $region/target*; do echo >$target; done
    echo $region >decoder0.0/delete_region
done
for size in decoder*/dpa_size; do echo 0 >$size; done
true
"""


def hdm_blocks(guest: Guest, bars: dict[str, list[int]]) -> dict[str, tuple[int, int]]:
    """Returns where each place has HDM decoders, by its capability headers (CXL 3.1 8.2.4.1,
    8.2.4.5)."""
    cedt = guest.run("xxd", "-p", "-c", "0", "/sys/firmware/acpi/tables/CEDT").strip()
    bases = {"bridge": _bridge_base(bytes.fromhex(cedt)) + COMPONENT_AT}
    for name, (base, *_) in bars.items():
        if int(name[5:7], 16) >= CXL_BUS and base:
            bases[name] = base + COMPONENT_AT
    headers = guest.physical({name: (base, 0x40) for name, base in bases.items()})
    blocks = {}
    for name, words in headers.items():
        for word in (int(text, 16) for at, text in words.items() if int(at, 16)):
            if word & 0xFFFF == HDM:
                blocks[name] = (bases[name] + (word >> 20), HDM_BYTES)
    return blocks


def capture(guest: Guest) -> dict[str, Any]:
    guest.run("sh", "-c", UNDO)
    blocks = hdm_blocks(guest, guest.python(BARS))
    regions = {}
    for name, (granularity, functions) in REGIONS.items():
        guest.run("/usr/bin/python3", "-c", MAKE, str(granularity), *functions)
        sysfs = guest.python(SYSFS)
        kept = ("decoder", "region", "endpoint", "port")
        regions[name] = {
            "granularity": granularity,
            "functions": functions,
            "sysfs": {key: sysfs[key] for key in sysfs if key.startswith(kept)},
            "registers": guest.physical(blocks),
        }
        for each in regions[name]["sysfs"].values():
            each.pop("CDAT", None)
        guest.run("sh", "-c", DELETE)
    return {"kernel": guest.run("uname", "-r").strip(), "regions": regions}


def main() -> None:
    default = Path(__file__).with_name("linux_interleave.json")
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    with tempfile.TemporaryDirectory(prefix="nupa-capture-") as folder:
        guest = Guest(Path(folder), EXTRA)
        try:
            found = capture(guest)
        finally:
            guest.close()
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
