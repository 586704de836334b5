# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests.soak.tenants`: the tenants' soak from the command line."""

from __future__ import annotations

import argparse
import json
import secrets
import sys

from .run import run_soak


def main() -> int:
    """Returns 0: no wrong byte, nothing read across partitions, nothing refused inside one."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.tenants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="that of a soak to have again")
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=2, help="exchanges at a time")
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    report = run_soak(
        seconds=arguments.seconds,
        seed=seed,
        n_hosts=arguments.hosts,
        pairs=arguments.pairs,
    )
    print(json.dumps(report.figures(), indent=2) if arguments.json else report.text())
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
