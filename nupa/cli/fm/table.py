# SPDX-License-Identifier: BSD-3-Clause
"""The commands of `nupa fm`: name, help, opcodes of CXL 3.1, arguments, examples.

The parser follows from this table, and a test compares it with the table of docs/cxl.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from nupa.cli.common.argument import size, whole
from nupa.cli.fm import arguments


class Argument(NamedTuple):
    """A positional argument or an option: the words of ArgumentParser.add_argument."""

    name: str
    options: dict[str, Any]


class FmCommand(NamedTuple):
    """A command that asks the server of a fabric; *run* is its "module.function" in this folder."""

    name: str
    help: str
    opcodes: tuple[int, ...]
    run: str
    arguments: tuple[Argument, ...]
    epilog: str
    json: bool = False


def _arg(name: str, help: str = "", **options: Any) -> Argument:  # noqa: A002
    if not name.startswith("-") and "choices" not in options:
        options.setdefault("metavar", name.upper())
    return Argument(name, options | ({"help": help} if help else {}))


_PORT = _arg("port", "number of a port", type=arguments.byte)
_VCS = _arg("vcs", "number of a virtual switch, which is that of its host", type=arguments.byte)
_VPPB = _arg("vppb", "number of a vPPB", type=arguments.byte)
_HOST = _arg("host", "LD that the host is bound to", type=arguments.byte)
_REGION = _arg("region", "number of a region", type=arguments.byte)
_LD = _arg("ld", "number of an LD", type=arguments.byte)
_FIRST_LD = _arg("ld", "number of the first LD", type=arguments.byte)
_TAG = _arg("tag", type=arguments.uuid, metavar="UUID")
_TAG_OPTION = _arg("--tag", type=arguments.uuid, metavar="UUID", default=UUID(int=0))

#: In the order of the help.
COMMANDS = (
    FmCommand(
        "ls",
        "list ports and virtual switches",
        (0x5100, 0x5101, 0x5200),
        "switch.ls",
        (),
        """\
examples:
  nupa fm ls
  nupa fm ls --json | jq '.ports[] | select(.up)'
""",
        json=True,
    ),
    FmCommand(
        "bind",
        "bind a vPPB of a host to a device",
        (0x5201,),
        "switch.bind",
        (
            _VCS,
            _VPPB,
            _PORT,
            _arg("--ld", "bind an LD of a multi-logical device", type=arguments.byte, metavar="N"),
        ),
        """\
examples:
  nupa fm bind 0 1 2                    vPPB 1 of virtual switch 0 to port 2
  nupa fm bind 1 0 3 --ld 1             vPPB 0 of virtual switch 1 to LD 1 of the device at port 3
""",
    ),
    FmCommand(
        "unbind",
        "unbind a vPPB",
        (0x5202,),
        "switch.unbind",
        (
            _VCS,
            _VPPB,
            _arg(
                "--how",
                "unbind in this way (default: managed)",
                choices=["link-down", "managed", "surprise"],
                default="managed",
            ),
        ),
        """\
The vPPB is unbound:
  managed     once the host has released the device, or at once if no host listens
  surprise    at once
  link-down   once the link of the port is down
`nupa fm abort` gives up an unbind that waits.

examples:
  nupa fm unbind 0 1
  nupa fm unbind 0 1 --how surprise
""",
    ),
    FmCommand(
        "port",
        "reset the device at a port",
        (0x5102,),
        "switch.port",
        (_PORT, _arg("action", choices=["reset", "hold", "release"])),
        """\
The port must not be bound as a whole: only its host resets a device that is bound.

examples:
  nupa fm port 2 reset                  a hot reset of the device there
  nupa fm port 2 hold                   assert PERST: the link is down
  nupa fm port 2 release
""",
    ),
    FmCommand(
        "lds",
        "list logical devices",
        (0x5400, 0x5401, 0x5406),
        "devices.lds",
        (_PORT,),
        """\
examples:
  nupa fm lds 3
  nupa fm lds 3 --json | jq .lds
""",
        json=True,
    ),
    FmCommand(
        "alloc",
        "give memory to logical devices",
        (0x5402,),
        "devices.alloc",
        (
            _PORT,
            _FIRST_LD,
            _arg("size", "size of this LD, of the next…", type=size(256 << 20), nargs="+"),
        ),
        """\
The memory of an LD that is bound cannot change.

