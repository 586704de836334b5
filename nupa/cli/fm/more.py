# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm`: events, service, errors, registers, and any command of the FM API as bytes."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING
from uuid import UUID

from nupa.cli.common.argument import whole

if TYPE_CHECKING:
    from nupa.cxl.fm.client.events import FmEvent
    from nupa.cxl.fm.client.fabric_manager import FabricManager

EVENTS_EPILOG = """\
Of the switch and of devices at its ports: links, slots, bindings, errors, dynamic capacity that
hosts accept or give back.  Each manager sees all of them; the last 256 of each log are kept.

examples:
  nupa fm events
  nupa fm events --follow               until ^C
  nupa fm events --json | jq '.[] | select(.log == "warning")'
"""
SEND_EPILOG = """\
The answer's payload is printed; a refusal names its return code.  Lists of opcodes: CXL 3.1,
table 8-230 for the FM API, table 8-37 for all components (--cci).

examples:
  nupa fm send 5100                     Identify Switch Device
  nupa fm send 5101 0102                Get Physical Port State, of port 2
  nupa fm send 5600 --port 3            Get DCD Info, of the device there
  nupa fm send 4000 --port 3 --ld 0     Identify Memory Device, of its LD 0
  nupa fm send 0001 --cci               Identify, of the switch itself
"""
QOS_EPILOG = """\
Values are kept and reported; they limit nothing.

examples:
  nupa fm qos 3
  nupa fm qos 3 moderate_percent=20 severe_percent=40
"""
SHARE_EPILOG = """\
In 1/256 of the device's bandwidth; with --limit what LDs may have at most.  Values are kept
and reported; they limit nothing.

examples:
  nupa fm bandwidth 3
  nupa fm bandwidth 3 0 128 64          LD 0 and LD 1
"""
AER_EPILOG = """\
BIT is the error's in AER's status register (PCIe 6.0 7.8.4.2, 7.8.4.5).

examples:
  nupa fm aer 0 1 12                    an uncorrectable error below vPPB 1: poisoned TLP
  nupa fm aer 0 upstream 6 --correctable
"""
SECRET_EPILOG = """\
It tells the hierarchy of one host from those of others (CXL 3.1 7.6.7.1.5), and is set once.

examples:
  nupa fm secret 0
  nupa fm secret 0 --set 0f3a0000-0000-0000-0000-000000000001
"""
CONFIG_EPILOG = """\
One DW of the configuration space of a port's bridge, or of an LD behind it that no host has.

examples:
  nupa fm config 3 0x00                 vendor and device of the bridge of port 3
  nupa fm config 3 0x10 --ld 1 --write 0x10000000
"""
MEMORY_EPILOG = """\
Registers behind the BARs of an LD that no host has.

examples:
  nupa fm config 3 0x10 --ld 1 --write 0x10000000 && nupa fm config 3 0x04 --ld 1 --write 2
  nupa fm memory 3 1 0x10000000 64
  nupa fm memory 3 1 0x10001014 --write 00000000
"""


def add_options(
    events: argparse.ArgumentParser,
    send: argparse.ArgumentParser,
    qos: argparse.ArgumentParser,
    share: argparse.ArgumentParser,
    aer: argparse.ArgumentParser,
    secret: argparse.ArgumentParser,
    config: argparse.ArgumentParser,
    memory: argparse.ArgumentParser,
) -> None:
    """What comes after their numbers."""
    events.add_argument("--follow", action="store_true", help="and those that come")
    send.add_argument("opcode", metavar="OPCODE", type=_hex, help="four hexadecimal digits")
    send.add_argument("payload", metavar="HEX", type=_bytes, nargs="?", default=b"")
    send.add_argument("--port", metavar="N", type=int, help="for the device at a port")
    send.add_argument("--ld", metavar="N", type=int, help="for an LD of it")
    send.add_argument("--cci", action="store_true", help="a command that all components have")
    qos.add_argument("change", metavar="NAME=VALUE", type=_pair, nargs="*", help="of those listed")
    share.add_argument("first", metavar="LD", type=int, nargs="?", help="the first LD")
    share.add_argument("parts", metavar="N", type=int, nargs="*", help="of it, of the next…")
    share.add_argument("--limit", action="store_true", help="the most that an LD may have")
    aer.add_argument("vppb", metavar="VPPB", help="its number, or upstream")
    aer.add_argument("bit", metavar="BIT", type=int)
    aer.add_argument("--correctable", action="store_true", help="(uncorrectable)")
    secret.add_argument("--set", metavar="UUID", type=_uuid, help="as the host does that has it")
    for parser in (config, memory):
        parser.add_argument("offset", metavar="ADDRESS", type=whole)
    config.add_argument("--ld", metavar="N", type=int, help="65535 is the manager's own")
    config.add_argument("--write", metavar="VALUE", type=whole)
    memory.add_argument("length", metavar="BYTES", type=int, nargs="?", default=4, help="(4)")
    memory.add_argument("--write", metavar="HEX", type=_bytes)


