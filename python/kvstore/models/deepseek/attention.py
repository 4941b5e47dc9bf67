"""Scores, masks and weighted sums, for queries that follow on what a cache holds.

Queries come in blocks of 128, so that no matrix of scores is larger than 128 x heads x entries. A
selection (`picks`) is applied as a mask on the scores of all entries: the numbers are those of a
kernel that gathers the picked entries, and the code is short. The bits of a result depend on the
shapes of the products, hence on where a pass begins and ends, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["QUERY_BLOCK", "causal", "query_blocks", "seen", "windowed"]

QUERY_BLOCK = 128

HIDDEN = float("-inf")


def query_blocks(tokens: int) -> Iterator[tuple[int, int]]:
    """(first, end) of each block of queries."""
    for first in range(0, tokens, QUERY_BLOCK):
        yield first, min(first + QUERY_BLOCK, tokens)


def seen(positions: Tensor, columns: int, ratio: int = 1, picks: Tensor | None = None) -> Tensor:
    """Which of the first `columns` entries each query sees: bool [B, columns].

    An entry of `ratio` tokens is seen from its last token on: the query at t sees the first
    (t + 1) // ratio. picks is int64 [B, k], of entries that were selected, -1 for none.
    """
    visible = torch.arange(columns) < ((positions + 1) // ratio)[:, None]
    if picks is None:
        return visible
    picked = torch.zeros(len(positions), columns + 1, dtype=torch.bool)
    picked.scatter_(1, picks.where(picks >= 0, torch.tensor(columns)), True)
    return visible & picked[:, :columns]


def causal(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    scale: float,
    picks: Tensor | None = None,
) -> Tensor:
    """Attention over the rows of all tokens so far, the queries' own included.

    q is [T, heads, d] at `positions`, k [n, groups, d] and v [n, groups, dv] are of tokens 0 to
    n - 1; heads are split over groups in order. Gives [T, heads, dv].
    """
    heads, groups = q.shape[1], k.shape[1]
    keys, values = k.permute(1, 2, 0), v.transpose(0, 1)
    out = q.new_empty(len(q), heads, v.shape[-1])
    for a, b in query_blocks(len(q)):
        n = int(positions[b - 1]) + 1
        # [groups, B * heads of a group, d]: the heads that share a key are just more rows.
        rows = q[a:b].view(b - a, groups, heads // groups, -1).transpose(0, 1).flatten(1, 2)
        scores = (rows @ keys[..., :n] * scale).view(groups, b - a, heads // groups, n)
        mask = seen(positions[a:b], n, 1, None if picks is None else picks[a:b])
        weights = scores.masked_fill_(~mask[:, None, :], HIDDEN).softmax(-1)
        mean = weights.flatten(1, 2) @ values[:, :n]
        out[a:b] = mean.view(groups, b - a, heads // groups, -1).transpose(0, 1).flatten(1, 2)
    return out


def windowed(
    q: Tensor,
    positions: Tensor,
    rows: Tensor,
    window: int,
    sink: Tensor,
    entries: Tensor | None = None,
    ratio: int = 1,
    picks: Tensor | None = None,
) -> Tensor:
    """One softmax over a sliding window and over pooled entries; a row is both key and value.

    q is [T, heads, d] at `positions`; rows [p, d] are the window rows of the p tokens up to
    the last query's; entries [n, d] are of `ratio` tokens each, from the first token on. sink
    [heads] is a score that takes weight and gives nothing. A query at t sees the rows of
    t - window + 1 to t, as far as there are any, and the entries that `seen` says. Gives
    [T, heads, d].
    """
    tokens, heads, d = q.shape
    first_row = int(positions[-1]) + 1 - len(rows)
    scale = d**-0.5
    out = torch.empty_like(q)
    for a, b in query_blocks(tokens):
        at = positions[a:b]
        low = max(int(at[0]) - window + 1 - first_row, 0)
        near = rows[low : int(at[-1]) + 1 - first_row]
        held = first_row + low + torch.arange(len(near))
        mask = (held <= at[:, None]) & (held > at[:, None] - window)
        keys = near
        if entries is not None:
            columns = min((int(at[-1]) + 1) // ratio, len(entries))
            keys = torch.cat((near, entries[:columns]))
            far = seen(at, columns, ratio, None if picks is None else picks[a:b])
            mask = torch.cat((mask, far), 1)
        scores = (q[a:b].flatten(0, 1) @ keys.T * scale).view(b - a, heads, -1)
        scores.masked_fill_(~mask[:, None, :], HIDDEN)
        sinks = sink.view(1, heads, 1).expand(b - a, heads, 1)
        weights = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]
        out[a:b] = (weights.flatten(0, 1) @ keys).view(b - a, heads, d)
    return out