examples:
  nupa fm alloc 3 0 1G                  LD 0 of the device at port 3
  nupa fm alloc 3 4 256M 256M 0         LDs 4 and 5; LD 6 has none
""",
    ),
    FmCommand(
        "dcd-ls",
        "list dynamic capacity",
        (0x5600, 0x5601, 0x5603),
        "dcd.ls",
        (_PORT,),
        """\
examples:
  nupa fm dcd-ls 3
  nupa fm dcd-ls 3 --json | jq '.hosts[].extents'
""",
        json=True,
    ),
    FmCommand(
        "dcd-add",
        "offer dynamic capacity to a host",
        (0x5604,),
        "dcd.add",
        (
            _PORT,
            _HOST,
            _REGION,
            _arg("size", "amount, like 64M or 1G", type=size(1 << 20), nargs="?", default=0),
            _TAG_OPTION,
            _arg("--contiguous", "offer it in one piece", action="store_true"),
        ),
        """\
Capacity of a shareable region needs a tag.  Without SIZE the host is offered the capacity that
another host has under that tag.

examples:
  nupa fm dcd-add 3 0 0 64M
  nupa fm dcd-add 3 0 1 64M --tag 0f3a0000-0000-0000-0000-000000000001
  nupa fm dcd-add 3 1 1 --tag 0f3a0000-0000-0000-0000-000000000001
""",
    ),
    FmCommand(
        "dcd-release",
        "take dynamic capacity back from a host",
        (0x5605,),
        "dcd.release",
        (
            _PORT,
            _HOST,
            _TAG_OPTION,
            _arg("--force", "take it without asking the host", action="store_true"),
        ),
        """\
examples:
  nupa fm dcd-release 3 0               all of its extents without a tag
  nupa fm dcd-release 3 0 --tag 0f3a0000-0000-0000-0000-000000000001 --force
""",
    ),
    FmCommand(
        "dcd-tags",
        "list tags",
        (0x5608,),
        "dcd.tags",
        (_PORT,),
        """\
examples:
  nupa fm dcd-tags 3
  nupa fm dcd-tags 3 --json | jq '.[] | select(.kept)'
""",
        json=True,
    ),
    FmCommand(
        "dcd-keep",
        "keep the capacity of a shared tag",
        (0x5606,),
        "dcd.keep",
        (_PORT, _TAG),
        """\
Capacity under a kept tag keeps its contents when the last host releases it.

examples:
  nupa fm dcd-keep 3 0f3a0000-0000-0000-0000-000000000001
""",
    ),
    FmCommand(
        "dcd-drop",
        "end dcd-keep",
        (0x5607,),
        "dcd.drop",
        (_PORT, _TAG),
        """\
The capacity is free once no host has it.

examples:
  nupa fm dcd-drop 3 0f3a0000-0000-0000-0000-000000000001
""",
    ),
    FmCommand(
        "dcd-set",
        "change a region of dynamic capacity",
        (0x5602,),
        "dcd.configure",
        (
            _PORT,
            _REGION,
            _arg("block", "size of a block, like 64, 4K or 2M", type=size()),
            _arg("--sanitize", "clear released capacity", action="store_true"),
        ),
        """\
No host may have an extent of the region.  BLOCK is a power of two.

examples:
  nupa fm dcd-set 3 0 4M --sanitize
""",
    ),
    FmCommand(
        "events",
        "list events",
        (0x0100, 0x0101, 0x0105),
        "events.events",
        (_arg("--follow", "wait for further events, until ^C", action="store_true"),),
        """\
Events of the switch and of devices at its ports: links, slots, bindings, errors, dynamic capacity
that hosts accept or give back.  Each manager sees all of them; the last 256 of each log are kept.

examples:
  nupa fm events
  nupa fm events --follow
  nupa fm events --json | jq '.[] | select(.log == "warning")'
""",
        json=True,
    ),
    FmCommand(
        "qos",
        "show or set quality of service",
        (0x5403, 0x5404),
        "devices.qos",
        (
            _PORT,
            _arg(
                "change",
                "a listed setting and its new value",
                type=arguments.setting,
                nargs="*",
                metavar="NAME=VALUE",
            ),
        ),
        """\
Values are kept and reported; they limit nothing.

examples:
  nupa fm qos 3
  nupa fm qos 3 moderate_percent=20 severe_percent=40