def _hex(text: str) -> int:
    try:
        value = int(text, 16)
    except ValueError:
        value = -1
    if not 0 <= value <= 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text!r}: an opcode like 5100")
    return value


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: hexadecimal digits, two a byte") from error


def _pair(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not equals or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: a setting like severe_percent=40")
    return name, int(value)


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: a UUID, of 32 hexadecimal digits") from error


def _described(event: FmEvent) -> dict[str, object]:
    return {
        "port": event.port,
        "log": event.log.name.lower(),
        "text": event.text,
        "timestamp_ns": event.event.timestamp_ns,
        "record": str(event.event.kind),
        "lost": event.lost,
    }


def _line(event: FmEvent) -> str:
    import time

    seconds, ns = divmod(event.event.timestamp_ns, 1_000_000_000)
    clock = time.strftime("%H:%M:%S", time.localtime(seconds))
    log = event.log.name.lower().replace("_", " ")
    return f"{clock}.{ns // 1_000_000:03}  {log:16}  {event.text}"


def events(args: argparse.Namespace, fm: FabricManager) -> None:
    import json

    from nupa.cli.common.text import print_json

    if not args.follow:
        found = fm.events()
        if args.json:
            print_json([_described(event) for event in found])
        for event in () if args.json else found:
            print(_line(event))
        if lost := max((event.lost for event in found), default=0):
            print(f"{lost} more had no room in their log", file=sys.stderr)
        return
    try:
        for event in fm.follow():
            print(json.dumps(_described(event)) if args.json else _line(event), flush=True)
    except KeyboardInterrupt:
        return


def send(args: argparse.Namespace, fm: FabricManager) -> None:
    if args.port is None:
        answer = fm.request(args.opcode, args.payload, cci=args.cci)
    else:
        answer = fm.tunnel(args.port, args.opcode, args.payload, ld=args.ld)
    for at in range(0, len(answer), 16):
        print(f"{at:04x}  {answer[at : at + 16].hex(' ')}")


def qos(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.base.errors import LocalError
    from nupa.cli.common.text import print_json, table

    now = fm.qos(args.port)
    changes = dict(args.change)
    if unknown := changes.keys() - now._asdict().keys():
        raise LocalError(f"{min(unknown)!r} is no setting: {', '.join(now._fields)}")
    if changes:
        now = fm.set_qos(args.port, now._replace(**changes))
    if args.json:
        print_json(now._asdict())
    else:
        print(table(["SETTING", "VALUE"], list(now._asdict().items())))


def bandwidth(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cli.common.text import print_json, table

    if args.parts:
        fm.set_bandwidth(args.port, args.first, args.parts, limit=args.limit)
    now = fm.bandwidth(args.port, limit=args.limit)
    if args.json:
        print_json(now)
    else:
        print(table(["LD", "OF 256"], list(enumerate(now))))


def aer(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.base.errors import LocalError
    from nupa.cxl.switch.vppb import Severity

    if args.vppb != "upstream" and not args.vppb.isdecimal():
        raise LocalError(f"{args.vppb!r}: the number of a vPPB, or upstream")
    vppb = None if args.vppb == "upstream" else int(args.vppb)
    severity = Severity.CORRECTABLE if args.correctable else Severity.UNCORRECTABLE
    fm.generate_aer(args.vcs, vppb, args.bit, severity)


def secret(args: argparse.Namespace, fm: FabricManager) -> None:
    if args.set is not None:
        fm.set_secret(args.vcs, args.set)
    print(fm.secret(args.vcs) or "not set")


def config(args: argparse.Namespace, fm: FabricManager) -> None:
    if args.ld is None:
        if args.write is not None:
            fm.ppb_write(args.port, args.offset, args.write)
        print(f"{fm.ppb_read(args.port, args.offset):#010x}")
        return
    if args.write is not None:
        fm.ld_config_write(args.port, args.ld, args.offset, args.write)
    print(f"{fm.ld_config_read(args.port, args.ld, args.offset):#010x}")


def memory(args: argparse.Namespace, fm: FabricManager) -> None:
    if args.write is not None:
        fm.ld_write(args.port, args.ld, args.offset, args.write)
        return
    found = fm.ld_read(args.port, args.ld, args.offset, args.length)
    for at in range(0, len(found), 16):
        print(f"{args.offset + at:#010x}  {found[at : at + 16].hex(' ', 4)}")
