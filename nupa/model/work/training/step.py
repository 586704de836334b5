# SPDX-License-Identifier: BSD-3-Clause
"""A training step: micro-batches through a pipeline, and the exchange of gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.profile.profile import Profile
from nupa.model.work.phase import Plan, RankOperation, StepPart
from nupa.model.work.training.layout import Parallelism, collectives, moved_bytes, processor
from nupa.model.work.training.schedule import Pass, StepSchedule
from nupa.model.work.training.transformer import Transformer

_WORD = 2  # bytes of an activation, a weight or a gradient: BF16
#: Adam in mixed precision, a parameter: FP32 copy, momentum and variance (12), and what a step
#: reads and writes of these, the gradient and the weight (28).
_STATE_BYTES, _STEP_BYTES = 12, 28


@dataclass(frozen=True)
class Training:
    """One step of *model*: *batch* sequences in all, *micro_batch* of them at a time on a rank.

    *interleave*: chunks of layers that each stage of the pipeline has.  *recompute*: the forward
    pass is repeated instead of kept.  *sequence_parallel*: what tensor parallelism leaves whole is
    divided by tokens.  *sharded*: each rank of a dp group has its part of the optimizer's state.
    """

    model: Transformer
    layout: Parallelism
    batch: int
    micro_batch: int = 1
    interleave: int = 1
    recompute: bool = False
    sequence_parallel: bool = True
    sharded: bool = True
    processor: str = "h100"

    def __post_init__(self) -> None:
        for name in ("batch", "micro_batch", "interleave"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name} is {getattr(self, name)}: give 1 or more")
        each = self.layout.dp * self.micro_batch
        if self.batch % each:
            raise ModelError(f"batch is {self.batch}: give a multiple of dp x micro_batch = {each}")
        if self.layout.pp > self.model.layers or self.interleave > self.stage_layers:
            raise ModelError(
                f"pp {self.layout.pp} x interleave {self.interleave} needs more than "
                f"{self.model.layers} layers"
            )
        if self.layout.ep > 1 and (not self.model.experts or self.model.experts % self.layout.ep):
            raise ModelError(f"{self.model.experts} experts do not divide by {self.layout.ep} ep")

    @property
    def name(self) -> str:
        at = self.layout
        return f"training:tp={at.tp}:pp={at.pp}:dp={at.dp}:ep={at.ep}:batch={self.batch}"

    @property
    def micro_batches(self) -> int:
        """Returns how many micro-batches a rank takes."""
        return self.batch // (self.layout.dp * self.micro_batch)

    @property
    def tokens(self) -> int:
        return self.batch * self.model.sequence

    @property
    def flops(self) -> float:
        """Returns the operations of a step, without those that are repeated: the model's."""
        return 3 * self.model.flops() * self.tokens

    def utilisation(self, time_ns: float, processor: Profile) -> float:
        """Returns the model's operations over those that all ranks could have done: MFU."""
        return self.flops / (self.layout.ranks * processor["flops"] * time_ns * 1e-9)

    @property
    def stage_layers(self) -> int:
        """Returns the layers of the slowest stage."""
        return ceil(self.model.layers / self.layout.pp)

    @property
    def _rank_params(self) -> tuple[float, float]:
        """Returns the parameters of a rank: those of all tokens, and those of its experts."""
        whole = self.layout.tp * self.layout.pp
        return self.model.dense_params / whole, self.model.routed_params / (whole * self.layout.ep)

    def state_bytes(self) -> float:
        """Returns the bytes of weights, gradients and optimizer of a rank, without activations."""
        total = 0.0
        for count, copies in zip(
            self._rank_params, (self.layout.dp, self.layout.dp // self.layout.ep), strict=True
        ):
            total += count * (2 * _WORD + _STATE_BYTES / (copies if self.sharded else 1))
        return total

    def plan(self, network: Network) -> Plan:
        """Returns the parts of a step.  ModelError: too few ranks, or too little memory."""
        self.layout.check(network)
        chip = processor(self.processor, network)
        if self.state_bytes() > chip["memory"]:
            raise ModelError(
                f"weights, gradients and optimizer take {self.state_bytes() / 1e9:.4g} GB a rank: "
                f"{chip.name} has {chip['memory'] / 1e9:.4g} GB; give more tp, pp or ep"
            )
        parts = [*self._micro_batch(network, chip), *self._end(network, chip)]
        at = self.layout
        bubble = (at.pp - 1) / self.interleave
        share = bubble / (self.micro_batches + bubble)
        return Plan(
            (),
            f"tp {at.tp} x pp {at.pp} x dp {at.dp}" + (f", ep {at.ep}" if at.ep > 1 else ""),
            f"{self.micro_batches} micro-batches fill the pipeline but for {share:.1%}",
            moved_bytes(parts),
            at.ranks,
            parts=tuple(parts),
            bubble=bubble / self.micro_batches,
        )

    @property
    def _passes(self) -> int:
        """Returns a micro-batch's forward passes, of which a backward pass takes two."""
        return 4 if self.recompute else 3

    def _tokens_ns(self, chip: Profile) -> float:
        """Returns the time of one operation for each token of a micro-batch, forward."""
        return self.micro_batch * self.model.sequence / self.layout.tp / self._rate(chip) * 1e9

    def _computation_ns(self, chip: Profile) -> float:
        """Returns the time of a micro-batch in the layers of a stage, forward and backward."""
        model = self.model
        flops = self.stage_layers * model.layer_flops(model.sequence / 2)
        return self._passes * flops * self._tokens_ns(chip)

    def _head_ns(self, chip: Profile) -> float:
        """Returns the time of a micro-batch in the output matrix, of the last stage.

        A last stage that has fewer layers than others has the time for it.
        """
        model = self.model
        spare = self.stage_layers * self.layout.pp - model.layers
        flops = model.head_flops - spare * model.layer_flops(model.sequence / 2)
        return max(0.0, 3 * flops * self._tokens_ns(chip))

    def _micro_batch(self, network: Network, chip: Profile) -> Iterator[StepPart]:
        """Yields what each micro-batch takes of the slowest stage."""
        model, at, count = self.model, self.layout, self.micro_batches
        yield StepPart("computation", self._computation_ns(chip), times=count, piped=True)
        # Micro-batches wait for the last stage, but each fills the others in the layers' time.
        yield StepPart("computation", self._head_ns(chip), times=count)
        size = self.micro_batch * model.sequence * model.hidden * _WORD
        passes = 3 if self.recompute else 2
        exchange = ("all-gather", "reduce-scatter") if self.sequence_parallel else ("all-reduce",)
        yield from collectives(
            "tensor parallel", exchange, size, at.network(network, "tp"),
            count * 2 * passes * self.stage_layers, piped=True,
        )  # fmt: skip
        divided = size / (at.tp if self.sequence_parallel else 1)
        if model.experts:
            layers = self.stage_layers * model.moe_layers / model.layers
            yield from collectives(
                "experts", ("all-to-all",), divided * model.top_k, at.network(network, "ep"),
                count * 2 * passes * layers, piped=True,
            )  # fmt: skip
        if at.pp > 1:
            yield from collectives(
                "pipeline", ("send-recv",), divided, at.network(network, "pp", 2),
                count * 2 * self.interleave, piped=True,
            )  # fmt: skip

    def _end(self, network: Network, chip: Profile) -> Iterator[StepPart]:
        """Yields the exchange of gradients, behind the last backward pass, and the optimizer."""
        at = self.layout
        dense, experts = self._rank_params
        backward = self._computation_ns(chip) * 2 / self._passes
        exchange = ("reduce-scatter", "all-gather") if self.sharded else ("all-reduce",)
        routed = at.dp // at.ep
        total = dense + experts
        for count, size, apart in ((dense, at.dp, 1), (experts, routed, at.ep)):
            if count and size > 1:
                members = at.network(network, "dp", size, apart)
                yield from collectives(
                    "gradients", exchange, count * _WORD, members, 1,
                    hidden_ns=backward * count / total,
                )  # fmt: skip
        yield StepPart("optimizer", self._optimizer_ns(chip))

    def _optimizer_ns(self, chip: Profile) -> float:
        at = self.layout
        dense, experts = self._rank_params
        if self.sharded:
            dense, experts = dense / at.dp, experts / (at.dp // at.ep)
        rate = chip["memory_rate"] * chip["memory_share"]
        return (dense + experts) * _STEP_BYTES / rate * 1e9

    @staticmethod
    def _rate(chip: Profile) -> float:
        """Returns the operations a second that matrices reach."""
        return chip["flops"] * chip["flops_share"]

    def operations(self, network: Network) -> Iterator[RankOperation]:
        """Yields each rank's computations and messages; a collective is one ring.

        Gradients are exchanged after the last backward pass: nothing hides them.  No library's time
        is in them.  ModelError: as `plan`; or stages of several chunks, or of unequal layers.
        """
        self.plan(network)
        model, at = self.model, self.layout
        if self.interleave > 1 or model.layers % at.pp:
            raise ModelError(
                f"{self.name}: {model.layers} layers in {at.pp} x {self.interleave} chunks: single "
                "operations know one chunk a stage and equal stages; leave the engine out"
            )
        chip = processor(self.processor, network)
        size = self.micro_batch * model.sequence * model.hidden * _WORD
        divided = size // (at.tp if self.sequence_parallel else 1)
        tokens_ns = self._tokens_ns(chip)
        one = Pass(
            model.layer_flops(model.sequence / 2) * tokens_ns,
            model.head_flops * tokens_ns,
            ("all-gather", "reduce-scatter") if self.sequence_parallel else ("all-reduce",),
            size,
            2 if model.experts else 0,
            divided * model.top_k,
            divided,
        )
        schedule = StepSchedule(at, model.layers // at.pp, self.micro_batches, one, self.recompute)
        return iter(schedule.run(lambda made: self._finish(made, chip)))

    def _finish(self, made: StepSchedule, chip: Profile) -> None:
        """Appends the exchange of gradients, and the optimizer."""
        at = self.layout
        dense, experts = self._rank_params
        names = ("reduce-scatter", "all-gather") if self.sharded else ("all-reduce",)
        for stage, tensor in product(range(at.pp), range(at.tp)):
            ranks = [made.rank(tensor, data, stage) for data in range(at.dp)]
            for name in names:
                made.collective(name, ranks, round(dense * _WORD))
                for first in range(at.ep if experts else 0):
                    made.collective(name, ranks[first :: at.ep], round(experts * _WORD))
        for stage in range(at.pp):
            made.compute(stage, self._optimizer_ns(chip))
