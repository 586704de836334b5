# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests.trunk`: the soak of trunks from the command line."""

from __future__ import annotations

import argparse
import json
import secrets
import sys

from .soak import run_trunk_soak


def main() -> int:
    """Returns 0: nothing wrong, hung or leaked."""
    parser = argparse.ArgumentParser(prog="python -m tests.trunk", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, help="that of a soak to have again")
    parser.add_argument("--workers", type=int, default=18, help="processes at a time")
    parser.add_argument("--links", type=int, default=36, help="connections at a time")
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    report = run_trunk_soak(
        seconds=arguments.seconds,
        seed=seed,
        n_workers=arguments.workers,
        n_links=arguments.links,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(json.dumps(report.figures(), indent=2) if arguments.json else report.text())
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
