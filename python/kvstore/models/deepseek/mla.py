"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1; unchanged in V3).

Of a token the cache keeps one row of 576 numbers: a normalised latent c of 512, and a rotary key of
64 that all heads share. Keys and values of head i are made from the latent, k_i = W_UK_i c and
v_i = W_UV_i c. The same numbers come out in two ways:

    materialised   keys and values of all heads are expanded from the latents: for few queries dear,
                   for long prefills cheap
    absorbed       q_i . (W_UK_i c) = (W_UK_i^T q_i) . c, so the query goes into the latent's space,
                   the rows themselves are the one key of all heads, and W_UV is applied to the mean

The two agree up to the order of additions.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from kvstore.layouts import Layout
from kvstore.models.deepseek.attention import causal
from kvstore.models.deepseek.model import ReferenceModel, Shape
from kvstore.models.deepseek.parts import Linear, Norm, rotate
from kvstore.models.deepseek.rows import Step

__all__ = ["ROPE", "LatentAttention", "LatentModel", "MlaForm"]

MlaForm = Literal["absorbed", "materialised"]

ROPE = 64
"""Rotary numbers of a row, and of each head's query."""


class LatentAttention(nn.Module):
    """MLA of one layer. `mode` may be changed at any time; the rows are the same."""

    def __init__(self, layer: int, shape: Shape, rank: int) -> None:
        super().__init__()
        hidden, heads, nope, q_rank = shape.hidden, shape.heads, shape.head_dim, shape.hidden
        self.layer, self.heads, self.rank, self.nope = layer, heads, rank, nope
        self.group = "mla"
        self.mode: MlaForm = "absorbed"
        self.query_down = Linear(hidden, q_rank)
        self.query_norm = Norm(q_rank)
        self.query_up = Linear(q_rank, heads * (nope + ROPE))
        self.latent = Linear(hidden, rank + ROPE)
        self.latent_norm = Norm(rank)
        self.key_up = nn.Parameter(torch.empty(heads, nope, rank), requires_grad=False)
        self.value_up = nn.Parameter(torch.empty(heads, nope, rank), requires_grad=False)
        self.out = Linear(heads * nope, hidden)

    def query_latent(self, x: Tensor) -> Tensor:
        """c_Q [T, q_rank], from which the queries are made, the indexer's too."""
        latent: Tensor = self.query_norm(self.query_down(x))
        return latent

    def row(self, x: Tensor, positions: Tensor) -> Tensor:
        """What tokens x [T, hidden] leave in the cache: [T, rank + 64], latent then rotated key."""
        made = self.latent(x)
        latent = self.latent_norm(made[:, : self.rank])
        return torch.cat((latent, rotate(made[:, self.rank :], positions, ROPE)), -1)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self.attend(x, self.query_latent(x), step)

    def attend(self, x: Tensor, c_q: Tensor, step: Step, picks: Tensor | None = None) -> Tensor:
        """Adds the rows of x [T, hidden]; queries made of c_q attend to all rows, or the picked."""
        at = step.positions()
        rows = step.entries(self.group, self.layer, self.row(x, at))
        q = self.query_up(c_q).view(len(x), self.heads, self.nope + ROPE)
        form = self.absorbed if self.mode == "absorbed" else self.materialised
        mixed: Tensor = self.out(form(rotate(q, at, ROPE), rows, at, picks).flatten(1))
        return mixed

    def absorbed(self, q: Tensor, rows: Tensor, at: Tensor, picks: Tensor | None) -> Tensor:
        """q [T, heads, nope + 64] over rows [n, rank + 64] -> values [T, heads, nope]."""
        content = torch.einsum("thn,hnr->thr", q[..., : self.nope], self.key_up)
        wide = torch.cat((content, q[..., self.nope :]), -1)
        latents = rows[:, : self.rank]
        mean = causal(wide, rows[:, None], latents[:, None], at, self.scale, picks)
        return torch.einsum("thr,hnr->thn", mean, self.value_up)

    def materialised(self, q: Tensor, rows: Tensor, at: Tensor, picks: Tensor | None) -> Tensor:
        """The same, with the keys and values of all heads made from the latents first."""
        latents, shared = rows[:, : self.rank], rows[:, self.rank :]
        content = torch.einsum("sr,hnr->shn", latents, self.key_up)
        keys = torch.cat((content, shared[:, None].expand(-1, self.heads, -1)), -1)
        values = torch.einsum("sr,hnr->shn", latents, self.value_up)
        return causal(q, keys, values, at, self.scale, picks)

    @property
    def scale(self) -> float:
        """Of scores: 1 / sqrt(nope + 64), in both forms."""
        return float((self.nope + ROPE) ** -0.5)


class LatentModel(ReferenceModel):
    """V2 and V3: every layer keeps one latent row per token."""

    def __init__(self, layout: Layout, form: str, shape: Shape) -> None:
        group = layout.groups[0]
        super().__init__(
            layout,
            form,
            shape,
            [LatentAttention(i, shape, group.elements - ROPE) for i in group.layers],
        )
