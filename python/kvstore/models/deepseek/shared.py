"""Attention whose rows are key and value in one (V4, arXiv 2606.19348, 2.3): window and entries.

All query heads share one vector of 512 per row, 64 of it rotary. Since the value is rotated too,
the output is turned back by the query's position. One softmax runs over the window's rows, the
entries that the layer reads, and a learned sink.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kvstore.models.deepseek.attention import windowed
from kvstore.models.deepseek.model import Shape
from kvstore.models.deepseek.parts import Linear, Norm, rotate, unit
from kvstore.models.deepseek.rows import Step

__all__ = ["ROPE", "SharedKeyAttention"]

ROPE = 64
"""Rotary numbers of a row."""


class SharedKeyAttention(nn.Module):
    """A sliding window of one layer's own rows, and entries of its own or of another layer."""

    def __init__(self, layer: int, shape: Shape, width: int, window: int) -> None:
        super().__init__()
        self.layer, self.heads, self.width, self.window = layer, shape.heads, width, window
        self.query_down = Linear(shape.hidden, shape.hidden)
        self.query_norm = Norm(shape.hidden)
        self.query_up = Linear(shape.hidden, shape.heads * width)
        self.row = Linear(shape.hidden, width)
        self.row_norm = Norm(width)
        self.sink = nn.Parameter(torch.zeros(shape.heads), requires_grad=False)
        self.out = Linear(shape.heads * width, shape.hidden)

    def query_latent(self, x: Tensor) -> Tensor:
        """c_Q [T, hidden], from which the queries are made, the indexer's too."""
        latent: Tensor = self.query_norm(self.query_down(x))
        return latent

    def rows(self, x: Tensor, step: Step) -> Tensor:
        """Puts the window rows of x [T, hidden] into the cache; gives those the queries may see."""
        made = rotate(self.row_norm(self.row(x)), step.positions(), ROPE)
        return step.window("window", self.layer, made)

    def forward(
        self,
        c_q: Tensor,
        positions: Tensor,
        rows: Tensor,
        entries: Tensor | None = None,
        ratio: int = 1,
        picks: Tensor | None = None,
    ) -> Tensor:
        """Queries c_q [T, hidden] over window rows and entries -> [T, hidden]."""
        q = unit(self.query_up(c_q).view(len(c_q), self.heads, self.width))
        q = rotate(q, positions, ROPE)
        mean = windowed(q, positions, rows, self.window, self.sink, entries, ratio, picks)
        mixed: Tensor = self.out(rotate(mean, positions, ROPE, inverse=True).flatten(1))
        return mixed
