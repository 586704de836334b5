# SPDX-License-Identifier: BSD-3-Clause
"""The command line of a soak, and the report that it prints."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


def say(line: str) -> None:
    """Tells what happens meanwhile."""
    print(line, file=sys.stderr, flush=True)


class Reporting(Protocol):
    """What a soak returns."""

    @property
    def good(self) -> bool: ...

    def figures(self) -> dict[str, Any]: ...

    def text(self) -> str: ...


@dataclass
class SoakReport:
    """A soak's seed, how long it took, and what was wrong."""

    seed: int
    seconds: float
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.wrong

    def counts(self) -> dict[str, Any]:
        """Returns the figures of this kind of soak."""
        raise NotImplementedError

    def figures(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            **self.counts(),
            "wrong": self.wrong,
        }

    def text(self) -> str:
        lines = [f"{name}: {value}" for name, value in self.figures().items() if name != "wrong"]
        return "\n".join([*lines, *(f"WRONG: {each}" for each in self.wrong), f"good: {self.good}"])


def run_command(
    name: str,
    run: Callable[..., Reporting],
    options: Mapping[str, tuple[Any, ...]],
    seconds: float = 60,
) -> int:
    """Runs a soak with the options of the command line.  Returns 0: nothing was wrong.

    *options*: defaults, help and choices, if any, by the names of keyword arguments of *run*.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=run.__doc__)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--seed", type=int, help="that of a soak to have again")
    for option, (default, text, *choices) in options.items():
        parser.add_argument(
            f"--{option}",
            type=type(default),
            default=default,
            help=text,
            choices=choices or None,
        )
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    if arguments["seed"] is None:
        arguments["seed"] = secrets.randbits(32)
    say(f"seed {arguments['seed']}")
    report = run(**arguments)
    print(json.dumps(report.figures(), indent=2) if as_json else report.text())
    return 0 if report.good else 1
