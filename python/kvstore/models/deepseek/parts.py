"""What every generation shares: norm, rotary positions, a feed-forward block, seeded weights."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

__all__ = ["FeedForward", "Linear", "Norm", "rotate", "seed_weights", "unit"]

ROPE_THETA = 10_000.0
"""One base for all rotations; the released models stretch theirs for long contexts (YaRN)."""

EPS = 1e-6


class Linear(nn.Module):
    """x [..., inputs] @ weight [outputs, inputs] transposed, without a bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


def unit(x: Tensor) -> Tensor:
    """x over its root mean square along the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


class Norm(nn.Module):
    """RMSNorm over the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return unit(x) * self.weight


class FeedForward(nn.Module):
    """A small dense SwiGLU block. It stands in for the experts, which touch no cache."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate = Linear(hidden, inner)
        self.up = Linear(hidden, inner)
        self.down = Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        inner = nn.functional.silu(self.gate(x)) * self.up(x)
        return cast(Tensor, self.down(inner))


def rotate(x: Tensor, positions: Tensor, width: int, *, inverse: bool = False) -> Tensor:
    """RoPE on the last `width` values of x [n, ..., d]: values 2j and 2j + 1 turn as a pair.

    positions is int64 [n]. inverse=True turns back: outputs of attention whose values were rotated
    keys are turned by the query's position, so that only the distance is left in them.
    """
    turn = ROPE_THETA ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = positions.double()[:, None] * turn
    shape = (len(positions), *[1] * (x.ndim - 2), width // 2)
    cos = angle.cos().float().view(shape)
    sin = (-angle if inverse else angle).sin().float().view(shape)
    even, odd = x[..., -width::2], x[..., 1 - width :: 2]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)
    return torch.cat((x[..., :-width], turned), -1)


def seed_weights(model: nn.Module, seed: int, layers: int) -> None:
    """Fills all matrices with normal numbers of variance 1 / inputs, reproducibly.

    What adds to the residual stream, twice a layer, is smaller by sqrt(2 * layers), so that it
    stays in bounds however deep the model is. Vectors (norms, sinks) keep their values.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            adds = name.endswith((".out.weight", ".feed.down.weight"))
            inputs = weight.shape[-1] * (2 * layers if adds else 1)
            weight.data.normal_(0.0, inputs**-0.5, generator=generator)
