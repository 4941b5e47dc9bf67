"""The lightning indexer: which entries a query looks at (V3.2, arXiv 2512.02556; V4; V4.1).

The score of entry s for the query at t is a weighted sum of ReLU products,

    I(t, s) = sum over heads j of  w_tj * ReLU(q_tj . k_s)

with one key of 128 per entry that all index heads share, the only thing the cache keeps for it (no
sigmoid and no temperature around the sum, though one reads of them). The best `topk`
entries are attended to, the others are not read.

V4.1's hierarchical indexer bounds the work of later layers: the decoder's first one scores all keys
and leaves, as candidates, the blocks of 8 entries that hold the best scores; later ones score the
keys of those blocks only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kvstore.models.deepseek.attention import HIDDEN, query_blocks, seen
from kvstore.models.deepseek.parts import Linear, rotate

__all__ = ["KEY", "POOL_BLOCK", "ROPE", "Indexer", "pool_of", "within"]

KEY = 128
"""Numbers of an index key."""

ROPE = 64
"""Rotary numbers of a key."""

POOL_BLOCK = 8
"""Entries of a candidate block."""


class Indexer(nn.Module):
    """Scores index keys for each query and picks the best."""

    def __init__(self, hidden: int, q_rank: int, heads: int, topk: int) -> None:
        super().__init__()
        self.heads, self.topk = heads, topk
        self.query = Linear(q_rank, heads * KEY)
        self.weight = Linear(hidden, heads)

    def forward(
        self,
        x: Tensor,
        c_q: Tensor,
        positions: Tensor,
        keys: Tensor,
        ratio: int,
        *,
        pool: Tensor | None = None,
        pool_blocks: int | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Picks for tokens x [T, hidden] with query latents c_q [T, q_rank], and their candidates.

        keys [n, 128] are of entries of `ratio` tokens from the first on. pool is int64 [T, blocks],
        the candidate blocks to stay in. Picks are int64 [T, k], -1 where fewer are visible; entries
        that a query does not see yet may be among them. With pool_blocks so many candidate blocks
        per query come with them, int64 [T, pool_blocks]; else None.
        """
        q = rotate(self.query(c_q).view(len(x), self.heads, KEY), positions, ROPE)
        w = self.weight(x) * self.heads**-0.5
        picks = torch.full((len(x), min(self.topk, len(keys))), -1)
        blocks = -(-len(keys) // POOL_BLOCK)
        found = None if pool_blocks is None else torch.full((len(x), min(pool_blocks, blocks)), -1)
        for a, b in query_blocks(len(x)):
            n = min((int(positions[b - 1]) + 1) // ratio, len(keys))
            every = pool is None and found is None and n <= self.topk
            if every:  # nothing to choose from
                picks[a:b, :n] = torch.arange(n)
                continue
            scores = self.scores(q[a:b], w[a:b], keys[:n])
            scores.masked_fill_(~seen(positions[a:b], n, ratio), HIDDEN)
            if found is not None:
                best = pool_of(scores, found.shape[1])
                found[a:b, : best.shape[1]] = best
            if pool is not None:
                scores.masked_fill_(~within(pool[a:b], n), HIDDEN)
            values, best = scores.topk(min(self.topk, n))
            picks[a:b, : best.shape[1]] = best.masked_fill(values == HIDDEN, -1)
        return picks, found

    def scores(self, q: Tensor, w: Tensor, keys: Tensor) -> Tensor:
        """I(t, s) for q [B, heads, 128], w [B, heads] and keys [n, 128]: [B, n]."""
        products = (q.flatten(0, 1) @ keys.T).relu_().mul_(KEY**-0.5)
        return torch.einsum("bh,bhn->bn", w, products.view(*w.shape, -1))


def pool_of(scores: Tensor, blocks: int) -> Tensor:
    """The blocks of 8 entries with the best scores, by their best entry: int64 [B, <= blocks].

    scores is [B, n], -inf for what is not visible; -1 stands for no block.
    """
    rest = -scores.shape[1] % POOL_BLOCK
    padded = nn.functional.pad(scores, (0, rest), value=HIDDEN)
    best = padded.view(len(scores), -1, POOL_BLOCK).amax(-1)
    values, chosen = best.topk(min(blocks, best.shape[1]))
    return chosen.masked_fill(values == HIDDEN, -1)


def within(pool: Tensor, entries: int) -> Tensor:
    """Which of the first `entries` entries are in a pool [B, blocks]: bool [B, entries]."""
    blocks = -(-entries // POOL_BLOCK)
    inside = torch.zeros(len(pool), blocks + 1, dtype=torch.bool)
    inside.scatter_(1, pool.where(pool >= 0, torch.tensor(blocks)), True)
    return inside[:, :blocks].repeat_interleave(POOL_BLOCK, 1)[:, :entries]