""",
        json=True,
    ),
    FmCommand(
        "bandwidth",
        "show or set the bandwidth of logical devices",
        (0x5406, 0x5407, 0x5408, 0x5409),
        "devices.bandwidth",
        (
            _PORT,
            _arg("first", "number of the first LD", type=int, nargs="?", metavar="LD"),
            _arg("parts", "256ths of this LD, of the next…", type=int, nargs="*", metavar="N"),
            _arg("--limit", "show or set the limit of an LD", action="store_true"),
        ),
        """\
Values are 1/256 of the bandwidth of the device.  They are kept and reported; they limit nothing.

examples:
  nupa fm bandwidth 3
  nupa fm bandwidth 3 0 128 64          LD 0 and LD 1
""",
        json=True,
    ),
    FmCommand(
        "aer",
        "report an error to a host",
        (0x5203,),
        "switch.aer",
        (
            _VCS,
            _arg("vppb", "number of a vPPB, or upstream"),
            _arg("bit", type=int),
            _arg("--correctable", "report a correctable error", action="store_true"),
        ),
        """\
BIT is the bit of the error in the AER status register (PCIe 6.0 7.8.4.2, 7.8.4.5).

examples:
  nupa fm aer 0 1 12                    an uncorrectable error below vPPB 1: poisoned TLP
  nupa fm aer 0 upstream 6 --correctable
""",
    ),
    FmCommand(
        "secret",
        "show or set the secret value of a host",
        (0x5105, 0x5106, 0x5107),
        "switch.secret",
        (
            _VCS,
            _arg("--set", "set it as the host of the switch", type=arguments.uuid, metavar="UUID"),
        ),
        """\
The secret value distinguishes the hierarchy of one host from those of others (CXL 3.1 7.6.7.1.5).
It is set once.

examples:
  nupa fm secret 0
  nupa fm secret 0 --set 0f3a0000-0000-0000-0000-000000000001
""",
    ),
    FmCommand(
        "config",
        "read or write configuration space of a bridge or an LD",
        (0x5103, 0x5301),
        "devices.config",
        (
            _PORT,
            _arg("offset", type=whole, metavar="ADDRESS"),
            _arg("--ld", "use an LD; 65535 is the fabric manager's own", type=int, metavar="N"),
            _arg("--write", type=whole, metavar="VALUE"),
        ),
        """\
One DW of the configuration space of the bridge of a port, or of an LD behind it that is not bound.

examples:
  nupa fm config 3 0x00                 vendor and device of the bridge of port 3
  nupa fm config 3 0x10 --ld 1 --write 0x10000000
""",
    ),
    FmCommand(
        "memory",
        "read or write registers behind the BARs of an LD",
        (0x5302,),
        "devices.memory",
        (
            _PORT,
            _LD,
            _arg("offset", type=whole, metavar="ADDRESS"),
            _arg("length", "bytes (default: 4)", type=int, nargs="?", default=4, metavar="BYTES"),
            _arg("--write", type=arguments.data, metavar="HEX"),
        ),
        """\
The LD must not be bound.

examples:
  nupa fm config 3 0x10 --ld 1 --write 0x10000000 && nupa fm config 3 0x04 --ld 1 --write 2
  nupa fm memory 3 1 0x10000000 64
  nupa fm memory 3 1 0x10001014 --write 00000000
""",
    ),
    FmCommand(
        "send",
        "send any command, in bytes",
        (),
        "events.send",
        (
            _arg("opcode", "four hexadecimal digits", type=arguments.opcode),
            _arg("payload", type=arguments.data, nargs="?", default=b"", metavar="HEX"),
            _arg("--port", "send it to the device at a port", type=int, metavar="N"),
            _arg("--ld", "send it to an LD of that device", type=int, metavar="N"),
            _arg("--cci", "send a command that all components have", action="store_true"),
        ),
        """\
The payload of the answer is printed; a refusal names its return code.  Lists of opcodes: CXL 3.1,
table 8-230 for the FM API, table 8-37 for all components (--cci).

examples:
  nupa fm send 5100                     Identify Switch Device
  nupa fm send 5101 0102                Get Physical Port State, of port 2
  nupa fm send 5600 --port 3            Get DCD Info, of the device there
  nupa fm send 4000 --port 3 --ld 0     Identify Memory Device, of its LD 0
  nupa fm send 0001 --cci               Identify, of the switch itself
""",
    ),
    FmCommand(
        "abort",
        "give up the background operation",
        (0x0005,),
        "switch.abort",
        (),
        """\
A binding that is not complete is undone; a binding that was to end stays.

examples:
  nupa fm abort
""",
    ),
)
