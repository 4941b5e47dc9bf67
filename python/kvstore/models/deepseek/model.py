"""A stack of layers between an embedding and its transpose, over a `RowCache`."""

from __future__ import annotations

import math
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
    """Query heads. DeepSeek LLM wants a multiple of its key heads."""
    head_dim: int = 128
    """Per-head width of MLA's queries without the rotary part, and of its values."""
    index_heads: int = 8
    """With few of them many scores are 0, where no product is positive: ties, which any rounding of
    the others decides."""
    topk: int = 2048
    """Entries that an indexer picks for each query."""
    pool_blocks: int = 2048
    """V4.1: blocks of 8 entries that the decoder's first indexer leaves to those above."""
    reindex_every: int = 4
    """V4.1: decoder layers from one that picks to the next."""
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
        logits = x.new_full((len(ids), self.shape.vocab), float("nan"))
        logits[-len(x) :] = self.logits(x)
        return logits[None]

    @torch.no_grad()
    def replay(
        self,
        input_ids: Tensor,
        cache: RowCache,
        start: int,
        *,
        chunk: int | None = None,
        windows: bool = False,
    ) -> None:
        """Makes windows and states again, over the entries that the cache holds.

        input_ids are the tokens from `start` to cache.length, int64 [1, cache.length - start]. What
        the cache has of windows and states is dropped; entries are read and stay as they are. The
        query at i sees the window rows of start and later only. So each window of tokens that is
        replayed makes one more layer exact, from the first on (`replay_start`); less is an
        approximation. chunk cuts the pass at so many tokens: the bits are those of a live cache
        where that was cut at the same places. windows says that the cache holds the windows of
        `start`: then all is exact, and only states are made anew.

        ValueError for a model without windows, or for fewer tokens than a window.
        """
        window, length = self.layout.max_window, cache.length
        if chunk is not None and chunk < 1:
            raise ValueError(f"chunk: {chunk} given, at least 1 token wanted")
        ids = self._ids(input_ids)
        if not window:
            raise ValueError(f"replay: {self.layout.name} has no windows, all of it is entries")
        if len(ids) != length - start:
            raise ValueError(
                f"input_ids: {len(ids)} given, {length - start} wanted from {start} on"
            )
        if start and len(ids) < window and not windows:
            raise ValueError(f"start: {start} given, at most {length - window} wanted at {length}")
        work = cache.only("entries", "window") if windows else cache.only("entries")
        for first in range(0, len(ids), chunk or len(ids)):
            part = ids[first : first + (chunk or len(ids))]
            step = Step(work, start + first, len(part), replay=True)
            self.run(self.embed(part), step)
            step.commit()
        cache.rows.update(work.rows)

    def replay_start(self, length: int, *, exact: bool = False) -> int:
        """Where a replay for `length` tokens begins: one window before, or one window per layer."""
        windows = len(self.layers) if exact else 1
        return max(length - windows * self.layout.max_window, 0)

    def embed(self, ids: Tensor) -> Tensor:
        """int64 [T] -> [T, hidden], of unit variance."""
        rows: Tensor = self.embedding[ids]
        return rows * math.sqrt(self.shape.hidden)

    def run(self, x: Tensor, step: Step) -> Tensor:
        """All layers: x [T, hidden] -> [T, hidden], or of the last ones only."""
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
