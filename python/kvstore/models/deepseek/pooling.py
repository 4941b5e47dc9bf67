"""Pooling tokens into entries: the compressors of V4 (arXiv 2606.19348, 2.3.1, 2.3.2) and V4.1.

Each token gives two vectors, content and score, and a group of tokens one entry, a single vector
that is key and value: the mean of its tokens' contents, weighted per dimension by the softmax of
their scores.

    CSA    an entry per 4 tokens that pools 8: its own 4 and the 4 before. So each token gives two
           pairs, the first for the entry after its own, the second for its own
    HCA    an entry per 128 tokens, which it pools
    CSA2   V4.1: an entry per 2 tokens, or per token; no overlap, and no bias on the scores

In CSA and HCA a learned bias, by the token's place in its group, is added to the score.

Between passes a compressor keeps its *tail*, float32 rows of (content, score with its bias): the
first halves of the last closed group's tokens, if groups overlap, then both halves of each token of
the open group. A row of the state group is one such half, so at N tokens there are 4 + 2 (N mod 4)
of CSA (from N = 4 on), N mod 128 of HCA, N mod 2 of CSA2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kvstore.models.deepseek.parts import Linear, Norm
from kvstore.models.deepseek.rows import Step

__all__ = ["Compressor"]


class Compressor(nn.Module):
    """Pools `ratio` tokens into an entry of `width`, with the group before when groups overlap."""

    def __init__(
        self, hidden: int, width: int, ratio: int, *, overlap: bool = False, bias: bool = True
    ) -> None:
        super().__init__()
        self.width, self.ratio, self.overlap = width, ratio, overlap
        self.halves = 2 if overlap else 1
        self.content = Linear(hidden, self.halves * width)
        self.score = Linear(hidden, self.halves * width)
        self.bias = (
            nn.Parameter(torch.empty(ratio, self.halves * width), requires_grad=False)
            if bias
            else None
        )
        self.norm = Norm(width)

    def forward(self, x: Tensor, step: Step, tail: str, layer: int) -> tuple[Tensor, Tensor]:
        """Entries of the groups that x [T, hidden] closes: float32 [g, width], normalised.

        With them the position of each one's first token, int64 [g], at which it is to be rotated.
        The state group `tail` is read, and set to what is left at the end of the pass.
        """
        held = self._held(step, tail, layer)
        tokens = torch.cat((held, self.pairs(x, step.positions())))
        closed = self._closed(step.start)
        count = (len(tokens) - closed) // self.ratio
        entries = self.pool(tokens[: closed + count * self.ratio], closed)
        step.set_state(tail, layer, self._left(tokens, step.end))
        first = step.start - step.start % self.ratio
        return entries, first + self.ratio * torch.arange(count)

    def pairs(self, x: Tensor, positions: Tensor) -> Tensor:
        """Content and score of tokens x [T, hidden]: [T, halves, 2, width]."""
        score = self.score(x)
        if self.bias is not None:
            score = score + self.bias[positions % self.ratio]
        shape = (len(x), self.halves, self.width)
        return torch.stack((self.content(x).view(shape), score.view(shape)), 2)

    def pool(self, tokens: Tensor, before: int) -> Tensor:
        """Entries of whole groups: [before + g * ratio, halves, 2, width] -> [g, width].

        The first `before` tokens are the group before, 0 if there is none.
        """
        groups = tokens[before:].unflatten(0, (-1, self.ratio))  # type: ignore[no-untyped-call]
        slots = groups[:, :, -1]
        if self.overlap:
            first = torch.zeros(1, self.ratio, 2, self.width)
            first[:, :, 1] = float("-inf")  # the first group has no tokens before it
            if before:
                first = tokens[None, :before, 0]
            slots = torch.cat((torch.cat((first[: len(groups)], groups[:-1, :, 0])), slots), 1)
        content, score = slots.unbind(2)
        entries: Tensor = self.norm((content * score.softmax(1)).sum(1))
        return entries

    def _closed(self, position: int) -> int:
        """Tokens of the closed group of which the tail has the first halves."""
        return self.ratio if self.overlap and position >= self.ratio else 0

    def _held(self, step: Step, tail: str, layer: int) -> Tensor:
        """The tail as tokens: [closed + open, halves, 2, width], unneeded halves zero."""
        closed, opened = self._closed(step.start), step.start % self.ratio
        rows = step.state(tail, layer).view(-1, 2, self.width)
        held = torch.zeros(closed + opened, self.halves, 2, self.width)
        # A replay begins without a tail. The entries that it would go into are stored already.
        if step.replay and not len(rows):
            return held
        if len(rows) != closed + opened * self.halves:
            raise ValueError(
                f"cache: {len(rows)} rows in group {tail!r}, layer {layer}, "
                f"{closed + opened * self.halves} wanted at {step.start} tokens"
            )
        held[:closed, 0] = rows[:closed]
        held[closed:] = rows[closed:].view(opened, self.halves, 2, self.width)
        return held

    def _left(self, tokens: Tensor, end: int) -> Tensor:
        """The tail at position `end`: rows [n, 2 * width] of the state group."""
        closed, opened = self._closed(end), end % self.ratio
        last = tokens[len(tokens) - closed - opened :]
        first_halves, both = last[:closed, 0], last[closed:].flatten(0, 1)
        return torch.cat((first_halves, both)).flatten(1)
