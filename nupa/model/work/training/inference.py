# SPDX-License-Identifier: BSD-3-Clause
"""Inference: the prefill of prompts, and one step of decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Literal

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.profile.profile import Profile
from nupa.model.work.phase import Plan, RankOperation, StepPart
from nupa.model.work.training.layout import Parallelism, collectives, moved_bytes, processor
from nupa.model.work.training.transformer import Transformer

_WORD = 2  # bytes of a weight or an activation: BF16


@dataclass(frozen=True)
class Inference:
    """*batch* sequences in all: their prefill of *prompt* tokens, or a token of each (decode).

    *context*: tokens of a sequence that a decoded token sees; 0: the prompt.
    """

    model: Transformer
    layout: Parallelism
    batch: int
    prompt: int = 1024
    step: Literal["prefill", "decode"] = "decode"
    context: int = 0
    processor: str = "h100"

    def __post_init__(self) -> None:
        if self.step not in ("prefill", "decode"):
            raise ModelError(f"step is {self.step!r}: give prefill or decode")
        for name, least in (("batch", 1), ("prompt", 1), ("context", 0)):
            if getattr(self, name) < least:
                raise ModelError(f"{name} is {getattr(self, name)}: give {least} or more")
        if self.batch % self.layout.dp:
            raise ModelError(f"batch is {self.batch}: give a multiple of dp = {self.layout.dp}")
        if self.layout.pp > self.model.layers:
            raise ModelError(f"pp {self.layout.pp} is above {self.model.layers} layers")
        if self.layout.ep > 1 and (not self.model.experts or self.model.experts % self.layout.ep):
            raise ModelError(f"{self.model.experts} experts do not divide by {self.layout.ep} ep")

    @property
    def name(self) -> str:
        at = self.layout
        return f"{self.step}:tp={at.tp}:pp={at.pp}:dp={at.dp}:ep={at.ep}:batch={self.batch}"

    @property
    def sequences(self) -> int:
        """Returns the sequences of a copy of the model."""
        return self.batch // self.layout.dp

    @property
    def tokens(self) -> int:
        """Returns the tokens that a copy of the model takes at once."""
        return self.sequences * (self.prompt if self.step == "prefill" else 1)

    @property
    def keys(self) -> float:
        """Returns the tokens that a token sees on average."""
        return self.prompt / 2 if self.step == "prefill" else float(self.context or self.prompt)

    def touched(self) -> float:
        """Returns the share of a rank's experts that some token chooses, if all are as likely."""
        model = self.model
        if not model.experts:
            return 0.0
        return 1 - (1 - model.top_k / model.experts) ** (self.tokens * self.layout.ep)

    def weight_bytes(self) -> float:
        """Returns the bytes of the weights that a rank holds."""
        whole = self.layout.tp * self.layout.pp
        model = self.model
        return _WORD * (model.dense_params + model.routed_params / self.layout.ep) / whole

    def cache_bytes(self) -> float:
        """Returns the bytes of the cache of keys and values of a rank, at the end of the step."""
        seen = self.prompt if self.step == "prefill" else self.keys + 1
        return self.sequences * seen * self.model.kv_bytes / (self.layout.tp * self.layout.pp)

    def read_bytes(self) -> float:
        """Returns the bytes that a rank reads from its memory: weights, and the cache."""
        whole = self.layout.tp * self.layout.pp
        model = self.model
        read = model.dense_params + model.routed_params * self.touched() / self.layout.ep
        if not model.tied:
            read -= model.embedding_params  # of the embedding only the tokens' rows
        cache = self.cache_bytes() if self.step == "decode" else 0.0
        return _WORD * read / whole + cache

    def flops(self) -> float:
        """Returns the operations of a rank."""
        model, at = self.model, self.layout
        layers = self.tokens * model.layers * model.layer_flops(self.keys)
        return (layers + self.sequences * model.head_flops) / (at.tp * at.pp)

    def plan(self, network: Network) -> Plan:
        """Returns the parts of a step.  ModelError: too few ranks, or too little memory."""
        self.layout.check(network)
        chip = processor(self.processor, network)
        held = self.weight_bytes() + self.cache_bytes()
        if held > chip["memory"]:
            raise ModelError(
                f"weights and cache take {held / 1e9:.4g} GB a rank: {chip.name} has "
                f"{chip['memory'] / 1e9:.4g} GB; give more tp, pp or ep, or a smaller batch"
            )
        parts = tuple(self._parts(network, chip))
        at = self.layout
        return Plan(
            (),
            f"tp {at.tp} x pp {at.pp} x dp {at.dp}" + (f", ep {at.ep}" if at.ep > 1 else ""),
            f"{self.tokens} tokens of each of {at.dp} copies",
            moved_bytes(parts),
            at.ranks,
            parts=parts,
        )

    def _parts(self, network: Network, chip: Profile) -> Iterator[StepPart]:
        model, at = self.model, self.layout
        computed = self.flops() / (chip["flops"] * chip["flops_share"]) * 1e9
        read = self.read_bytes() / (chip["memory_rate"] * chip["memory_share"]) * 1e9
        # Matrices are read while they multiply; the stages of a pipeline follow each other.
        slower = ("computation", computed) if computed >= read else ("memory", read)
        yield StepPart(slower[0], slower[1], times=at.pp)
        size = self.tokens * model.hidden * _WORD
        layers = ceil(model.layers / at.pp) * at.pp
        yield from collectives(
            "tensor parallel", ("all-reduce",), size, at.network(network, "tp"), 2 * layers
        )
        if model.experts:
            yield from collectives(
                "experts", ("all-to-all",), size * model.top_k / at.tp, at.network(network, "ep"),
                2 * model.moe_layers,
            )  # fmt: skip
        if at.pp > 1:
            yield from collectives(
                "pipeline", ("send-recv",), size / at.tp, at.network(network, "pp", 2), at.pp - 1
            )

    def operations(self, network: Network) -> Iterator[RankOperation]:
        """Raises ModelError: a step is a plan of parts, each with its own operations."""
        raise ModelError(
            f"{self.name} on {network.name}: a step has no single operations: leave the engine "
            "out, or ask for a collective of it"
        )
