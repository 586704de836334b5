# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm`: the fabric manager of the CXL switch: what is plugged in, and which host has it."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from nupa.cli.common.argument import size
from nupa.cli.common.command import Help

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from nupa.cxl.fm.client.fabric_manager import FabricManager

    Command = Callable[[argparse.Namespace, FabricManager], None]

_EPILOG = """\
`nupa fm serve` models a switch with a virtual switch for each host of a fabric, and answers the FM
API of CXL 3.1 at a socket that only you may use.  All other commands ask it.

examples:
  nupa fm serve --sld 1G --mld 4G &     two devices, one of them for up to 16 hosts
  nupa fm ls                            ports and virtual switches
  nupa fm bind 0 1 2                    host 0 gets the device at port 2 as its vPPB 1
  nupa fm alloc 3 0 1G 512M             LDs 0 and 1 of the device at port 3 get memory
  nupa fm bind 1 0 3 --ld 1             host 1 gets LD 1 of it
  nupa fm dcd-add 3 0 0 64M             LD 0 there gets dynamic capacity (serve --dcd 1G)
  nupa fm unbind 0 1
  nupa fm events --follow               what happens, as it does
"""
_SERVE_EPILOG = """\
Ports are numbered: first one for each host, then those of devices in the order of --sld, of --mld,
and empty ones.  It ends with SIGTERM or ^C, and then its socket is gone.  Of dynamic capacity, one
half is a region that hosts share; its hosts take what they are offered, and give back what they are
asked for.  Each host makes a region of each device that it gets.  If the fabric's pool has room for
all devices, as it has for the default ones, these are regions of the pool (`nupa pool ls`), which
any process maps: `fabric.host("host0").map(fabric.pool.find("host0:0x1000000000"))`.

examples:
  nupa fm serve                         a device of 256 MiB for each host
  nupa fm serve --fabric rack --sld 1G --sld 1G --mld 16G --vppbs 8
"""
_LS_EPILOG = """\
examples:
  nupa fm ls
  nupa fm ls --json | jq '.ports[] | select(.up)'
"""
_BIND_EPILOG = """\
examples:
  nupa fm bind 0 1 2                    vPPB 1 of virtual switch 0 to port 2
  nupa fm bind 1 0 3 --ld 1             vPPB 0 of virtual switch 1 to LD 1 of the device at port 3
"""
_UNBIND_EPILOG = """\
managed: the host is asked to let go, if it listens; surprise: at once; link-down: once the port's
link is down.  What waits can be given up: `nupa fm abort`.

examples:
  nupa fm unbind 0 1
  nupa fm unbind 0 1 --how surprise
"""
_PORT_EPILOG = """\
Only ports that no host has as a whole: a device that is bound is its host's to reset.

examples:
  nupa fm port 2 reset                  a hot reset of the device there
  nupa fm port 2 hold                   PERST is asserted: its link is down
  nupa fm port 2 release
"""
_LDS_EPILOG = """\
examples:
  nupa fm lds 3
  nupa fm lds 3 --json | jq .lds
"""
_ALLOC_EPILOG = """\
An LD that is bound keeps what it has.

examples:
  nupa fm alloc 3 0 1G                  LD 0 of the device at port 3
  nupa fm alloc 3 4 256M 256M 0         LDs 4 and 5; LD 6 has none
"""
_ABORT_EPILOG = """\
A binding that is not done is undone; one that was to end stays.

examples:
  nupa fm abort
"""
_MODES = {"link-down": 0, "managed": 1, "surprise": 2}
_size = size(256 << 20)


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "fm",
        help="the CXL switch: bind devices to hosts, give memory to logical devices",
        epilog=_EPILOG,
        formatter_class=Help,
    )
    verbs = parser.add_subparsers(prog="nupa fm", metavar="COMMAND", required=True)
    serve = _add(verbs, "serve", "model a fabric's switch, until ended", _SERVE_EPILOG)
    for kind, what in (("sld", "a device for one host"), ("mld", "a device with 16 LDs")):
        serve.add_argument(
            f"--{kind}", metavar="SIZE", type=_size, action="append", default=[], help=what
        )
    serve.add_argument(
        "--dcd", metavar="SIZE", type=_size, default=0, help="dynamic capacity of each MLD (none)"
    )
    serve.add_argument("--vppbs", metavar="N", type=_byte, default=4, help="of each host (4)")
    serve.add_argument("--spare-ports", metavar="N", type=_byte, default=0, help="empty ones (0)")
    serve.set_defaults(run=_serve)
    _add_asking(verbs, "ls", "list ports and virtual switches", _LS_EPILOG, _ls, json=True)
    bind = _add_asking(verbs, "bind", "give a device to a host", _BIND_EPILOG, _bind)
    _numbers(bind, "vcs", "vppb", "port")
    bind.add_argument("--ld", type=_byte, metavar="N", help="of a multi-logical device")
    unbind = _add_asking(verbs, "unbind", "take it away", _UNBIND_EPILOG, _unbind)
    _numbers(unbind, "vcs", "vppb")
    unbind.add_argument("--how", choices=sorted(_MODES), default="managed", help="(managed)")
    port = _add_asking(verbs, "port", "reset what is at a port", _PORT_EPILOG, _port)
    _numbers(port, "port")
    port.add_argument("action", choices=["reset", "hold", "release"])
    lds = _add_asking(verbs, "lds", "list logical devices", _LDS_EPILOG, _lds, json=True)
    _numbers(lds, "port")
    alloc = _add_asking(verbs, "alloc", "give memory to logical devices", _ALLOC_EPILOG, _alloc)
    _numbers(alloc, "port", "ld")
    alloc.add_argument("size", metavar="SIZE", type=_size, nargs="+", help="of this LD, the next…")
    _add_dcd(verbs)
    _add_more(verbs)
    _add_asking(verbs, "abort", "give up what goes on", _ABORT_EPILOG, _abort)


