# SPDX-License-Identifier: BSD-3-Clause
"""iperf3: command lines, and the JSON that it prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

#: The remedy if iperf3 is missing.
INSTALL_HINT = (
    "iperf3 is not installed: `apt-get install iperf3` (Debian, Ubuntu) or "
    "`dnf install iperf3` (Fedora, RHEL)"
)


class Iperf3Error(Exception):
    """The output has no result; the message quotes it."""


def commands(address: str, port: int, options: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the commands of a server for one client, and of a client that prints JSON."""
    common = ["iperf3", "-p", str(port)]
    return [*common, "-s", "-1", "-B", address], [*common, "-c", address, "-J", *options]


def parse_bits_per_s(text: str) -> float:
    """Returns the received rate of both directions.  Iperf3Error: there is none."""
    try:
        end: dict[str, Any] = json.loads(text)["end"]
        received = [value for key, value in end.items() if key.startswith("sum_received")]
        rate = float(sum(value["bits_per_second"] for value in received))
    except (ValueError, KeyError, TypeError, AttributeError):
        rate = 0.0
    if rate <= 0:
        raise Iperf3Error(f"a sum of what was received was expected, iperf3 wrote: {text[-500:]!r}")
    return rate
