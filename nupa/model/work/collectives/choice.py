# SPDX-License-Identifier: BSD-3-Clause
"""The choice of algorithm and protocol, as NCCL makes it: the least of its own estimates.

NCCL estimates a latency and a bandwidth for each pair, and takes the pair with the least time.  The
estimate is the library's: it need not be right, and the prediction does not use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log2
from typing import NamedTuple

from nupa.model.errors import ModelError
from nupa.model.work.collectives.names import PROTOCOLS
from nupa.model.work.collectives.shape import Shape

#: Algorithms whose times NCCL estimates; a barrier is an all-reduce of one element.
_KNOWN = {
    "all-reduce": ("tree", "ring", "nvls", "nvls-tree", "collnet"),
    "all-gather": ("ring", "pat"),
    "reduce-scatter": ("ring", "pat"),
    "broadcast": ("ring",),
    "reduce": ("ring",),
}
_NVLS = "nvls"  # NCCL's name; of other fabrics, by the beginning of their names
_NAMES = {"nvlink": _NVLS, "ualink": "ualink"}
_NVLS_LEAST = 3  # GPUs of a node; NCCL, src/transport/nvls.cc: none with 2 or fewer
_SIMPLE_ONLY = ("nvls", "nvls-tree", "collnet", "pat")
_PLATEAU_BYTES = 64  # a channel and a rank; tuning.cc: "plateau effect of ring"
_ARITY_NS = 400.0  # CollNet: a further rank of a node


class Estimate(NamedTuple):
    """The time that NCCL expects of an algorithm and a protocol."""

    algorithm: str
    protocol: str
    ns: float

    @property
    def label(self) -> str:
        return f"{self.algorithm}/{self.protocol}"


class Choice(NamedTuple):
    """An algorithm and a protocol, and why."""

    algorithm: str
    protocol: str
    reason: str


class _Estimator:
    """NCCL's model of one network."""

    def __init__(self, shape: Shape, operation: str) -> None:
        self.shape = shape
        self.operation = operation
        row = shape.table("fabric").row(shape.gpu.name)
        self.generation = f"{row['generation']:g}"
        self.single = shape.nodes == 1
        self.per_node = shape.port_rate(shape.net) * shape.local * self.share("net")
        links = shape.table("estimate_link").rows
        own = shape.gpu.name in links or shape.gpu.name.split("-")[0] in links
        self.known = own  # the library's search and its table of links name this fabric
        self.link = (
            shape.cell("estimate_link", "ring", shape.gpu.name)
            if own
            else shape.port_rate(shape.node) * shape.cell("kernel_rate", "ring", shape.gpu.name)
        )
        self.channels = row["channels"] if self.single else self._net_channels()
        self.column = ("1", "2", "more")[min(shape.nodes, 3) - 1]

    def _net_channels(self) -> float:
        """Returns the channels of a ring over the net: one for each port of a node."""
        return max(
            2.0, float(round(self.shape.local * self.shape.net.planes * self.shape.net.nics))
        )

    def share(self, *words: str) -> float:
        return self.shape.cell("estimate_share", "share", *words)

    def limit(self, algorithm: str) -> float:
        name = f"{algorithm} {self.generation}"
        return self.shape.table("estimate_channel").rows[name][
            ("1", "2", "more").index(self.column)
        ]

    def ll(self) -> float:
        """Returns the limit of LL: of the GPU in a node, of the host's processor between nodes."""
        if self.single:
            return self.shape.cell("estimate_ll", self.column, "node", self.generation)
        return self.shape.cell("estimate_ll", self.column, "net", self.shape.net.profile.name)

    def bus(self, algorithm: str, protocol: str) -> float:
        """Returns NCCL's bus bandwidth; 0: the pair is not enabled."""
        if algorithm in ("nvls", "nvls-tree"):
            return self._in_network(algorithm)
        ring = self.link if self.single else min(self._between(), self.per_node)
        if algorithm == "ring":
            limits = {
                "LL": self.ll(),
                "LL128": self.channels * self.limit("ring"),
            }
            shares = {"LL": self.share("LL"), "LL128": self.share("LL128")}
            return min(ring * shares.get(protocol, 1.0), limits.get(protocol, ring))
        if algorithm == "tree":
            return self._tree(protocol)
        return ring * self.share(algorithm)

    def _between(self) -> float:
        """Returns the rate of the links in a node for rings of several: one rank of each leaves."""
        local = self.shape.local
        return self.link * local / (local - 1) if local > 1 else self.per_node

    def _tree(self, protocol: str) -> float:
        # Two nodes' trees use both directions of a port, if the links in a node carry them.
        both = self.shape.nodes == 2 and not self.shape.node.mesh
        rate = self.link if self.single else min(self.link, self.per_node * (2 if both else 1))
        rate = min(rate * self.share("tree"), self.channels * self.limit("tree"))
        if protocol == "LL":
            return min(rate * self.share("tree-LL"), self.ll())
        if protocol == "LL128":
            share = self.share("tree-LL128-node" if self.single else "tree-LL128")
            return min(rate * share, self.channels * self.limit("tree-ll128"))
        return rate

    def _in_network(self, algorithm: str) -> float:
        """Returns the bus bandwidth of NVLS: a channel for each rank, one's time lost."""
        efficiency = self.shape.table("estimate_share").rows.get(f"nvls {self.generation}", (0.0,))[
            0
        ]
        heads = self.shape.local
        if (
            not efficiency
            or heads < _NVLS_LEAST
            or "reduce_efficiency" not in self.shape.gpu.figures
        ):
            return 0.0
        speeds = self.shape.table("estimate_speed").values(self.generation) if self.known else ()
        total = self.shape.port_rate(self.shape.node)
        speed = next((each for each in speeds if each * heads <= total), self.link / heads)
        rate = 2 * speed * efficiency * (heads - 1) / heads
        if algorithm == "nvls":
            return rate * heads
        net = self.per_node / self.channels * (2 if self.shape.nodes == 2 else 1)
        return min(rate, net, self.limit("nvls-tree")) * self.channels

    def latency(self, algorithm: str, protocol: str) -> float:
        """Returns NCCL's latency in ns."""
        shape = self.shape
        base = shape.cell("estimate_base", protocol, algorithm)
        node = shape.cell("estimate_hop", protocol, algorithm, "node")
        alone = shape.local == 1 and algorithm == "ring"
        net = shape.cell("estimate_hop", protocol, "tree" if alone else algorithm, "net")
        depth = int(log2(shape.nodes))
        if algorithm == "ring":
            steps = self._steps()
            if self.operation in ("broadcast", "reduce"):
                return base + steps * (node if self.single else net)
            between = 0 if self.single else steps * (shape.nodes - 1) // (shape.ranks - 1)
            if between:
                node = max(
                    node, shape.cell("estimate_hop", protocol, "overhead", shape.net.profile.name)
                )
            return base + (steps - between) * node + between * net
        if algorithm == "tree":
            return base + 2 * (shape.chain_hops * node + depth * net)
        if algorithm == "nvls":
            return node + (0.0 if self.single else net)
        if algorithm == "nvls-tree":
            return node + 2 * depth * net
        if algorithm == "pat":
            return base + depth * net / 3.5 + shape.ranks * 2800.0
        return base + 2 * (min(1, shape.local - 1) * node + (shape.local - 1) * _ARITY_NS) + net

    def _steps(self) -> int:
        ranks = self.shape.ranks
        if self.operation == "all-reduce":
            return 2 * (ranks - 1)
        return ranks - 1 if self.operation in ("all-gather", "reduce-scatter") else ranks

    def time_ns(self, algorithm: str, protocol: str, size_bytes: int) -> float | None:
        """Returns NCCL's estimate; None: the pair is not enabled."""
        rate = self.bus(algorithm, protocol)
        if not rate:
            return None
        ranks = self.shape.ranks
        if algorithm in ("ring", "nvls", "nvls-tree"):
            rate *= ranks / self._steps()
        elif self.operation == "all-reduce":
            rate *= 0.5
        latency = self.latency(algorithm, protocol)
        if algorithm == "tree":
            index = int(log2(max(1, size_bytes // 64)))
            corrections = self.shape.table("estimate_tree").values(protocol)
            rate *= corrections[index] if index < len(corrections) else 1.0
        if algorithm == "ring" and protocol == "Simple" and not self.single:
            plateau = size_bytes / (self.channels * ranks) >= _PLATEAU_BYTES
            if self.operation == "all-reduce" and plateau:
                latency *= self.share("plateau")
        return latency + size_bytes / rate * 1e9

    def enabled(self, algorithm: str, protocol: str) -> bool:
        """Returns whether NCCL considers the pair on this network."""
        shape = self.shape
        if algorithm in _SIMPLE_ONLY and protocol != "Simple":
            return False
        if protocol == "LL128" and not self._ll128():
            return False
        if algorithm == "nvls":
            return self.single
        if algorithm == "nvls-tree":
            return not self.single
        if algorithm == "collnet":
            return not self.single and "reduce_efficiency" in shape.net.profile.figures
        if algorithm == "pat":
            return shape.local == 1 and not self.single
        return True

    def _ll128(self) -> bool:
        table = self.shape.table("fabric")
        names = {self.shape.node.profile.name, self.shape.net.profile.name}
        return all(table.row(name)["LL128"] for name in names)


def _in_network_name(shape: Shape) -> str:
    """Returns what reduction in the switches of a fabric is called."""
    name = shape.gpu.name
    return next((each for start, each in _NAMES.items() if name.startswith(start)), "in-network")


def estimates(shape: Shape, operation: str, size_bytes: int) -> Iterator[Estimate]:
    """Yields what NCCL expects of each algorithm and protocol that it considers."""
    of = "all-reduce" if operation == "barrier" else operation
    estimator = _Estimator(shape, of)
    name = _in_network_name(shape)
    for algorithm in _KNOWN.get(of, ()):
        for protocol in PROTOCOLS:
            if not estimator.enabled(algorithm, protocol):
                continue
            ns = estimator.time_ns(algorithm, protocol, size_bytes)
            if ns is not None:
                yield Estimate(name if algorithm == _NVLS else algorithm, protocol, ns)


def choose(
    shape: Shape, operation: str, size_bytes: int, algorithm: str = "", protocol: str = ""
) -> Choice:
    """Returns what NCCL takes; *algorithm* and *protocol* override it.

    ModelError: NCCL does not have that pair on this network, for example NVLS without a switch
    that reduces.
    """
    found = [
        each
        for each in estimates(shape, operation, size_bytes)
        if algorithm in ("", each.algorithm) and protocol in ("", each.protocol)
    ]
    if algorithm and not found:
        if protocol and algorithm in _SIMPLE_ONLY and protocol != "Simple":
            raise ModelError(f"{algorithm} has the protocol Simple only: {protocol} was asked")
        return Choice(algorithm, protocol or "Simple", "asked for")
    if not found:
        raise ModelError(
            f"{shape.library.name} does not have {operation} with {protocol} on "
            f"{shape.network.name}: leave the protocol out"
        )
    ordered = sorted(found, key=lambda each: each.ns)
    best = ordered[0]
    asked = " and ".join(word for word in (algorithm, protocol) if word)
    if algorithm and protocol:
        return Choice(best.algorithm, best.protocol, f"{asked} were asked for")
    reason = f"{shape.library.name} estimates {best.ns / 1e3:.4g} us"
    if len(ordered) > 1:
        reason += f", and {ordered[1].ns / 1e3:.4g} us for {ordered[1].label}"
    return Choice(
        best.algorithm, best.protocol, f"{asked} asked for; {reason}" if asked else reason
    )
