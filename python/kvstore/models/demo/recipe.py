"""How the demo model is trained: stages, optimizers, learning rate, and the order of the text."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvstore.models.demo.torch_model import Decoder

__all__ = ["bits_per_byte", "optimizers", "rate", "stage_at", "windows"]

STAGES = ((0.0, 512, 4), (0.58, 1024, 2), (0.70, 2048, 1), (0.78, 4096, 1), (0.88, 8192, 1))
"""(share of the budget at which the stage begins, context in tokens, sequences per step).

Long contexts cost several times more per byte, and positions that training never reaches are noise,
whatever RoPE promises: so they come in the last stretch, up to the model's limit. (The run behind
the committed weights began with later shares, ended at 22 minutes with 1.90 bits/byte at context
8,192, and went on at that context for the last three: `train.log` has both measurements.)"""

MATRIX_RATE, OTHER_RATE = 6e-3, 4e-3
CONSTANT = 0.4
"""Share of the budget at the full learning rate; from there it falls in a line to 2 %."""


def stage_at(share: float) -> tuple[int, int]:
    """(context in tokens, sequences per step) when this share of the budget is spent."""
    _, context, sequences = [stage for stage in STAGES if stage[0] <= share][-1]
    return context, sequences


def rate(share: float, steps: int) -> float:
    """Factor on the learning rates: 20 steps up, level, then down in a line to 2 %."""
    fall = min(1.0, (1.0 - share) / (1.0 - CONSTANT))
    return max(0.02, fall) * min(1.0, (steps + 1) / 20)


def optimizers(model: Decoder) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the embedding and the norms."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        inner = parameter.dim() == 2 and "embed_tokens" not in name
        (matrices if inner else others).append(parameter)
    return [
        torch.optim.Muon(
            matrices, lr=MATRIX_RATE, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def windows(data: Tensor, context: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Windows of context + 1 bytes without end: each pass cuts elsewhere and shuffles anew."""
    while True:
        shift = int(torch.randint(context, (1,), generator=generator))
        count = (len(data) - 1 - shift) // context
        for index in torch.randperm(count, generator=generator).tolist():
            start = shift + index * context
            yield data[start : start + context + 1]


def bits_per_byte(model: Decoder, data: Tensor, context: int) -> float:
    """Mean of -log2 p over all of `data`, cut in windows that each start from nothing (fp32)."""
    model.eval()
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(data) - 1, context):
            part = data[start : start + context + 1]
            logits = model(part[None, :-1])[0]
            total += float(F.cross_entropy(logits.float(), part[1:], reduction="sum"))
    model.train()
    return total / math.log(2) / (len(data) - 1)
