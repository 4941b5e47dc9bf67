"""Models whose caches have the true geometry of an architecture, and little else."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kvstore._core import Layout
from kvstore.models import deepseek
from kvstore.models.deepseek.layouts import forms_of, layout_of
from kvstore.models.families import REFUSED
from kvstore.models.geometry import GEOMETRIES, true_geometry

__all__ = ["LONGEST", "Made", "lacking", "make"]

#: What is cut down beside what `deepseek.build` cuts: nothing of it touches a stored byte.
_SHAPE: dict[str, Any] = {"hidden": 64, "heads": 1, "index_heads": 2, "topk": 64, "pool_blocks": 64}
_SEED = 0
#: Tokens that transformers computes in minutes where it has a recurrence in plain PyTorch only.
LONGEST = {"kimi-k3": 64}
#: Families of transformers whose caches cannot be restored.
_REFUSED = {"minimax-text-01": REFUSED["minimax"]}


@dataclass(frozen=True, slots=True)
class Made:
    """A model, the form in which `PrefixCache` stores its cache, and what it is."""

    model: nn.Module
    form: str
    words: str
    #: Whether the form keeps the live rows as they are. Others pack them to fewer bits.
    exact: bool


def lacking(name: str) -> str | None:
    """Why there is no model of an architecture of the registry; None where there is one."""
    if name in deepseek.NAMES or name in GEOMETRIES:
        return None
    if name in _REFUSED:
        return _REFUSED[name]
    return "transformers has no causal model of it, and there is no reference model"


def make(name: str, layout: Layout) -> Made:
    """A model of an architecture of the registry whose objects are those of a layout of it: the
    same weights for the same arguments.

    A reference model where one keeps the layout's records itself, else a model of transformers in
    bf16. Not every one of those can be kept in every form: `PrefixCache` says so.
    """
    if name in deepseek.NAMES:
        for form in forms_of(name):
            if _bytes(layout_of(name, form)) == _bytes(layout):
                return _reference(name, form, layout)
    return _transformers(name, layout.form)


def _bytes(layout: Layout) -> tuple[int, ...]:
    return (
        layout.block_tokens,
        layout.body_bytes,
        layout.window_bytes,
        layout.checkpoint_bytes,
    )


def _reference(name: str, form: str, layout: Layout) -> Made:
    # Keys per head want query heads in groups.
    per_head = any(group.heads for group in layout.groups)
    shape = {k: v for k, v in _SHAPE.items() if k != "heads" or not per_head}
    model = deepseek.build(name, form=form, seed=_SEED, **shape)
    words = ", ".join(
        f"{field} {value}" for field, value in dataclasses.asdict(model.shape).items()
    )
    return Made(model, form, f"reference model, {form}: {words}", exact=True)


def _transformers(name: str, form: str) -> Made:
    import transformers

    config = true_geometry(name)
    causal: Any = transformers.AutoModelForCausalLM
    torch.manual_seed(_SEED)
    model = causal.from_config(config, dtype=torch.bfloat16).eval()
    words = [f"{what} {getattr(config, what)}" for what in _CUT if hasattr(config, what)]
    what = f"transformers {transformers.__version__}, {config.model_type}: {', '.join(words)}"
    return Made(model, form, what, exact=form == "transformers")


#: Fields of configurations that are cut down, as far as a model has them.
_CUT = ("hidden_size", "num_attention_heads", "num_local_experts", "n_routed_experts", "vocab_size")
