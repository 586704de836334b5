# SPDX-License-Identifier: BSD-3-Clause
"""Commands of the FM API and of a mailbox as bytes, none of which our packers made.

Each was written by hand from field order and sizes.  These are of the CXL Specification 3.1, as its
sections are cited, and of independent implementations.  An implementation is named as *origin*:

    libcxlmi    src/cxlmi/api-types.h
    QEMU        hw/cxl/cxl-mailbox-utils.c, include/hw/cxl/cxl_device.h
    Linux       drivers/cxl/cxlmem.h, include/cxl/event.h, drivers/cxl/core

They agree with one another but for these, where the specification decides:

    5302h       libcxlmi has 2 bytes of field and 2 of address; table 7-41 has 3 and 8
    0105h       libcxlmi expects no answer; table 8-57 is the payload of the answer, too

Text is hexadecimal, `0*N` means N bytes of zeros, and # begins a comment.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Vector(NamedTuple):
    """A command and its answer.

    `opcode` is as on the wire, low byte first; `answer` is what follows return code `code`.
    `before` has the names of vectors that are sent first.  If `host`, virtual switch 0's host asks.
    """

    name: str
    opcode: str
    request: str = ""
    answer: str = ""
    code: int = 0
    before: tuple[str, ...] = ()
    origin: str = "libcxlmi"
    host: bool = False


def data(text: str) -> bytes:
    """Returns the bytes that *text* stands for."""
    found = bytearray()
    for line in text.splitlines():
        for token in line.partition("#")[0].split():
            zeros = re.fullmatch(r"0\*(\d+)", token)
            found += bytes(int(zeros[1])) if zeros else bytes.fromhex(token)
    return bytes(found)


CEL = "0da9c0b5 bf41 4b78 8f79 96b1623b3f17"  # 8.2.9.5.2.1
DEBUG = "5e1819d9 11a9 400c 811f d60719403d86"  # 8.2.9.5.2.2
TAG = "000102030405060708090a0b0c0d0e0f"
TIME = "08 07 06 05 04 03 02 01"
QUARTER = "00 00 00 10 00 00 00 00"  # 256 MiB
HALF_OF_IT = "00 00 00 08 00 00 00 00"
BLOCK = "00 00 20 00 00 00 00 00"  # 2 MiB

#: To the switch of rack.Rack, whose serial number is 1122334455667788h.
SWITCH = (
    Vector("identify", "01 00", "", """
        98 1e 02 4e 00 00 00 00         # vendor, device, subsystem vendor, subsystem
        88 77 66 55 44 33 22 11         # serial number
        10 00                           # messages of 2^16 bytes; a switch
        """),
    Vector("background status", "02 00", "", "00 00 00 00 00 00 00 00"),
    Vector("background status after a binding", "02 00", "", """
        c8 00 01 52 00 00 00 00         # 100 percent in bits 7:1; opcode 5201h; success
        """, before=("bind a port",)),
    Vector("abort of nothing", "05 00"),
    # 8.2.9.5
    Vector("supported logs", "00 04", "", f"""
        02 00 0*6                       # two
        {CEL} 70 00 00 00               # 28 commands of 4 bytes
        {DEBUG} 00 00 00 00
        """, origin="libcxlmi, Linux"),
    Vector("the first commands of the effects log", "01 04", f"{CEL} 00000000 1c000000", """
        01 00 00 00  02 00 00 00  05 00 00 00
        00 01 00 00  01 01 10 00        # Clear Event Records: immediate log change
        04 01 00 00  05 01 08 00        # Set MCTP Event Interrupt Policy: policy change
        """, origin="libcxlmi, QEMU"),
    Vector("a log that is none", "01 04", f"{TAG} 00000000 04000000", code=0x17),
    Vector("beyond the end of a log", "01 04", f"{CEL} 00000000 00100000", code=0x02),
    Vector("log capabilities", "02 04", DEBUG, "01 00 00 00"),  # bit 0: Clear Log
    Vector("clear log", "03 04", DEBUG),
    Vector("clear a log that cannot be cleared", "03 04", CEL, code=0x17),
    Vector("sub-list of logs", "05 04", "01 01", f"""
        01 00 02 00 01 0*3              # one of two, from 1 on
        {DEBUG} 00 00 00 00
        """),
    # 8.2.9.2
    Vector("event records of an empty log", "00 01", "02", "0*32"),
    Vector("event records after a binding", "00 01", "00", f"""
        00 00 00 00 0*8 0*8             # flags, overflow count, first and last overflow
        01 00 0*10
        # 8.2.9.2.1: identifier, length, flags, handle, related handle, time, maintenance class
        40d26425 3396 4c4d a5da 3d47263af425  80 000000 0100 0000 {TIME} 0*16
        # 7.6.8.2: VCS 0, vPPB 1, binding change, bound to port 2, no LD-ID, link, slot control
        00 01 00 02 02 ff 00 00 c0 03 0*70
        """, before=("bind a port",), origin="libcxlmi, Linux"),
    Vector("clear event records", "01 01", "00 00 01 000000 0100", before=("bind a port",)),
    Vector("clear a record that is not the oldest", "01 01", "00 00 01 000000 0200", code=0x0E,
           before=("bind a port",)),
    Vector("MCTP event interrupt policy", "04 01", "", "00 00"),
    Vector("set MCTP event interrupt policy", "05 01", "1f 80", "1f 80"),
    Vector("last refusal, of none", "00 c0", "", ""),
    # 7.6.7.1
    Vector("identify switch", "00 51", "", """
        00 00 06 02                     # ingress port, reserved, 6 ports, 2 virtual switches
        1f 0*31                         # ports 0 to 4 are active
        03 0*31                         # and both virtual switches
        06 00 00 00                     # 6 vPPBs, none is bound
        04                              # HDM decoders of each upstream port
        """, origin="libcxlmi, QEMU"),
    Vector("port states", "01 51", "05 00 02 04 05 63", """
        05 00 00 00                     # five ports
        # port, state, mode, -, type, modes, width x 2, speeds, speed x 2, LTSSM, lane, flags, LDs
        00 04 00 00 00 06 10 10 3f 06 06 04 00 0400 00      # upstream: mode and type are reserved
        02 03 03 00 04 06 10 10 3f 06 06 04 00 0400 0f      # 256 B flits, type 3 SLD, 15 more LDs
        04 03 03 00 05 06 10 10 3f 06 06 04 00 0400 0f      # type 3 MLD
        05 03 00 00 00 06 10 00 3f 06 00 00 00 0000 0f      # nothing is there: Detect
        63 0f 00 00 00 00 00 00 00 00 00 00 00 0000 00      # no such port
        """, origin="libcxlmi, QEMU"),
    Vector("port states, and one is not named", "01 51", "02 00", code=0x16),
    Vector("reset of a port", "02 51", "02 02"),
    Vector("port operation 3", "02 51", "02 03", code=0x02),
    Vector("three bytes for a port", "02 51", "02 02 00", code=0x16),
    Vector("read of a port's IDs", "03 51", """
        05 00 f0 00                     # port 5, register 000h, all byte enables, a read
        00 00 00 00
        """, "98 1e 03 4e"),
    Vector("read of two bytes", "03 51", "05 00 c0 00 00000000", "00 00 03 4e"),
    Vector("write of a port's command", "03 51", "05 04 f0 80 06000000", "00 00 00 00"),
    Vector("a port's command is written", "03 51", "05 04 f0 00 00000000", "06 00 10 00",
           before=("write of a port's command",)),
    Vector("secret state of a host", "04 51", "", "00", host=True),
    Vector("secret state, and no host asks", "04 51", code=0x03),
    Vector("set a secret", "05 51", TAG, host=True),
    Vector("secret state of a virtual switch", "06 51", "00", "01", before=("set a secret",)),
    Vector("secret of a virtual switch", "07 51", "00", TAG, before=("set a secret",)),
    # 7.6.7.2
    Vector("virtual switches", "00 52", "00 ff 02 00 07", """
        02 00 00 00                     # two
        00 01 00 03                     # VCS 0 is enabled; upstream port 0, 3 vPPBs
        00 00 ff 00  00 00 ff 00  00 00 ff 00
        07 ff 00 00                     # there is no VCS 7
        """),
    Vector("two vPPBs from the second on", "00 52", "01 02 01 00", """
        01 00 00 00  00 01 00 03
        02 02 ff 00                     # bound to port 2
        00 00 ff 00
        """, before=("bind a port",)),
    Vector("a vPPB of an LD", "00 52", "00 01 01 01", """
        01 00 00 00  01 01 01 03
        03 04 02 00                     # bound to an LD: port 4, LD-ID 2
        """, before=("bind an LD",)),
    Vector("bind a port", "01 52", "00 01 02 00 ffff", code=0x01),
    Vector("bind an LD", "01 52", "01 00 04 00 0200", code=0x01),
    Vector("bind what is bound", "01 52", "01 00 02 00 ffff", code=0x02, before=("bind a port",)),
    Vector("unbind", "02 52", "00 01 02", code=0x01, before=("bind a port",)),
    Vector("unbind what is not bound", "02 52", "00 01 02", code=0x02),
    Vector("generate an AER event", "03 52", f"00 02 0000 0c000080 {TAG} {TAG}",
           before=("bind a port",), origin="CXL 3.1 7.6.7.2.4"),
    # 7.6.7.3
    Vector("identify a device, by a tunnel", "00 53", """
        04 00 0c00                      # port 4, a port or LD number, 12 bytes
        00 22 00 0100 000000 0000 0000  # request, tag 22h, 0001h, no payload
        """, """
        1e00 0000                       # 30 bytes
        01 22 00 0100 120000 0000 0000  # response, 18 bytes, success
        98 1e 04 4e 00 00 00 00 0*8 10 03       # a type 3 device
        """, origin="libcxlmi, QEMU"),
    Vector("partitions of LD 1, by two tunnels", "00 53", """
        04 00 1c00
        00 22 00 0053 100000 0000 0000  # to the device: 5300h, 16 bytes
        01 00 0c00                      # LD 1
        00 33 00 0041 000000 0000 0000
        """, """
        3c00 0000
        01 22 00 0053 300000 0000 0000
        2c00 0000
        01 33 00 0041 200000 0000 0000
        02 0*7 0*8 0*8 0*8              # 512 MiB volatile, in units of 256 MiB
        """, origin="libcxlmi, QEMU"),
    Vector("a tunnel to a port without a device", "00 53",
           "05 00 0c00 00 22 00 0100 000000 0000 0000", code=0x02),
    Vector("a tunnel of another length", "00 53",
           "04 00 0d00 00 22 00 0100 000000 0000 0000", code=0x16),
    Vector("read of an LD's IDs", "01 53", "04 00 f0 00 0000 0000 00000000", "98 1e 04 4e"),
    Vector("read of a bound LD's IDs", "01 53", "04 00 f0 00 0200 0000 00000000", code=0x02,
           before=("bind an LD",)),
    Vector("an LD's third base address", "01 53", "04 18 f0 80 0000 0000 000000f0", "00 00 00 00"),
    Vector("an LD's memory space", "01 53", "04 04 f0 80 0000 0000 02000000", "00 00 00 00",
           before=("an LD's third base address",)),
    Vector("read of an LD's memory", "02 53", """
        04 00 f0 00                     # port 4 -> first byte enables Fh, last 0
        0000 0400                       # LD 0, 4 bytes
        00 00 00 f0 00 00 00 00         # the device's registers: Device Capabilities Array
        """, "0400 0000  00 00 01 01        # ID 0, version 1, of a memory device",
           before=("an LD's third base address", "an LD's memory space"),
           origin="CXL 3.1 7.6.7.3.3, 8.2.8.1; Linux"),
    Vector("multi-headed info", "00 55", "00 01", code=0x03),
    Vector("opcode 5204h", "04 52", code=0x03),
)  # fmt: skip

#: To the device at port 4, by a tunnel.  It has 8 times 256 MiB, and LDs of 1, 2, 3 and 0 of these.
#: Its dynamic capacity is 256 MiB that is sanitized, and as much that is shareable.
DEVICE = (
    Vector("identify", "01 00", "", "98 1e 04 4e 00000000 0*8 10 03"),
    Vector("background status", "02 00", "", "0*8"),
    Vector("abort of nothing", "05 00"),
    Vector("tunnel to an LD that is none", "00 53", "09 00 0c00 00 22 00 0100 000000 0000 0000",
           code=0x02),
    Vector("events of dynamic capacity", "00 01", "04", f"""
        00 00 00 00 0*8 0*8 01 00 0*10
        ca95afa7 f183 4018 8c2f 95268e101a2a  80 000000 0100 0000 {TIME} 0*16
        # 8.2.9.2.1.6: added, counts are valid, host 1, region 0, no more, reserved
        04 01 0100 00 00 0000
        {QUARTER} {HALF_OF_IT} {TAG} 0000 0*6
        0*24 13 00 00 00 7f 00 00 00    # 19 extents and 127 tags are left
        """, before=("add capacity", "ACCEPT"), origin="libcxlmi, QEMU"),
    Vector("clear all events of a log that has not overflown", "01 01", "04 01 00 000000",
           code=0x02),
    Vector("MCTP event interrupt policy", "04 01", "", "00 00"),
    Vector("set MCTP event interrupt policy", "05 01", "10 00", "10 00"),
    Vector("last refusal, of none", "00 c0", "", ""),
    Vector("supported logs", "00 04", "", f"02 00 0*6 {CEL} 84000000 {DEBUG} 00000000"),
    Vector("effects of Set LD Allocations", "01 04", f"{CEL} 3c000000 04000000", "02 54 02 00",
           origin="QEMU"),
    Vector("log capabilities", "02 04", CEL, "00 00 00 00"),
    Vector("clear log", "03 04", DEBUG),
    Vector("sub-list of logs", "05 04", "ff 00", f"02 00 02 00 00 0*3 {CEL} 84000000 {DEBUG} 0*4"),
    # 7.6.7.4
    Vector("LD info", "00 54", "", "00 00 00 80 00 00 00 00 0400 03     # 2 GiB, 4 LDs, telemetry"),
    Vector("LD allocations", "01 54", "01 02", """
        04 00 01 02                     # 4 LDs, units of 256 MiB, from LD 1 on, two
        02 0*7 0*8  03 0*7 0*8          # units of range 1 and range 2
        """),
    Vector("set LD allocations", "02 54", "01 03 0000 02 0*7 0*8", "01 03 0000 02 0*7 0*8"),
    Vector("LD allocations, and one is missing", "02 54", "02 03 0000 02 0*7 0*8", code=0x16),
    Vector("QoS control", "03 54", "", """
        00 0a 19 08                     # control, moderate and severe percent, sample interval
        0000 40                         # ReqCmpBasis, completion collection interval
        """),
    Vector("set QoS control", "04 54", "03 0a 19 08 0001 40", "03 0a 19 08 0001 40"),
    Vector("QoS status", "05 54", "", "00"),
    Vector("QoS allocated bandwidth", "06 54", "04 00", "04 00 00 40 20 00",
           before=("set QoS allocated bandwidth",)),
    Vector("set QoS allocated bandwidth", "07 54", "02 01 40 20", "02 01 40 20"),
    Vector("QoS bandwidth limit", "08 54", "02 01", "02 01 40 20",
           before=("set QoS bandwidth limit",)),
    Vector("set QoS bandwidth limit", "09 54", "02 01 40 20", "02 01 40 20"),
    # 7.6.7.6
    Vector("DCD info", "00 56", "", """
        04 02 0000                      # hosts, regions
        0f00 0000                       # selection: free, contiguous, prescriptive, shared
        0300 03 00                      # removal: by tag, prescriptive; both regions may sanitize
        02 0*7                          # 512 MiB
        c0 ff ff 1f 0*4  c0 ff ff 1f 0*4 0*48   # blocks of 2^6 to 2^28 bytes
        """),
    Vector("regions of a host", "01 56", "0000 08 00", f"""
        0000 02 02
        {QUARTER} 01 0*7 {QUARTER} {BLOCK} 00 0*3 01 0*3
        00 00 00 20 0*4 01 0*7 {QUARTER} {BLOCK} 08 0*3 00 0*3      # shareable, as DSMAS has it
        14000000 14000000 80000000 80000000     # extents and tags: at most, left
        """),
    Vector("regions of a host that is none", "01 56", "0400 08 00", code=0x02),
    Vector("set a region's blocks", "02 56", "00 000000 00 00 10 00 0*4 01 000000"),
    Vector("set blocks of a region in use", "02 56", "00 000000 00 00 10 00 0*4 01 000000",
           code=0x03, before=("add capacity", "ACCEPT")),
    Vector("extents of a host", "03 56", "0100 0000 ffffffff 00000000", f"""
        0100 0000 00000000 01000000 01000000 01000000 0*4   # first, listed, total, generation
        {QUARTER} {HALF_OF_IT} {TAG} 0000 0*6
        """, before=("add capacity", "ACCEPT")),
    Vector("add capacity", "04 56", f"0100 00 00 {HALF_OF_IT} {TAG} 00000000"),
    Vector("add more than there is", "04 56", f"0100 00 00 00 00 00 40 0*4 {TAG} 00000000",
           code=0x1D),
    Vector("release capacity", "05 56", f"0100 00 00 {HALF_OF_IT} {TAG} 00000000",
           before=("add capacity", "ACCEPT")),
    Vector("take capacity back", "05 56", f"0100 10 00 {HALF_OF_IT} {TAG} 00000000",
           before=("add capacity", "ACCEPT")),
    Vector("add shareable capacity", "04 56", f"0100 00 01 {HALF_OF_IT} {TAG} 00000000"),
    Vector("add a reference", "06 56", TAG, before=("add shareable capacity", "ACCEPT")),
    Vector("remove a reference", "07 56", TAG,
           before=("add shareable capacity", "ACCEPT", "add a reference")),
    Vector("a reference of no tag", "06 56", TAG, code=0x02),
    Vector("tags", "08 56", "00000000 ffffffff", f"""
        03000000 01000000 01000000 03 0*3       # generation, total, listed, both bitmaps are valid
        {TAG} 01 0*3                            # the fabric manager holds a reference
        02 0*31 0*32                            # LD 1 has accepted it
        """, before=("add shareable capacity", "ACCEPT", "add a reference")),
)  # fmt: skip

SCRUB = "96dad7d6 fde8 482b a733 75774e06db8a"  # 8.2.9.9.11.1
LINES = "0*8 00 00 40 00 0*4"  # of all the memory
INJECTED = "43 0*7 01000000 0*4"  # 8.2.9.9.4.1: at 40h, by injection: one line

#: To the mailbox of cxl_driver.Driver: 256 MiB of memory, dynamic capacity as above for host 0.
MAILBOX = (
    Vector("abort of nothing", "05 00"),
    Vector("no identify: it is of other components", "01 00", code=0x03),
    # 8.2.9.2
    Vector("event records", "00 01", "00", f"""
        00 00 00 00 0*8 0*8 01 00 0*10
        fbcd0a77 c260 417f 85a9 088b1621eba6  80 000000 0100 0000 {TIME} 0*16
        # 8.2.9.2.1.1: address, uncorrectable, ECC, host inject poison, validity, channel, rank,
        # device, component
        40 0*7 01 00 04 0000 00 00 000000 0*16 0*46
        """, before=("set timestamp", "inject poison"), origin="libcxlmi, Linux"),
    Vector("clear event records", "01 01", "00 00 01 000000 0100", before=("inject poison",)),
    Vector("clear a record that is none", "01 01", "00 00 01 000000 0700", code=0x0E,
           before=("inject poison",)),
    Vector("event interrupt policy", "02 01", "", "11 00 11 00 11",
           before=("set event interrupt policy",), origin="libcxlmi, QEMU"),
    Vector("set event interrupt policy", "03 01", "01 00 01 00 01"),
    # 8.2.9.3
    Vector("firmware info", "00 02", "", """
        02 11 01 0*13                   # 2 slots; slot 1 is active, 2 staged; activation online
        4e 55 50 41 20 31 0*10  4e 55 50 41 20 32 0*10  0*32
        """, before=("transfer firmware", "FINISH", "activate firmware")),
    Vector("transfer firmware", "01 02", """
        00 02 0000 00000000 0*120       # all of it, to slot 2, at 0
        4e 55 50 41 20 32 0*10 0*112    # an image begins with its revision
        """, code=0x01),
    Vector("firmware for slot 9", "01 02", "00 09 0000 00000000 0*120 41 0*15 0*112", code=0x0B),
    Vector("activate firmware", "02 02", "01 02", before=("transfer firmware", "FINISH")),
    Vector("activate an empty slot", "02 02", "01 02", code=0x0B),
    # 8.2.9.4, 8.2.9.5
    Vector("timestamp", "00 03", "", TIME, before=("set timestamp",)),
    Vector("set timestamp", "01 03", TIME),
    Vector("supported logs", "00 04", "", f"02 00 0*6 {CEL} 9c000000 {DEBUG} 00000000",
           origin="libcxlmi, Linux"),
    Vector("effects of firmware commands", "01 04", f"{CEL} 14000000 0c000000", """
        00 02 00 00  01 02 40 01        # Transfer FW: in the background, can be aborted
        02 02 03 00                     # Activate FW: configuration, now and after a cold reset
        """, origin="QEMU"),
    Vector("log capabilities", "02 04", DEBUG, "01 00 00 00"),
    Vector("clear log", "03 04", DEBUG),
    Vector("sub-list of logs", "05 04", "ff 00", f"02 00 0200 00 0*3 {CEL} 9c000000 {DEBUG} 0*4"),
    # 8.2.9.6
    Vector("supported features", "00 05", "00080000 0000 0000", f"""
        0100 0100 0*4
        {SCRUB} 0000 0400 0200          # index 0; 4 bytes to get, 2 to set
        61000000 01 01 0200 0*18        # changeable, default and saved; versions; configuration
        """),
    Vector("get feature", "01 05", f"{SCRUB} 0000 0400 00", """
        01 0c 01 01                     # changeable, 12 hours, 1 at least, on
        """, origin="libcxlmi, Linux"),
    Vector("feature as it was by default", "01 05", f"{SCRUB} 0000 0400 01", "01 0c 01 01",
           before=("set feature",)),
    Vector("feature as set", "01 05", f"{SCRUB} 0000 0400 00", "01 18 01 00",
           before=("set feature",)),
    Vector("selection 3 of a feature", "01 05", f"{SCRUB} 0000 0400 03", code=0x1A),
    Vector("set feature", "02 05", f"{SCRUB} 00000000 0000 01 0*9 18 00"),
    Vector("set feature of version 2", "02 05", f"{SCRUB} 00000000 0000 02 0*9 18 00", code=0x19),
    # 8.2.9.9.1, 8.2.9.9.2
    Vector("identify memory device", "00 40", "", """
        4e 55 50 41 20 31 0*10          # firmware revision
        01 0*7  01 0*7  0*8  0*8        # units of 256 MiB: total, volatile, persistent, alignment
        4000 4000 4000 4000             # events: informational, warning, failure, fatal
        00000100 000100 1000            # label storage, poison records, poison that can be injected
        03 00                           # injects and scans; no QoS telemetry
        4000                            # events of dynamic capacity
        """, origin="libcxlmi, QEMU, Linux"),
    Vector("partition info", "00 41", "", "01 0*7 0*8 0*8 0*8", origin="libcxlmi, Linux"),
    Vector("set partition info of what has one kind of memory", "01 41", "0*8 00", code=0x02),
    Vector("get LSA", "02 41", "01000000 04000000", "00 de ad 00", before=("set LSA",)),
    Vector("get LSA beyond its end", "02 41", "00000100 01000000", code=0x02),
    Vector("set LSA", "03 41", "02000000 0*4 de ad"),
    # 8.2.9.9.3
    Vector("health info", "00 42", "", """
        00 00 00 00 1900 0*4 0*4 0*4    # status, media, additional, life used, 25 C, counts
        """, origin="libcxlmi, Linux"),
    Vector("alert configuration", "01 42", "", """
        01 1f 5f 32                     # life used is set of five; critical at 95, warned of at 50
        5f00 f6ff 0000 0000 0000 0000   # critical above 95 C and below -10 C; warnings
        """, before=("set alert configuration",)),
    Vector("set alert configuration", "02 42", "01 01 32 00 0000 0000 0000 0000"),
    Vector("warning of life used beyond critical", "02 42", "01 01 60 00 0*8", code=0x02),
    Vector("shutdown state", "03 42", "", "01", before=("set shutdown state",)),
    Vector("set shutdown state", "04 42", "01"),
    # 8.2.9.9.4
    Vector("poison list", "00 43", LINES, f"00 00 0*8 0100 0*20 {INJECTED}",
           before=("inject poison",), origin="libcxlmi, Linux"),
    Vector("inject poison", "01 43", "40 0*7"),
    Vector("inject poison beyond the memory", "01 43", "00 00 00 10 0*4", code=0x0F),
    Vector("inject poison at half a line", "01 43", "20 0*7", code=0x02),
    Vector("clear poison", "02 43", "40 0*7 0*64", before=("inject poison",)),
    Vector("poison list after that", "00 43", LINES, "00 00 0*8 0000 0*20",
           before=("inject poison", "clear poison")),
    Vector("scan media capabilities", "03 43", LINES, "10 00 00 00      # ms"),
    Vector("scan media", "04 43", f"{LINES} 00", code=0x01),
    Vector("scan media results", "05 43", "", f"0*8 0*8 00 00 0100 0*12 {INJECTED}",
           before=("inject poison", "scan media", "FINISH")),
    # 8.2.9.9.5
    Vector("sanitize", "00 44", code=0x01),
    Vector("poison list while that goes on", "00 43", LINES, code=0x07, before=("sanitize",)),
    Vector("security state", "00 45", code=0x03),
    # 8.2.9.9.9
    Vector("dynamic capacity configuration", "00 48", "01 01", f"""
        02 01 0*6
        00 00 00 20 0*4 01 0*7 {QUARTER} {BLOCK} 01000000 00 0*3    # DSMAD handle, not sanitized
        14000000 14000000 80000000 80000000
        """, origin="libcxlmi, QEMU"),
    Vector("extents", "01 48", "ffffffff 00000000", f"""
        01000000 01000000 01000000 0*4
        {QUARTER} {HALF_OF_IT} {TAG} 0000 0*6
        """, before=("OFFER", "accept extents"), origin="libcxlmi, QEMU"),
    Vector("events of dynamic capacity", "00 01", "04", f"""
        00 00 00 00 0*8 0*8 01 00 0*10
        ca95afa7 f183 4018 8c2f 95268e101a2a  80 000000 0100 0000 0*8 0*16
        00 00 0000 00 00 0000 {QUARTER} {HALF_OF_IT} {TAG} 0000 0*6 0*32
        """, before=("OFFER",), origin="libcxlmi, QEMU"),
    Vector("accept extents", "02 48", f"01000000 00 0*3 {QUARTER} {HALF_OF_IT} 0*8",
           before=("OFFER",)),
    Vector("accept half a block", "02 48", f"01000000 00 0*3 {QUARTER} 00 00 10 00 0*4 0*8",
           code=0x1E, before=("OFFER",), origin="QEMU"),
    Vector("accept what lies in no region", "02 48", f"01000000 00 0*3 0*8 {HALF_OF_IT} 0*8",
           code=0x0F, before=("OFFER",), origin="QEMU"),
    Vector("release extents", "03 48", f"01000000 00 0*3 {QUARTER} {HALF_OF_IT} 0*8",
           before=("OFFER", "accept extents")),
)  # fmt: skip
