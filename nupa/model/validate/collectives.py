# SPDX-License-Identifier: BSD-3-Clause
"""Readers of nccl-tests' tables, and the machines that they were made on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.profile import load
from nupa.model.validate.case import (
    MIB,
    AnyCase,
    CalibrationFile,
    Case,
    Line,
    Reader,
    Threshold,
    at_least,
    everything,
)
from nupa.model.work.collective import Collective
from nupa.model.work.collectives.names import OPERATIONS, operation

Machine = Callable[[int, int], Network]

_NODE_MIB = 32


def one_node(profile: str) -> Machine:
    """Returns the machine in which one fabric joins all GPUs."""
    return lambda nodes, local: Network(
        profile, (NetworkLevel("node", nodes * local, load(profile)),)
    )


def several_nodes(
    node: str,
    net: str,
    *,
    planes: int = 1,
    nics: float = 1.0,
    switches: int = 3,
    mesh: bool = False,
) -> Machine:
    """Returns the machine of nodes with one fabric in each, and a net with *nics* a GPU."""

    def machine(nodes: int, local: int) -> Network:
        between = NetworkLevel("net", nodes, load(net), switches, planes=planes, nics=nics)
        if local == 1:
            return Network(net, (between,))
        inside = NetworkLevel("node", local, load(node), 0 if mesh else 1, mesh=mesh)
        return Network(f"{node} + {net}", (inside, between))

    return machine


def nccl_tests(machine: Machine, gpus_per_process: int = 1) -> Reader:
    """Returns a reader of nccl-tests' columns: the times out of place."""

    def read(lines: Sequence[Line]) -> Iterator[Case]:
        for line in lines:
            network = machine(int(line["nodes"]), int(line["gpus_per_node"]))
            work = Collective(
                line["collective"], int(line["bytes"]), gpus_per_process=gpus_per_process
            )
            yield Case(work.name, work, network, float(line["time_us"]) * 1e3)

    return read


#: The GPUs of nccl-nvls-vs-ring.csv.
_GPUS: Mapping[str, str] = {"H200": "nvlink4", "B200": "nvlink5"}


def nvls_and_ring(lines: Sequence[Line]) -> Iterator[Case]:
    """Reads bus bandwidths with NVLS enabled, which leaves the choice, and disabled."""
    for line in lines:
        gpus, size = int(line["gpus"]), int(line["bytes"])
        network = one_node(_GPUS[line["gpu"]])(1, gpus)
        for column, algorithm in (("busbw_GBps", ""), ("busbw_nvls_off_GBps", "ring")):
            if line[column]:
                work = Collective(line["collective"], size, algorithm)
                factor = OPERATIONS[operation(line["collective"])].bus_factor(gpus)
                label = f"{line['gpu']} x {gpus}: {work.name} {algorithm}".strip()
                yield Case(label, work, network, size * factor / float(line[column]))


def small_all_reduce(lines: Sequence[Line]) -> Iterator[Case]:
    """Reads the times of ncclAllReduce in a CUDA graph, which no host launches."""
    for line in lines:
        work = Collective("all-reduce", int(line["bytes"]))
        network = one_node("nvlink5-nvl72")(1, int(line["gpus"]))
        yield Case(work.name, work, network, float(line["nccl_us"]) * 1e3)


#: Of simai-busbw-ratio-1to16nodes.csv: the collective, and the rate in GB/s that has the ratio 1.
#: The ratios of one node are those of 8 x H100, whose NVLink has 450 GB/s.
_RATIOS: Mapping[str, tuple[str, float]] = {
    "nvlink": ("all-gather", 450.0),
    "nic": ("all-gather", 400.0),
    "ata": ("all-to-all", 450.0),
}


#: 0.96 of the adapters' rate takes more channels than NCCL opens by itself.
_TUNED_CHANNELS = 32


