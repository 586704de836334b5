# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model power`: what a network's cables, switches and adapters draw, by medium."""

from __future__ import annotations

import argparse

from nupa.cli.common.argument import add_json, count
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.model.common import ON_HELP, QUIET_S

_EPILOG = f"""\
Power is that of all ports at full rate, in both directions.  Levels that a medium does not reach
have the cheapest one that does; TIERS says which.  WRITE is a write of 8 bytes between the
endpoints that are farthest from each other: media hardly change it.  Power that no figure of a
profile states is not known (null in JSON), and neither is the sum.

{ON_HELP}
examples:
  nupa model power --on 'hpn_upn(100000)'
  nupa model power --on 'fat_tree(1024,ib-ndr,dac:1,lpo:50)'     lengths of the two tiers
  nupa model power --on 'rail(256,nvlink4,ib-ndr)' --json
"""


def add_parser(verbs: Subparsers) -> None:
    what = "print the power of a network's cables, switches and adapters, by medium"
    parser = add_command(verbs, "power", what, _EPILOG, run)
    parser.add_argument("--on", required=True, metavar="N", help="take this fabric")
    parser.add_argument(
        "--ranks", type=count, default=0, metavar="R", help="take its first R endpoints"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.base.progress import Progress
    from nupa.cli.common.text import print_json, table
    from nupa.model.answer.text import say_ns
    from nupa.model.study.media import media

    with Progress(1, quiet_s=QUIET_S, beats=True) as progress:
        progress.step(args.on)
        found = media(args.on, args.ranks)
    if args.json:
        print_json([each.shown() for each in found])
        return 0
    used = [each for each in found if each.levels]
    rows = [
        (
            each.name,
            _watts(each.power.media_watts),
            _watts(each.power.switches_watts),
            _watts(each.power.adapters_watts),
            _watts(each.power.watts),
            each.power.modules,
            say_ns(each.write_ns),
            ", ".join(f"{t.level} {t.medium} {t.length_m:g} m" for t in each.power.tiers),
        )
        for each in used
    ]
    head = ("MEDIUM", "MEDIA", "SWITCHES", "ADAPTERS", "ALL", "MODULES", "WRITE", "TIERS")
    print(table(head, rows))
    short = [each.name for each in found if not each.levels]
    if short:
        print(f"{', '.join(short)}: too short for each level")
    return 0


def _watts(watts: float | None) -> str:
    if watts is None:
        return "not known"
    for unit, scale in (("MW", 1e6), ("kW", 1e3)):
        if watts >= scale:
            return f"{watts / scale:.3g} {unit}"
    return f"{watts:.3g} W"
