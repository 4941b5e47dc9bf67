"""V3 with its multi-token prediction head (arXiv 2412.19437, 2.2), which drafts a token ahead.

The head is one more layer. At token i it takes the hidden vector of token i - 1 and the embedding
of token i, and foretells token i + 1 before the model itself has seen token i:

    M [norm(h_(i-1)) ; norm(embedding of t_i)]  ->  a layer with MLA  ->  the model's output head

It keeps a row per token, of the same kind as the model's layers (group `mtp-mla`). The row of token
i depends on tokens up to i only, so it belongs to the same block as the model's rows of token i.

A drafted token is kept where the model agrees, so a poor draft costs time and changes nothing. The
weights are random, yet the head is not blind: M is a small random matrix for the hidden vector and
passes the embedding through, which is most of what so small a model makes its choice by.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kvstore.layouts import Layout
from kvstore.models.deepseek.mla import ROPE, LatentAttention, LatentModel
from kvstore.models.deepseek.model import Layer, Shape
from kvstore.models.deepseek.parts import Linear, Norm, unit
from kvstore.models.deepseek.rows import RowCache, Step

__all__ = ["DraftCache", "DraftingModel"]


SMALL = 0.25
"""Share of the hidden vector in what the head's layer gets."""


class DraftCache(RowCache):
    """Rows, and beside them the last token's hidden vector for the head's next row.

    The vector is no row and is not stored: in a copy it is absent until `DraftingModel.recall`.
    Without it the first row that the head makes takes zeros in its place.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.hidden: Tensor | None = None


class DraftHead(nn.Module):
    """M and the layer behind it."""

    def __init__(self, layer: int, shape: Shape, rank: int) -> None:
        super().__init__()
        self.hidden_norm = Norm(shape.hidden)
        self.project = Linear(shape.hidden, shape.hidden)
        attention = LatentAttention(layer, shape, rank)
        attention.group = "mtp-mla"
        self.layer = Layer(attention, shape.hidden)

    def forward(self, hidden: Tensor, embedded: Tensor, step: Step) -> Tensor:
        """Hidden vectors of the tokens before, embeddings of the tokens: [T, hidden] each."""
        mixed: Tensor = self.layer(
            SMALL * self.project(self.hidden_norm(hidden)) + unit(embedded), step
        )
        return mixed


class DraftingModel(LatentModel):
    """V3 with one draft head."""

    def __init__(self, layout: Layout, form: str, shape: Shape) -> None:
        super().__init__(layout, form, shape)
        group = next(group for group in layout.groups if group.draft)
        self.draft_head = DraftHead(group.layers[0], shape, group.elements - ROPE)

    def new_cache(self) -> DraftCache:
        return DraftCache(self.layout)

    def run(self, x: Tensor, step: Step) -> Tensor:
        hidden = super().run(x, step)
        self.draft_head(torch.cat((self._before(step.cache), hidden[:-1])), x, step)
        if isinstance(step.cache, DraftCache):
            step.cache.hidden = hidden[-1:].clone()
        return hidden

    @torch.no_grad()
    def recall(self, token: int, cache: RowCache) -> None:
        """Computes the hidden vector of `token`, the last one in the cache, again over its rows.

        One token's work, after which a restored cache drafts as the live one does.
        """
        # A replay reads the rows of its tokens and writes none; the step is not committed either.
        self.run(self.embed(torch.tensor([token])), Step(cache, cache.length - 1, 1, replay=True))

    @torch.no_grad()
    def draft(self, token: int, cache: RowCache) -> int:
        """The likeliest token behind `token`, which the model itself has not seen yet."""
        step = Step(cache, cache.length, 1)
        embedded = self.embed(torch.tensor([token]))
        return int(self.logits(self.draft_head(self._before(cache), embedded, step)).argmax())

    def generate(self, input_ids: Tensor, cache: RowCache, count: int) -> tuple[list[int], int]:
        """Greedy: `count` tokens behind int64 [1, T], and how many of count - 1 drafts were right.

        Each token is computed by the model itself: drafts are counted here, and save nothing.
        """
        logits = self(input_ids, cache)
        tokens = [int(logits[0, -1].argmax())]
        right = 0
        while len(tokens) < count:
            guess = self.draft(tokens[-1], cache)
            logits = self(torch.tensor([[tokens[-1]]]), cache)
            tokens.append(int(logits[0, -1].argmax()))
            right += guess == tokens[-1]
        return tokens, right

    def _before(self, cache: RowCache) -> Tensor:
        """The hidden vector of the last token in the cache, zeros where it is not known."""
        if isinstance(cache, DraftCache) and cache.hidden is not None:
            return cache.hidden
        return torch.zeros(1, self.shape.hidden)
