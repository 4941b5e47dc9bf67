"""A reference model that has read some text, so that its logits say something.

The models of `kvstore.models.deepseek` come with random weights and compute without gradients. Here
a toy's own `run` is called with gradients on, over rows in float32; what is learned goes into a
model whose rows are the packed records. Picks of an indexer pass no gradient on, so indexers stay
as they are drawn: the model learns to live with the entries that they pick.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvstore.models.deepseek import ReferenceModel, build
from kvstore.models.deepseek.rows import Step
from kvstore.models.demo import corpus, recipe

__all__ = ["bits_per_byte", "corpus_parts", "trained"]

STAGES = ((0.0, 256), (0.8, 1024))
"""(share of the steps at which the stage begins, context in tokens). Beyond the second context
positions are new to the model, but no window is: replay is about windows."""


def corpus_parts() -> tuple[Tensor, Tensor]:
    """(text to train on, text kept apart) as int64 [bytes]: Python's standard library."""
    first, second = corpus.split(corpus.text())
    return torch.tensor(list(first)), torch.tensor(list(second))


def trained(name: str, form: str, steps: int, *, seed: int) -> ReferenceModel:
    """A toy of this architecture after so many steps of training, with rows in ``form``."""
    model = build(name, toy=True, form="fp32", seed=seed)
    _train(model, corpus_parts()[0], steps, seed)
    made = build(name, toy=True, form=form, seed=seed)
    made.load_state_dict(model.state_dict())
    return made


def _train(model: ReferenceModel, data: Tensor, steps: int, seed: int) -> None:
    """Steps of one sequence each."""
    model.requires_grad_(True)
    made = _optimizers(model)
    groups = [group for optimizer in made for group in optimizer.param_groups]
    full = [group["lr"] for group in groups]
    generator = torch.Generator().manual_seed(seed)
    context = 0
    source: Iterator[Tensor] = iter(())
    for done in range(steps):
        wanted = [tokens for share, tokens in STAGES if share <= done / steps][-1]
        if wanted != context:
            context, source = wanted, recipe.windows(data, wanted, generator)
        for group, highest in zip(groups, full, strict=True):
            group["lr"] = highest * recipe.rate(done / steps, done)
        ids = next(source)
        loss = F.cross_entropy(_logits(model, ids[:-1]), ids[1:])
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in made:
            optimizer.step()
            optimizer.zero_grad()
    model.requires_grad_(False)


def _logits(model: ReferenceModel, ids: Tensor) -> Tensor:
    """What the model's forward computes, with gradients: int64 [T] -> [T, vocab]."""
    step = Step(model.new_cache(), 0, len(ids))
    return model.logits(model.run(model.embed(ids), step))


def _optimizers(model: ReferenceModel) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the rest, at the demo model's rates."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        inner = parameter.dim() == 2 and name.startswith("layers.")
        (matrices if inner else others).append(parameter)
    return [
        torch.optim.Muon(matrices, lr=recipe.MATRIX_RATE, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=recipe.OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def bits_per_byte(model: ReferenceModel, data: Tensor, context: int) -> float:
    """Mean of -log2 p over ``data``, in passes of ``context`` tokens that start from nothing."""
    total, count = 0.0, 0
    for start in range(0, len(data) - 1, context):
        part = data[start : start + context + 1]
        logits = model(part[None, :-1])[0]
        total += float(F.cross_entropy(logits, part[1:], reduction="sum"))
        count += len(part) - 1
    return total / math.log(2) / count
