"""A decoder with multi-head latent attention in numpy, written to be read beside the papers.

It computes what DeepSeek-V2 (arXiv 2405.04434) and V3 (arXiv 2412.19437) compute in their dense
layers, in the absorbed form that serving engines use (`mla_weights` derives it): the only thing
that attention reads of the past is the cache, one short record per token and layer.

**Bits.** In floating point, the order of additions matters, and BLAS picks that order by the shapes
of the matrices. So `prefill` always works on whole blocks of 64 tokens at multiples of 64, a last
block that is not full being padded: the shapes of block b's products depend on b alone. Hence the
bits of a row depend on the tokens up to it, not on the prompt's length, nor on where prefill began,
and the cache bytes of a full block are a function of its prefix (with the same numpy, BLAS, kind of
CPU and number of BLAS threads). `decode` computes one row in other shapes: cheaper, and equal up to
rounding only. Who stores what `decode` has written should `prefill` those blocks again first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvstore.models.mla_cache import BLOCK_TOKENS, MlaCache
from kvstore.models.mla_config import MlaConfig
from kvstore.models.mla_weights import Array, LayerWeights, MlaWeights

__all__ = ["MlaDecoder", "Tokens"]

Tokens = bytes | Sequence[int] | NDArray[np.integer]
"""Token ids; of a model that reads bytes, simply the text's bytes."""


