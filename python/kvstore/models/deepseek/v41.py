"""DeepSeek-V4.1-Flash (arXiv 2609.19969): CSA2 over a causal encoder and decoder.

40 layers, of which four own a global cache that the others read:

    layers    cache they read                          how they pick (mode)
    0, 1      none, the window only
    2         its own, an entry per 2 tokens           Full: scores all index keys
    3 - 7     layer 2's                                Reuse: layer 2's picks
    8, 14     their own; 9 - 13 and 15 - 19 read it    as 2, and as 3 - 7
    20        its own, an entry per token              Full; leaves the candidate pool
    24, 28,   layer 20's                               Reindex: score the pool only, with queries
    32, 36                                             of their own
    others    layer 20's                               Reuse: picks of the nearest below

Layers 0 to 19 are the encoder. Layer 20's cache is projected from the encoder's output, so the
global cache of a prompt is complete without running the decoder on it. `decoder` says on which
tokens of a pass the layers from 20 on attend:

    "all"    every token, as in training: what comes out depends on no cut
    "tail"   the last 128, as in serving: cheaper, and logits of the tokens before are NaN. Decoder
             windows begin at the first of them. So a pass should then be the rest of a prompt, or
             one token: where a prompt is cut changes what the decoder's windows hold

Windows are of 128 tokens in every layer. The index key is a projection of the pooled latent. In the
native form an entry is 288 bytes (4-bit values with a scale per 16, which is not MXFP4) and its key
68, so that a token costs (1 + 3 / 2) x (288 + 68) = 890 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from kvstore.layouts import Layout
from kvstore.models.deepseek.index import KEY, Indexer
from kvstore.models.deepseek.model import Layer, ReferenceModel, Shape
from kvstore.models.deepseek.parts import Linear, Norm, rotate
from kvstore.models.deepseek.pooling import Compressor
from kvstore.models.deepseek.rows import Step
from kvstore.models.deepseek.shared import ROPE, SharedKeyAttention

__all__ = ["Csa2Attention", "EncoderDecoder", "GlobalCache", "Owner", "Picked"]


class Owner(nn.Module):
    """What an owner layer has besides: a compressor, and the projection of index keys."""

    def __init__(self, layer: int, hidden: int, width: int, ratio: int) -> None:
        super().__init__()
        self.layer, self.ratio, self.group = layer, ratio, f"r{ratio}"
        # An entry of one token needs no scores: the softmax of one is 1.
        self.pool: Compressor | None = None
        if ratio > 1:
            self.pool = Compressor(hidden, width, ratio, bias=False)
        else:
            self.content, self.norm = Linear(hidden, width), Norm(width)
        self.key = Linear(width, KEY)
        self.key_norm = Norm(KEY)

    def forward(self, x: Tensor, step: Step) -> GlobalCache:
        """Adds the entries of x [T, hidden] to the cache; gives all of them."""
        if self.pool is not None:
            made, at = self.pool(x, step, f"{self.group}-tail", self.layer)
        else:
            made, at = self.norm(self.content(x)), step.positions()
        key = rotate(self.key_norm(self.key(made)), at, ROPE)
        return GlobalCache(
            step.entries(self.group, self.layer, rotate(made, at, ROPE)),
            step.entries(f"{self.group}-index", self.layer, key),
            self.ratio,
        )


@dataclass(frozen=True, slots=True)
class GlobalCache:
    """What the layers above an owner read: entries [n, 512], index keys [n, 128], ratio."""

    entries: Tensor
    keys: Tensor
    ratio: int


@dataclass(frozen=True, slots=True)
class Picked:
    """Picks int64 [T, k] of the nearest layer that picked, and the candidate pool, where one is."""

    picks: Tensor
    pool: Tensor | None


class Csa2Attention(nn.Module):
    """One layer: a window, and where it selects, an indexer; where it owns, an `Owner`."""

    def __init__(self, layer: int, shape: Shape, width: int, window: int) -> None:
        super().__init__()
        self.layer = layer
        self.shared = SharedKeyAttention(layer, shape, width, window)
        self.owner: Owner | None = None
        self.indexer: Indexer | None = None
        self.pool_blocks: int | None = None

    def pick(
        self, x: Tensor, c_q: Tensor, at: Tensor, memory: GlobalCache, before: Picked | None
    ) -> Picked:
        """Full with an owner of its own, Reindex with an indexer only, Reuse without."""
        if self.indexer is None:
            assert before is not None
            return before
        pool = None if self.owner is not None or before is None else before.pool
        picks, found = self.indexer(
            x, c_q, at, memory.keys, memory.ratio, pool=pool, pool_blocks=self.pool_blocks
        )
        return Picked(picks, pool if found is None else found)


class EncoderDecoder(ReferenceModel):
    """V4.1: owners and windows are the layout's; the decoder begins at the owner of ratio 1."""

    def __init__(self, layout: Layout, form: str, shape: Shape) -> None:
        groups = {group.name: group for group in layout.groups}
        near, halves = groups["window"], groups["r2"]
        (start,) = groups["r1"].layers
        window = near.window or 0
        attentions = [Csa2Attention(layer, shape, near.elements, window) for layer in near.layers]
        ratios = dict.fromkeys(halves.layers, halves.ratio) | {start: 1}
        for attention in attentions:
            layer, ratio = attention.layer, ratios.get(attention.layer)
            if ratio is not None:
                attention.owner = Owner(layer, shape.hidden, halves.elements, ratio)
            above = layer - start
            if ratio is not None or (above > 0 and above % shape.reindex_every == 0):
                attention.indexer = Indexer(
                    shape.hidden, shape.hidden, shape.index_heads, shape.topk
                )
            if layer == start:
                attention.pool_blocks = shape.pool_blocks
        super().__init__(layout, form, shape, attentions)
        self.decoder_start, self.window = start, window
        self.decoder: Literal["all", "tail"] = "all"

    def run(self, x: Tensor, step: Step) -> Tensor:
        memory: GlobalCache | None = None
        picked: Picked | None = None
        for layer in self.layers:
            assert isinstance(layer, Layer)
            attention = layer.attention
            assert isinstance(attention, Csa2Attention)
            inputs = layer.attention_norm(x)
            if attention.owner is not None:
                memory = attention.owner(inputs, step)
            rows = attention.shared.rows(inputs, step)
            if attention.layer == self.decoder_start and self.decoder == "tail":
                # The owner's entries and window rows are made of all tokens; what comes now only of
                # the last ones.
                step = step.tail(self.window)
                x, inputs = x[-step.tokens :], inputs[-step.tokens :]
            at, c_q = step.positions(), attention.shared.query_latent(inputs)
            if memory is None:
                mixed = attention.shared(c_q, at, rows)
            else:
                picked = attention.pick(inputs, c_q, at, memory, picked)
                mixed = attention.shared(c_q, at, rows, memory.entries, memory.ratio, picked.picks)
            x = layer.after(x, mixed)
        return x