def _add_dcd(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    from nupa.cli.fm import dcd

    what = "list dynamic capacity"
    ls = _add_asking(verbs, "dcd-ls", what, dcd.LS_EPILOG, dcd.ls, json=True)
    add = _add_asking(verbs, "dcd-add", "give it to a host", dcd.ADD_EPILOG, dcd.add)
    take = _add_asking(verbs, "dcd-release", "take it back", dcd.RELEASE_EPILOG, dcd.release)
    _numbers(ls, "port")
    _numbers(add, "port", "host", "region")
    _numbers(take, "port", "host")
    dcd.add_options(add, take, size(1 << 20))
    tags = _add_asking(verbs, "dcd-tags", "list tags", dcd.TAGS_EPILOG, dcd.tags, json=True)
    keep = _add_asking(verbs, "dcd-keep", "keep what is shared", dcd.KEEP_EPILOG, dcd.keep)
    drop = _add_asking(verbs, "dcd-drop", "keep it no longer", dcd.DROP_EPILOG, dcd.drop)
    config = _add_asking(verbs, "dcd-set", "change a region", dcd.SET_EPILOG, dcd.configure)
    for parser in (tags, keep, drop):
        _numbers(parser, "port")
    _numbers(config, "port", "region")
    dcd.add_more(keep, drop, config)


def _add_more(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    from nupa.cli.fm import more

    what = "what has happened"
    events = _add_asking(verbs, "events", what, more.EVENTS_EPILOG, more.events, json=True)
    what = "quality of service"
    qos = _add_asking(verbs, "qos", what, more.QOS_EPILOG, more.qos, json=True)
    what = "bandwidth of logical devices"
    share = _add_asking(verbs, "bandwidth", what, more.SHARE_EPILOG, more.bandwidth, json=True)
    aer = _add_asking(verbs, "aer", "make an error for a host", more.AER_EPILOG, more.aer)
    what = "what tells a host's hierarchy"
    secret = _add_asking(verbs, "secret", what, more.SECRET_EPILOG, more.secret)
    what = "registers of a bridge or an LD"
    config = _add_asking(verbs, "config", what, more.CONFIG_EPILOG, more.config)
    what = "registers behind an LD's BARs"
    memory = _add_asking(verbs, "memory", what, more.MEMORY_EPILOG, more.memory)
    send = _add_asking(verbs, "send", "any command, in bytes", more.SEND_EPILOG, more.send)
    for parser in (qos, share, config):
        _numbers(parser, "port")
    _numbers(memory, "port", "ld")
    for parser in (aer, secret):
        _numbers(parser, "vcs")
    more.add_options(events, send, qos, share, aer, secret, config, memory)


def _add(
    verbs: _SubParsersAction[argparse.ArgumentParser], name: str, what: str, epilog: str
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=what, epilog=epilog, formatter_class=Help)
    parser.add_argument(
        "--fabric", metavar="NAME", help="default: the one called default, or the only one"
    )
    return parser


def _add_asking(
    verbs: _SubParsersAction[argparse.ArgumentParser],
    name: str,
    what: str,
    epilog: str,
    command: Command,
    *,
    json: bool = False,
) -> argparse.ArgumentParser:
    """A command that asks the server of a fabric."""

    def run(args: argparse.Namespace) -> int:
        from nupa.cxl.fm.client.fabric_manager import FabricManager

        with FabricManager.open(args.fabric) as fm:
            command(args, fm)
        return 0

    parser = _add(verbs, name, what, epilog)
    if json:
        parser.add_argument("--json", action="store_true", help="for scripts")
    parser.set_defaults(run=run)
    return parser


def _numbers(parser: argparse.ArgumentParser, *names: str) -> None:
    whose = {"vcs": "number of a virtual switch, which is its host's", "ld": "the first LD"}
    for name in names:
        parser.add_argument(
            name, metavar=name.upper(), type=_byte, help=whose.get(name, f"number of a {name}")
        )


def _byte(text: str) -> int:
    if not text.isdecimal() or int(text) > 254:
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 0 to 254")
    return int(text)


def _serve(args: argparse.Namespace) -> int:
    from nupa.cxl.fm.server.server import Server, path_of
    from nupa.cxl.site.fabric_switch import FabricSite
    from nupa.fabric import Fabric
    from nupa.fabric.wiring import topology_of
    from nupa.topology.topology import MemoryConfig

    with Fabric.open(args.fabric) as fabric:
        hosts = len(fabric.hosts)
        slds = args.sld or ([] if args.mld else [256 << 20] * hosts)
        memory = [MemoryConfig(size) for size in slds]
        memory += [MemoryConfig(size, logical=True, dynamic_bytes=args.dcd) for size in args.mld]
        wiring = topology_of(fabric.name, fabric.hosts, fabric.ports)
        site = FabricSite(fabric, wiring, memory, vppbs=args.vppbs, spare_ports=args.spare_ports)
        with site, Server(site.manager, path_of(fabric.name)) as server:
            ends = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
            before = [signal.signal(number, lambda *_: server.stop()) for number in ends]
            try:
                site.use()
                print(
                    f"{fabric.name}: {hosts} virtual switches, {len(site.switch.ports)} ports; "
                    f"`nupa fm ls` shows them",
                    flush=True,
                )
                if not site.is_published:
                    print(
                        f"the pool of {fabric.name} has no room for {site.total_bytes >> 20} MiB: "
                        "what hosts are given stays here; a fabric with a larger pool_bytes in its "
                        "topology has it as regions, `nupa pool ls`",
                        file=sys.stderr,
                        flush=True,
                    )
                server.run()
            finally:
                for number, handler in zip(ends, before, strict=True):
                    signal.signal(number, handler)
    return 0


def _ls(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cli.common.text import print_json, table

    ports, switches = fm.ports(), fm.virtual_switches()
    if args.json:
        print_json(
            {
                "ports": [port._asdict() | {"state": port.state.name.lower()} for port in ports],
                "virtual_switches": [
                    switch._asdict()
                    | {
                        "vppbs": [
                            vppb._asdict() | {"status": vppb.status.name.lower()}
                            for vppb in switch.vppbs
                        ]
                    }
                    for switch in switches
                ],
            }
        )
        return
    rows = [
        [
            port.port,
            port.state.name.lower(),
            port.device or "-",
            "reset" if port.in_reset else f"x{port.width}" if port.up else "down",
        ]
        for port in ports
    ]
    print(table(["PORT", "STATE", "DEVICE", "LINK"], rows))
    bound = [
        [
            switch.number,
            vppb.vppb,
            vppb.status.name.lower().replace("_", " "),
            *("-" if number is None else number for number in (vppb.port, vppb.ld)),
        ]
        for switch in switches
        for vppb in switch.vppbs
    ]
    print("\n" + table(["VCS", "VPPB", "BOUND TO", "PORT", "LD"], bound))


def _bind(args: argparse.Namespace, fm: FabricManager) -> None:
    fm.bind(args.vcs, args.vppb, args.port, args.ld)


def _unbind(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cxl.switch.physical_port import UnbindMode

    fm.unbind(args.vcs, args.vppb, UnbindMode(_MODES[args.how]))


def _port(args: argparse.Namespace, fm: FabricManager) -> None:
    if args.action == "reset":
        fm.reset(args.port)
    else:
        fm.assert_reset(args.port, args.action == "hold")


def _lds(args: argparse.Namespace, fm: FabricManager) -> None:
    from nupa.cli.common.text import print_json, table

    found, shares = fm.logical_devices(args.port), fm.bandwidth(args.port)
    if args.json:
        print_json(found._asdict() | {"bandwidth_256ths": shares})
        return
    rows = [
        [ld, f"{size >> 20} MiB", share]
        for ld, (size, share) in enumerate(zip(found.lds, shares, strict=True))
    ]
    free = found.memory_bytes - sum(found.lds)
    print(table(["LD", "MEMORY", "BANDWIDTH/256"], rows))
    print(f"\n{free >> 20} MiB of {found.memory_bytes >> 20} MiB are free")


def _alloc(args: argparse.Namespace, fm: FabricManager) -> None:
    fm.allocate(args.port, args.ld, args.size)


def _abort(_args: argparse.Namespace, fm: FabricManager) -> None:
    fm.abort()
