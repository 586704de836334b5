# SPDX-License-Identifier: BSD-3-Clause
"""The rates and times of a library's kernels for one collective: channels, protocols, chunks."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from nupa.model.errors import ModelError
from nupa.model.work.collectives.shape import Shape
from nupa.model.work.phase import NO_PACE, Pace, Phase

_THREADS = "channels"
#: The pattern of a step: the rows of the library's table of times.
_TIMES = {"all-to-all": "pairs", "peer": "pairs", "pat": "pairs"}


#: Of LL: the size at which a tree opens another channel, from nccl-polaris-a100-n2.csv.
_TREE_CHANNEL_BYTES = 16384


@dataclass(frozen=True)
class LibraryRates:
    """*channels* 0: as many as the library opens for that many bytes."""

    shape: Shape
    operation: str
    protocol: str
    bytes: int
    channels: int = 0

    @property
    def wire(self) -> float:
        """Returns the bytes on the wire for a byte of payload."""
        return self.shape.cell("wire", self.protocol, "other")

    def _cell(self, table: str, column: str, level: int) -> float:
        return self.shape.cell(table, column, self.shape.network.levels[level].profile.name)

    def port(self, level: int) -> float:
        """Returns the rate of a rank's ports of a level, headers included."""
        network = self.shape.network
        return self.shape.port_rate(network.levels[network.base(level)])

    def open_channels(self) -> int:
        """Returns the channels that a collective of that size uses: each has bytes enough."""
        most = self._most_channels("channels" if self.shape.nodes == 1 else "net-channels")
        if self.channels:
            return self.channels
        each = self.shape.cell("channel_bytes", self.protocol, self.shape.gpu.name)
        return max(1, min(most, ceil(self.bytes / each)))

    def _most_channels(self, column: str, fabric: str = "") -> int:
        return int(self.shape.cell("fabric", column, fabric or self.shape.gpu.name))

    def pair_channels(self) -> int:
        """Returns the channels of one pair: doubled while each carries more than 32 steps.

        A pair begins with its part of all channels; NCCL, enqueue.cc.
        """
        step = self.shape.library["window"]
        most = self._most_channels("pair-channels")
        limits = (step / 8, step * 32) if self.shape.nodes == 1 else (step / 2, step)
        return self._channels_to_peer(most, self.bytes, *limits)

    def net_channels(self) -> int:
        """Returns the channels of a pair over the net: fewer, the more ranks share all channels.

        NCCL, paths.cc, halves them until a channel has few operations; enqueue.cc as above.
        """
        library, ranks = self.shape.library, self.shape.ranks
        step = library["window"]
        most, all_channels = int(library["peer_channels"]), self._most_channels("pair-channels")
        while most * ranks > all_channels * library["peer_operations"] and most > 1:
            most //= 2
        of_peer = self.bytes / (1 if self.operation == "send-recv" else ranks)
        return self._channels_to_peer(most, of_peer, step / 2, step)

    def _channels_to_peer(
        self, most: int, size_bytes: float, smallest: float, largest: float
    ) -> int:
        """Returns the channels for a message, of which each takes *smallest* to *largest* bytes."""
        least = most
        while least * self.shape.ranks > self._most_channels("pair-channels") and least > 1:
            least //= 2
        found = max(1, min(least, ceil(size_bytes / smallest)))
        while size_bytes / found > largest and found <= most // 2:
            found *= 2
        return found

    def limit(self, pattern: str, level: int) -> tuple[float, str]:
        """Returns the payload rate of a rank's kernels at a level, and what limits it.

        *pattern*: a column of the table of kernel rates; "peer": one pair.
        """
        net = level >= self.shape.first_net
        if pattern == "peer":
            return self._peer(level, net)
        column = {"ring": "ring", "tree": "tree", "nvls-tree": "nvls-tree"}.get(pattern, "pairs")
        if pattern == "tree" and self.protocol == "LL128":
            column = "tree-LL128"
        kernel = self.port(level) * self._cell("kernel_rate", column, level) / self.wire
        if pattern in ("pairs", "pat", "nvls-tree", "all-to-all"):
            return kernel, "kernels"
        rate = self.shape.cell("channel_rate", self.protocol, self.shape.gpu.name)
        channels = self.open_channels() * rate / (self.shape.local if net else 1)
        return (kernel, "kernels") if kernel <= channels else (channels, _THREADS)

    def _peer(self, level: int, net: bool) -> tuple[float, str]:
        if net:
            most = self.port(level) * self._cell("peer_rate", "one", level)
            channels = self.net_channels() * self.shape.library["flow_rate"]
            return min(most, channels), "channels to one peer"
        kernel = self.port(level) * self._cell("kernel_rate", "ring", level)
        rate = self.shape.cell("channel_rate", "pair", self.shape.gpu.name)
        channels = self.pair_channels() * rate
        return (kernel, "kernels") if kernel <= channels else (channels, "channels to one peer")

    def hop_ns(self, pattern: str, net: bool, level: int, peers: int = 1) -> float:
        """Returns the library's part of a step: to each of *peers* it signals on its own."""
        name = _TIMES.get(pattern, pattern)
        where = "net" if net else "node"
        fabric = self.shape.network.levels[level].profile.name
        table = self.shape.table("hop_time")
        found = table.row(name, where, fabric)[self.protocol]
        if peers > 1:
            small = self.bytes / self.shape.ranks <= self.shape.library["host_copy"]
            each = table.row("small-peer" if small else "peer", where, fabric)
            channels = self.net_channels() if net else 1
            found += (peers - 1) * channels * each[self.protocol]
        if net and name == "tree":
            found += self.proxy_ns(self.bytes / _TREE_CHANNEL_BYTES)
            profile = self.shape.network.levels[level].profile
            if self.protocol == "LL" and self.bytes > profile.get("eager", self.bytes):
                found += profile["rendezvous"]
        return found

    def ring_pace(self, steps: int) -> Pace:
        """Returns what each step of a ring costs the library, at its slowest edge.

        Between nodes a proxy posts each channel's message while others are sent.  The threads that
        copy wait, where they are slower than the adapters or there is one node; but not with LL128,
        which has its flags in each line.
        """
        table = self.shape.table("hop_time")
        node = table.row("ring", "node", self.shape.node.profile.name)[self.protocol]
        if self.shape.nodes == 1:
            return Pace(steps, node, 0.5 if self.protocol == "LL128" else 0.0)
        each = self.shape.library["agree"]
        proxy = self.proxy_ns(self.bytes / self.shape.ranks / each)
        if self.limit("ring", self.shape.first_net)[1] == _THREADS:
            return Pace(steps, max(node, proxy), 0.0, covers=True)
        return Pace(steps, max(node, proxy), 1.0, covers=True, varies=True)

    def tree_pace(self) -> Pace:
        """Returns what the chunks of a tree cost the proxies between nodes."""
        if self.shape.nodes == 1 or self.protocol != "Simple":
            return NO_PACE
        of_proxy = self._most_channels("proxy-channels", self.shape.net.profile.name)
        channels = max(of_proxy, round(self.shape.local * self.shape.net.ways))
        depth = self.shape.chain_hops + int(log2(self.shape.nodes))
        of_channel = self.bytes / channels
        chunk = self.shape.library["window"]
        for least, rounds in ((131072, 8), (65536, 4), (32768, 1)):
            while of_channel / chunk < depth * rounds and chunk > least:
                chunk /= 2
        return Pace(ceil(of_channel / chunk), self.proxy_ns(of_proxy), 1.0)

    def proxy_ns(self, parts: float) -> float:
        """Returns a proxy's time for the messages of a step: one for each channel.

        Channels double with the size; *parts* is that of the data in units of a channel's least.
        """
        name = self.shape.net.profile.name
        most = self._most_channels("proxy-channels", name)
        channels = most
        if self.protocol == "LL":
            channels = max(1, min(most, 1 << int(log2(max(1.0, parts)))))
        return channels * self.shape.table("hop_time").row("proxy", name)[self.protocol]

    def launch_ns(self, gpus_per_process: int) -> float:
        """Returns the launch of the kernels: a process launches its GPUs' one after the other."""
        row = self.shape.table("launch").row(self.shape.gpu.name)
        return row["first"] + row["next"] * (gpus_per_process - 1)

    def in_network(self, level: int, total: float) -> Phase:
        """Returns the phase in which the switches of a level reduce or multicast *total* bytes.

        The ranks, or their heads, work in rounds of a chunk on each channel.  ModelError: the
        switches of that fabric do not reduce.
        """
        profile = self.shape.network.levels[level].profile
        if "reduce_efficiency" not in profile.figures:
            raise ModelError(
                f"{profile.name} does not reduce in its switches: choose an algorithm of hosts, as "
                "ring"
            )
        net = level >= self.shape.first_net
        rate = self.port(level) * profile["reduce_efficiency"]
        table = self.shape.table("hop_time")
        where = "net" if net else "node"
        fixed = profile.get("reduce_latency", table.row("nvls", where, profile.name)["Simple"])
        limit, limit_name = rate, "in-network reduction"
        if not net:
            fixed += self.shape.local * table.row("nvls-peer", where, profile.name)["Simple"]
            rounds = self.bytes / self._round_bytes()
            seconds = rounds * self.shape.cell("chunk_time", "nvls", profile.name) / 1e9
            if total:
                limit = total / (total / rate + seconds)
        return Phase(
            "in-network",
            "multimem",
            level,
            ceil(total),
            1,
            1,
            "in-network",
            fixed,
            limit=limit,
            limit_name=limit_name,
            start=net,
        )

    def _round_bytes(self) -> float:
        """Returns the bytes of a round: chunks shrink where there would be few rounds."""
        lanes = self._most_channels("nvls-channels")
        heads = self._most_channels("heads")
        lanes *= min(self.shape.local, heads) if heads else self.shape.local
        sizes = self.shape.table("chunk").values("nvls")
        chunk = sizes[0]
        for smaller, least_rounds in zip(sizes[1:], (64, 8, 2), strict=True):
            if self.bytes < least_rounds * lanes * chunk:
                chunk = smaller
        return lanes * chunk
