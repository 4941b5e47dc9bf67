"""A stack of layers between an embedding and its transpose, over a `RowCache`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kvstore.layouts import Layout
from kvstore.models.deepseek.parts import FeedForward, Linear, Norm
from kvstore.models.deepseek.rows import RowCache, Step

__all__ = ["Layer", "ReferenceModel", "Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is cut down from the released models: nothing of it touches the bytes of a row."""

    hidden: int = 128
    heads: int = 2
    """Query heads of latent and pooled attention."""
    head_dim: int = 128
    """Per-head width of MLA's queries without the rotary part, and of its values."""
    index_heads: int = 4
    topk: int = 2048
    """Entries that an indexer picks for each query."""
    pool_blocks: int = 2048
    """V4.1: blocks of 8 entries that layer 20's indexer leaves to the layers above."""
    vocab: int = 256


class Layer(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, attention: nn.Module, hidden: int) -> None:
        super().__init__()
        self.attention_norm = Norm(hidden)
        self.attention = attention
        self.feed_norm = Norm(hidden)
        self.feed = FeedForward(hidden, 2 * hidden)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self.after(x, self.attention(self.attention_norm(x), step))

    def after(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What follows on attention: both residual additions."""
        x = x + mixed
        fed: Tensor = self.feed(self.feed_norm(x))
        return x + fed


class ReferenceModel(nn.Module):
    """A decoder with random weights whose cache has the bytes of `layout`.

    All arithmetic is float32 on the CPU; `form` is the precision of the stored rows only: "native"
    (packed records), "bf16" or "fp32". Attention reads the rows as they are stored, those of the
    tokens of the same pass too. So a cut anywhere, with the rows copied elsewhere and back,
    continues with the same bits (on one thread).
    """

    def __init__(
        self, layout: Layout, form: str, shape: Shape, attentions: Iterable[nn.Module]
    ) -> None:
        super().__init__()
        self.layout = layout
        self.form = form
        self.shape = shape
        self.embedding = nn.Parameter(torch.empty(shape.vocab, shape.hidden), requires_grad=False)
        self.layers = nn.ModuleList(Layer(attention, shape.hidden) for attention in attentions)
        self.final_norm = Norm(shape.hidden)
        self.head = Linear(shape.hidden, shape.vocab)

    def new_cache(self) -> RowCache:
        """An empty cache."""
        return RowCache(self.layout)

    @torch.no_grad()
    def forward(self, input_ids: Tensor, cache: RowCache | None = None) -> Tensor:
        """int64 [1, T] at positions from cache.length on -> float32 logits [1, T, vocab].

        The rows of these tokens are appended to the cache; if the pass fails it stays as it was.
        """
        cache = self.new_cache() if cache is None else cache
        ids = self._ids(input_ids)
        step = Step(cache, cache.length, len(ids))
        x = self.run(self.embed(ids), step)
        step.commit()
        return self.logits(x)[None]

    def embed(self, ids: Tensor) -> Tensor:
        """int64 [T] -> [T, hidden], of unit variance."""
        scale = float(self.shape.hidden) ** 0.5
        return self.embedding[ids] * scale

    def run(self, x: Tensor, step: Step) -> Tensor:
        """All layers: x [T, hidden] -> [T, hidden]."""
        for layer in self.layers:
            x = layer(x, step)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """[T, hidden] -> [T, vocab]."""
        logits: Tensor = self.head(self.final_norm(x))
        return logits

    def _ids(self, input_ids: Tensor) -> Tensor:
        if input_ids.ndim != 2 or len(input_ids) != 1 or input_ids.dtype != torch.int64:
            raise ValueError(
                f"input_ids: {input_ids.dtype} {tuple(input_ids.shape)} given, int64 (1, T) wanted"
            )
        ids = input_ids[0]
        if not len(ids):
            raise ValueError("input_ids: no tokens given, at least one wanted")
        if int(ids.min()) < 0 or int(ids.max()) >= self.shape.vocab:
            raise ValueError(
                f"input_ids: ids {int(ids.min())} to {int(ids.max())} given, "
                f"0 to {self.shape.vocab - 1} wanted"
            )
        return ids