class MlaDecoder:
    """The model: weights and positions. It keeps no state; that is all in the `MlaCache`."""

    def __init__(self, config: MlaConfig, weights: MlaWeights) -> None:
        self.config = config
        self.weights = weights
        # RoPE: pair j turns by position * theta^(-j / pairs), slowly for large j.
        pairs = config.qk_rope_head_dim // 2
        turn = config.rope_theta ** (-np.arange(pairs) / pairs)
        angle = np.arange(config.max_position_embeddings)[:, None] * turn
        self._cos = np.cos(angle).astype(np.float32)
        self._sin = np.sin(angle).astype(np.float32)
        self._head = np.ascontiguousarray(weights.embedding.T)

    def new_cache(self, capacity: int | None = None) -> MlaCache:
        """An empty cache for `capacity` tokens (default: all positions the model has)."""
        return MlaCache(self.config, capacity)

    def prefill(self, tokens: Tokens, cache: MlaCache, start: int = 0) -> Array:
        """Compute tokens[start:] over the cached tokens[:start]; `tokens` is the whole prompt.

        `start` is a multiple of 64 that the cache reaches; what it holds from there on is replaced.
        Returns float32 logits [len(tokens) - start, vocab]: row i foretells the token behind
        tokens[start + i].
        """
        ids = _ids(tokens, self.config.vocab_size)
        if start % BLOCK_TOKENS or not 0 <= start <= cache.length:
            raise ValueError(
                f"start {start}: must be a multiple of {BLOCK_TOKENS} from 0 to the {cache.length} "
                "tokens in the cache"
            )
        if not start < len(ids) <= cache.capacity:
            raise ValueError(
                f"{len(ids)} tokens from {start} on: at least one must be left to compute, "
                f"and the cache has room for {cache.capacity}"
            )
        logits = np.empty((len(ids) - start, self.config.vocab_size), dtype=np.float32)
        padded = np.zeros(-(-len(ids) // BLOCK_TOKENS) * BLOCK_TOKENS, dtype=np.int64)
        padded[: len(ids)] = ids
        for position in range(start, len(ids), BLOCK_TOKENS):
            rows = self._forward(padded[position : position + BLOCK_TOKENS], position, cache)
            kept = logits[position - start : position - start + BLOCK_TOKENS]
            kept[...] = rows[: len(kept)]
        # The padding's records stay behind `length`; the next token overwrites the first of them.
        cache.length = len(ids)
        return logits

    def decode(self, token: int, cache: MlaCache) -> Array:
        """Append one token to the cache; float32 logits [vocab] for the one behind it."""
        if cache.length >= cache.capacity:
            raise ValueError(f"the cache is full ({cache.capacity} tokens)")
        row: Array = self._forward(_ids([token], self.config.vocab_size), cache.length, cache)[0]
        cache.length += 1
        return row

    def generate(self, logits: Array, cache: MlaCache, count: int) -> list[int]:
        """Greedy: `count` times the likeliest token (the lowest of equals), from `logits` [vocab].

        `logits` is the last row that `prefill` or `decode` gave; the last token is not decoded.
        """
        found: list[int] = []
        while len(found) < count:
            found.append(int(np.argmax(logits)))
            if len(found) < count:
                logits = self.decode(found[-1], cache)
        return found

    def _forward(self, ids: NDArray[np.int64], position: int, cache: MlaCache) -> Array:
        """Tokens [n] at `position` and on, inside one block -> logits [n, vocab]."""
        x: Array = self.weights.embedding[ids]
        eps = self.config.rms_norm_eps
        for number, w in enumerate(self.weights.layers):
            x = x + self.attend(rms_norm(x, w.attention_norm, eps), number, w, position, cache)
            y = rms_norm(x, w.mlp_norm, eps)
            mlp: Array = (silu(y @ w.gate) * (y @ w.up)) @ w.down
            x = x + mlp
        logits: Array = rms_norm(x, self.weights.final_norm, eps) @ self._head
        return logits

    def attend(
        self, x: Array, layer: int, w: LayerWeights, position: int, cache: MlaCache
    ) -> Array:
        """Multi-head latent attention of rows x [n, hidden] over the cache and themselves."""
        c, n = self.config, len(x)
        rank, heads = c.kv_lora_rank, c.num_attention_heads
        cos, sin = self._cos[position : position + n], self._sin[position : position + n]

        # 1. What the tokens leave behind: latent and turned rope key, rounded to bf16 on the way.
        record: Array = x @ w.record
        record[:, :rank] = rms_norm(record[:, :rank], w.latent_norm, c.rms_norm_eps)
        record[:, rank:] = rotate(record[:, rank:], cos, sin)
        cache.write(layer, position, record)

        # 2. The past, these tokens included, as the store will give it back: [end, rank + rope].
        end = position + n
        past = cache.read(layer, end)

        # 3. Absorbed queries lie in the cache's own space, so one key serves all heads and the
        #    heads are just more rows: [heads, n, rank + rope].
        query: Array = (x @ w.query).reshape(n, heads, c.cache_width).transpose(1, 0, 2).copy()
        query[..., rank:] = rotate(query[..., rank:], cos, sin)
        scores: Array = query.reshape(heads * n, c.cache_width) @ past.T
        if n > 1:  # token i of the block must not see those behind it
            future = np.triu(np.full((n, n), -np.inf, dtype=np.float32), 1)
            scores.reshape(heads, n, end)[..., position:] += future

        # 4. The value is the latent part of the same records: softmax(scores) @ latents.
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        mean: Array = scores @ past[:, :rank]
        mean /= scores.sum(axis=1, keepdims=True)
        by_token = mean.reshape(heads, n, rank).transpose(1, 0, 2).reshape(n, heads * rank)
        out: Array = by_token @ w.output
        return out


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis."""
    mean: Array = np.mean(x * x, axis=-1, keepdims=True)
    root: Array = np.sqrt(mean + np.float32(eps))
    return x / root * weight


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """RoPE on [..., n, d] with cos and sin [n, d/2]: value i turns together with value i + d/2."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)


def silu(x: Array) -> Array:
    """x * sigmoid(x), by way of tanh, which does not overflow."""
    half: Array = x * np.float32(0.5)
    return half * np.tanh(half) + half


def _ids(tokens: Tokens, vocab: int) -> NDArray[np.int64]:
    """Token ids as int64 [n]; ValueError where one is not in the vocabulary."""
    ids: NDArray[Any] = np.asarray(
        np.frombuffer(tokens, np.uint8) if isinstance(tokens, bytes) else tokens
    )
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"tokens: expected one row of integers, found {ids.dtype} {ids.shape}")
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocab:
        raise ValueError(f"tokens: ids must be 0 to {vocab - 1}")
    return ids.astype(np.int64)
