# SPDX-License-Identifier: BSD-3-Clause
"""Transformers: their parameters, and the operations of a token."""

from __future__ import annotations

from dataclasses import dataclass

from nupa.model.errors import ModelError

_WHOLE = ("layers", "hidden", "heads", "vocab", "sequence")


@dataclass(frozen=True)
class Transformer:
    """A decoder: *layers* of attention and of a feed-forward network, or of *experts* of those.

    *kv_heads* 0: as many as *heads*; *head_dim* 0: hidden / heads; *ffn* 0: 4 x hidden.  *gated*:
    three matrices (SwiGLU), else two.  *tied*: the embedding is the output matrix as well.
    Of *experts* a token takes *top_k*, and all *shared_experts*; *expert_ffn* 0: as *ffn*.  The
    first *dense_layers* have none.
    """

    layers: int
    hidden: int
    heads: int
    vocab: int
    sequence: int
    kv_heads: int = 0
    head_dim: int = 0
    ffn: int = 0
    gated: bool = True
    tied: bool = False
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0

    def __post_init__(self) -> None:
        for name in _WHOLE:
            if getattr(self, name) < 1:
                raise ModelError(f"model: {name} is {getattr(self, name)}: give 1 or more")
        if not self.head_dim and self.hidden % self.heads:
            raise ModelError(
                f"model: {self.hidden} hidden do not divide by {self.heads} heads: give `head_dim`"
            )
        if self.heads % self.keys:
            raise ModelError(f"model: {self.heads} heads do not share {self.keys} kv_heads evenly")
        if self.experts and not 1 <= self.top_k <= self.experts:
            raise ModelError(
                f"model: top_k is {self.top_k} of {self.experts} experts: give 1 to {self.experts}"
            )
        if not self.experts and (self.top_k or self.shared_experts or self.dense_layers):
            raise ModelError("model: top_k, shared_experts and dense_layers need `experts`")
        if self.dense_layers > self.layers:
            raise ModelError(f"model: {self.dense_layers} dense_layers of {self.layers} layers")

    @property
    def keys(self) -> int:
        return self.kv_heads or self.heads

    @property
    def dim(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def attention_params(self) -> int:
        """Returns the parameters of a layer's attention, with both norms of the layer."""
        return self.hidden * self.dim * (2 * self.heads + 2 * self.keys) + 2 * self.hidden

    def _ffn(self, width: int) -> int:
        return (3 if self.gated else 2) * self.hidden * width

    @property
    def ffn_params(self) -> int:
        """Returns the parameters of a dense layer's feed-forward network."""
        return self._ffn(self.ffn or 4 * self.hidden)

    @property
    def expert_params(self) -> int:
        """Returns the parameters of one expert of a layer."""
        return self._ffn(self.expert_ffn or self.ffn or 4 * self.hidden)

    @property
    def router_params(self) -> int:
        """Returns what a layer of experts has beside those that a token chooses."""
        return self.hidden * self.experts + self.shared_experts * self.expert_params

    @property
    def embedding_params(self) -> int:
        return self.vocab * self.hidden

    @property
    def routed_params(self) -> int:
        """Returns the parameters of all experts that tokens choose."""
        return self.moe_layers * self.experts * self.expert_params

    @property
    def dense_params(self) -> int:
        """Returns all other parameters."""
        layers = self.layers * self.attention_params + self.moe_layers * self.router_params
        layers += (self.layers - self.moe_layers) * self.ffn_params
        return layers + self.embedding_params * (1 if self.tied else 2)

    @property
    def params(self) -> int:
        return self.dense_params + self.routed_params

    @property
    def active_params(self) -> int:
        """Returns the parameters that a token passes."""
        return self.dense_params + self.moe_layers * self.top_k * self.expert_params

    def layer_flops(self, keys: float) -> float:
        """Returns the mean operations of a token in a layer, forward, that sees *keys* tokens."""
        routed = self.router_params + self.top_k * self.expert_params
        moe = self.moe_layers / self.layers
        matrices = self.attention_params + moe * routed + (1 - moe) * self.ffn_params
        return 2 * matrices + 4 * keys * self.heads * self.dim

    @property
    def head_flops(self) -> float:
        """Returns the operations of a token in the output matrix, forward."""
        return 2.0 * self.embedding_params

    def flops(self, keys: float = 0.0) -> float:
        """Returns the operations of a token, forward; *keys* 0: half a sequence, as causal."""
        seen = keys or self.sequence / 2
        return self.layers * self.layer_flops(seen) + self.head_flops

    @property
    def kv_bytes(self) -> int:
        """Returns what a token leaves in the cache of keys and values, of 2 bytes each."""
        return 4 * self.layers * self.keys * self.dim
