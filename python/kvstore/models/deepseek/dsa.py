"""DeepSeek sparse attention (V3.2, arXiv 2512.02556): MLA over the tokens that an indexer picks.

Besides MLA's row each token leaves an index key of 128 in every layer. All keys are scored for each
query, the latents of the best 2,048 tokens are read.
"""

from __future__ import annotations

from torch import Tensor

from kvstore.layouts import Layout
from kvstore.models.deepseek.index import KEY, Indexer
from kvstore.models.deepseek.mla import ROPE, LatentAttention
from kvstore.models.deepseek.model import ReferenceModel, Shape
from kvstore.models.deepseek.parts import Linear, Norm, rotate
from kvstore.models.deepseek.rows import Step

__all__ = ["SparseLatentAttention", "SparseLatentModel"]


class SparseLatentAttention(LatentAttention):
    """MLA of one layer with a lightning indexer before it."""

    def __init__(self, layer: int, shape: Shape, rank: int) -> None:
        super().__init__(layer, shape, rank)
        self.key = Linear(shape.hidden, KEY)
        self.key_norm = Norm(KEY)
        self.indexer = Indexer(shape.hidden, shape.hidden, shape.index_heads, shape.topk)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [T, hidden] -> [T, hidden]."""
        at, c_q = step.positions(), self.query_latent(x)
        made = rotate(self.key_norm(self.key(x)), at, ROPE)
        keys = step.entries("index", self.layer, made)
        picks, _ = self.indexer(x, c_q, at, keys, 1)
        return self.attend(x, c_q, step, picks)


class SparseLatentModel(ReferenceModel):
    """V3.2: every layer keeps a latent row and an index key per token."""

    def __init__(self, layout: Layout, form: str, shape: Shape) -> None:
        group = next(group for group in layout.groups if group.name == "mla")
        super().__init__(
            layout,
            form,
            shape,
            [SparseLatentAttention(i, shape, group.elements - ROPE) for i in group.layers],
        )
