"""DeepSeek LLM 7B and 67B: keys and values per head (arXiv 2401.02954), MHA and GQA.

A row is what the paper's first formula counts: 2 x kv_heads x head_dim numbers per token and layer.
In MHA each query head has a key head of its own, in GQA several query heads share one.
"""

from __future__ import annotations

from torch import Tensor, nn

from kvstore.layouts import Layout
from kvstore.models.deepseek.attention import causal
from kvstore.models.deepseek.model import ReferenceModel, Shape
from kvstore.models.deepseek.parts import Linear, rotate
from kvstore.models.deepseek.rows import Step

__all__ = ["HeadAttention", "HeadModel"]


class HeadAttention(nn.Module):
    """Attention of `heads` query heads over `kv_heads` heads of keys and values of `dim`."""

    def __init__(self, layer: int, hidden: int, heads: int, kv_heads: int, dim: int) -> None:
        super().__init__()
        if heads % kv_heads:
            raise ValueError(f"heads: {heads} given, a multiple of the {kv_heads} key heads wanted")
        self.layer, self.heads, self.kv_heads, self.dim = layer, heads, kv_heads, dim
        self.query = Linear(hidden, heads * dim)
        self.key = Linear(hidden, kv_heads * dim)
        self.value = Linear(hidden, kv_heads * dim)
        self.out = Linear(heads * dim, hidden)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [T, hidden] -> [T, hidden]. A row is [2, kv_heads, dim]: keys, rotated, then values."""
        at = step.positions()
        q = rotate(self.query(x).unflatten(-1, (self.heads, self.dim)), at, self.dim)
        k = rotate(self.key(x).unflatten(-1, (self.kv_heads, self.dim)), at, self.dim)
        v = self.value(x).unflatten(-1, (self.kv_heads, self.dim))
        made = k.new_empty(len(x), 2, self.kv_heads, self.dim)
        made[:, 0], made[:, 1] = k, v
        rows = step.entries("kv", self.layer, made.flatten(1))
        keys, values = rows.view(-1, 2, self.kv_heads, self.dim).unbind(1)
        mixed: Tensor = self.out(causal(q, keys, values, at, self.dim**-0.5).flatten(1))
        return mixed


class HeadModel(ReferenceModel):
    """DeepSeek LLM: every layer keeps keys and values per head."""

    def __init__(self, layout: Layout, form: str, shape: Shape) -> None:
        (group,) = layout.groups
        dim = group.elements // (2 * group.heads)
        super().__init__(
            layout,
            form,
            shape,
            [HeadAttention(i, shape.hidden, shape.heads, group.heads, dim) for i in group.layers],
        )
