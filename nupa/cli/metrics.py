# SPDX-License-Identifier: BSD-3-Clause
"""`nupa metrics`: prints a fabric's metrics once."""

from __future__ import annotations

import argparse
import sys

from nupa.cli.common.argument import add_fabric
from nupa.cli.common.command import Subparsers, add_command, fail

_EPILOG = """\
The text is that of /metrics of `nupa serve`, in the format of Prometheus.  node_infiniband_* are
the names of node_exporter; nupa_* are what it does not have.

examples:
  nupa metrics
  nupa metrics rack | promtool check metrics
  nupa metrics > textfiles/nupa.prom     for node_exporter's textfile collector
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "metrics", "print metrics for Prometheus", _EPILOG, run)
    add_fabric(parser, positional=True)


def run(args: argparse.Namespace) -> int:
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        return fail(
            f"metrics needs {error.name}, which is not installed: `pip install nupa[serve]`"
        )
    from nupa.live import Observed, take
    from nupa.serve.metrics import Metrics

    with Observed.open(args.fabric) as fabric:
        body, _ = Metrics().encode(take(fabric, lists=False))
    sys.stdout.write(body.decode())
    return 0
