# SPDX-License-Identifier: BSD-3-Clause
"""The last line of `nupa demo`: what its latency program would take on other fabrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nupa import model
from nupa.base.quantity import say_bytes
from nupa.measure.text import format_number
from nupa.programs.perftest import Latency, Operation, program

#: One with a measured curve, one of published figures, and NUPA's own link.
FABRICS = ("ib-hdr", "roce-400", "nupa-448")
#: Those that a prediction times as perftest does, the demo's main one first.
_OPERATIONS: Sequence[Operation] = ("write", "send", "read")


@dataclass(frozen=True)
class Elsewhere:
    """A prediction for a program that the demo has run here: times in µs."""

    program: str
    size_bytes: int
    here_us: float
    fabric: str
    typical_us: float
    low_us: float  #: with each figure of the profile at its best
    high_us: float
    warnings: tuple[str, ...]


def predict(
    measured: Mapping[Operation, Sequence[Latency]], *, own_loops: bool = False
) -> list[Elsewhere]:
    """Returns the least message of the first operation on each of FABRICS; none: nothing to show.

    *measured* are the demo's latencies, by perftest or by our *own_loops*.
    """
    operation = next((each for each in _OPERATIONS if measured.get(each)), None)
    if operation is None:
        return []
    name = f"nupa perf {operation} lat" if own_loops else program(operation, "lat")
    here = min(measured[operation], key=lambda row: row.size_bytes)
    found = []
    for fabric in FABRICS:
        answer = model.predict(f"{operation}:{here.size_bytes}", fabric)
        found.append(
            Elsewhere(
                name,
                here.size_bytes,
                here.typical_us,
                fabric,
                answer.time_ns / 1e3,
                answer.low_ns / 1e3,
                answer.high_ns / 1e3,
                tuple(answer.warnings),
            )
        )
    return found


def say(predicted: Sequence[Elsewhere]) -> str:
    """Returns the line: each fabric's time with its range, and * where there are warnings."""
    first = predicted[0]
    times = [
        f"{format_number(each.typical_us)}{'*' * bool(each.warnings)} on {each.fabric} "
        f"({format_number(each.low_us)} to {format_number(each.high_us)})"
        for each in predicted
    ]
    size, here = say_bytes(first.size_bytes, " "), format_number(first.here_us)
    warned = any(each.warnings for each in predicted)
    stars = "; * has warnings" if warned else ""
    return (
        f"Elsewhere: {first.program} of {size}, {here} µs here, is predicted to take, in µs, "
        f"{', '.join(times)}; more by `nupa model`{stars}."
    )