def simai_ratios(lines: Sequence[Line]) -> Iterator[Case]:
    """Reads ratios of a bus bandwidth to the rate of the line, as times."""
    nodes_of = several_nodes("nvlink4", "ib-ndr")
    for line in lines:
        nodes, size, kind = int(line["nodes"]), int(line["bytes"]), line["bottleneck"]
        if (kind == "nic" and nodes == 1) or (kind == "ata" and nodes > 1):
            continue
        name, rate = _RATIOS[kind]
        network = one_node("nvlink4")(1, 8) if nodes == 1 else nodes_of(nodes, 8)
        work = Collective(name, size, channels=_TUNED_CHANNELS)
        factor = OPERATIONS[name].bus_factor(network.endpoints)
        time_ns = size * factor / (rate * float(line["ratio"]))
        yield Case(f"{kind}, {nodes} nodes: {work.name}", work, network, time_ns)


def _size(case: AnyCase) -> int:
    if not (isinstance(case, Case) and isinstance(case.work, Collective)):
        raise ModelError(f"{case.label} is no collective")
    return case.work.bytes


def _large(limit: float) -> Threshold:
    """Returns the bar from 32 MiB; nccl-tests rounds sizes down to whole elements of all ranks."""
    least = _NODE_MIB * MIB * 0.999
    return Threshold(f">= {_NODE_MIB} MiB", limit, lambda case: _size(case) >= least)


ONE_NODE = (_large(0.05), everything(0.12))
SEVERAL_NODES = (_large(0.10), everything(0.25))
MANY_GPUS = (at_least(MIB, 0.25),)

FILES: tuple[CalibrationFile, ...] = (
    CalibrationFile("nccl-h100-nvl8-1node", nccl_tests(one_node("nvlink4")), ONE_NODE, fitted=True),
    CalibrationFile(
        "nccl-azure-h100-nvl8", nccl_tests(one_node("nvlink4"), 8), ONE_NODE, fitted=True
    ),
    CalibrationFile(
        "nccl-a100-nvl8-1node", nccl_tests(one_node("nvlink3"), 8), ONE_NODE, fitted=True
    ),
    CalibrationFile(
        "nccl-gb200-nvl72", nccl_tests(one_node("nvlink5-nvl72")), ONE_NODE, fitted=True
    ),
    CalibrationFile("nccl-nvls-vs-ring", nvls_and_ring, (everything(0.05),), fitted=True),
    CalibrationFile(
        "nvls-gb200-4gpu-allreduce-small",
        small_all_reduce,
        (everything(0.12),),
        left_out="kernels of the contribution, with 4 thread blocks: NCCL does not run them",
    ),
    CalibrationFile(
        "nccl-h100-10nodes-g4",
        nccl_tests(several_nodes("nvlink4", "ib-ndr")),
        SEVERAL_NODES,
        fitted=True,
    ),
    *(
        CalibrationFile(
            f"nccl-h100-10nodes-{gpus}",
            nccl_tests(several_nodes("nvlink4", "ib-ndr")),
            SEVERAL_NODES,
        )
        for gpus in ("g1", "g2", "g8")
    ),
    CalibrationFile(
        "nccl-a100-2nodes-oci",
        nccl_tests(several_nodes("nvlink3", "roce-100", planes=2)),
        SEVERAL_NODES,
    ),
    CalibrationFile(
        "nccl-polaris-a100-n2",
        nccl_tests(several_nodes("nvlink3", "slingshot-11", nics=0.5, mesh=True)),
        SEVERAL_NODES,
        fitted=True,
    ),
    CalibrationFile(
        "nccl-polaris-a100-n8",
        nccl_tests(several_nodes("nvlink3", "slingshot-11", nics=0.5, mesh=True)),
        SEVERAL_NODES,
    ),
    *(
        CalibrationFile(
            f"nccl-polaris-a100-{run}",
            nccl_tests(several_nodes("nvlink3", "slingshot-11", nics=0.5, mesh=True)),
            MANY_GPUS,
        )
        for run in ("n128", "n256", "n540", "n540-2.21")
    ),
    CalibrationFile(
        "simai-busbw-ratio-1to16nodes",
        simai_ratios,
        SEVERAL_NODES,
        fitted=True,
        left_out="nic of one node repeats nvlink; ata of several: the rate of ratio 1 is not known",
    ),
)
