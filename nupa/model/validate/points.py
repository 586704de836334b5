# SPDX-License-Identifier: BSD-3-Clause
"""Readers of files whose lines are single points of several machines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.figure import Case as Figures
from nupa.model.profile.profile import load
from nupa.model.validate.case import Case, Line, pair
from nupa.model.work.collective import Collective
from nupa.model.work.perftest import Perftest

_GIB = 1 << 30
_NS = {"ns": 1.0, "us": 1e3}


class _Point(NamedTuple):
    operation: str
    figures: Figures = "nominal"


#: Operations of cxl-points.csv.  The profile's nominal figures are those of the least time.
_OPERATIONS: Mapping[str, _Point] = {
    "load through switch": _Point("load"),
    "ib_write_lat min": _Point("write"),
    "ib_write_lat typical": _Point("write"),
    "ib_write_lat p99": _Point("write", "worst"),
    "fast channel (claim)": _Point("store"),
}


def cxl(lines: Sequence[Line]) -> Iterator[Case]:
    """Reads latencies of CXL rigs: a line's row is the name of a profile."""
    for line in lines:
        point = _OPERATIONS.get(line["operation"])
        if point:
            work = Perftest(point.operation, int(line["bytes"]))
            time_ns = float(line["value"]) * _NS[line["unit"]]
            label = f"{line['row']}: {line['operation']}"
            yield Case(label, work, pair(line["row"]), time_ns, point.figures)


#: Profiles of p2p-gpu-bandwidth.csv by link, and the switches of a path.
_LINKS: Mapping[str, tuple[str, int]] = {
    "NVLink 3": ("nvlink3", 1),
    "NVLink 4": ("nvlink4", 1),
    "NVLink 5": ("nvlink5", 1),
    "NVLink-C2C": ("nvlink-c2c", 0),
    "PCIe 5 x16": ("pcie-gen5x16", 0),
}


_XGMI_PEERS = 7
_ALL_REDUCE = re.compile(r"all_reduce busbw (\d+) GPUs 4 GiB")


def _all_reduce(line: Line) -> Case:
    """Reads the bus bandwidth of GPUs that are all linked: of 2 GPUs one link is in use."""
    found = _ALL_REDUCE.fullmatch(line["test"])
    if not found:
        raise ModelError(f"p2p-gpu-bandwidth: {line['test']!r} is no known test")
    gpus = int(found[1])
    profile = load("xgmi-mi300x")
    level = NetworkLevel("mesh", gpus, profile, 0, nics=(gpus - 1) / _XGMI_PEERS, mesh=True)
    work = Collective("all-reduce", 4 * _GIB)
    time_ns = work.bytes * 2 * (gpus - 1) / gpus / float(line["measured_GBps"])
    network = Network("xgmi-mi300x", (level,))
    return Case(f"{line['gpu']} x {gpus}: {work.name}", work, network, time_ns)


def copies(lines: Sequence[Line]) -> Iterator[Case]:
    """Reads rates of copies between two GPUs, or a GPU and its host, as copies of 1 GiB;
    all-reduces of MI300X.

    Links carry both directions at once, so a rate of both is twice that of one.
    """
    for line in lines:
        if line["link"] == "xGMI":
            yield _all_reduce(line)
            continue
        profile, switches = _LINKS[line["link"]]
        work = Perftest("write", _GIB)
        ways = 2 if line["direction"] == "both" else 1
        time_ns = _GIB * ways / float(line["measured_GBps"])
        yield Case(f"{line['gpu']}: {line['test']}", work, pair(profile, switches), time_ns)
