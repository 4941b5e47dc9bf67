"""Building a reference model by the name of its architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvstore.layouts import Layout
from kvstore.models.deepseek.dsa import SparseLatentModel
from kvstore.models.deepseek.heads import HeadModel
from kvstore.models.deepseek.layouts import TOYS, layout_of
from kvstore.models.deepseek.mla import LatentModel
from kvstore.models.deepseek.model import ReferenceModel, Shape
from kvstore.models.deepseek.mtp import DraftingModel
from kvstore.models.deepseek.parts import seed_weights
from kvstore.models.deepseek.v4 import PooledModel
from kvstore.models.deepseek.v41 import EncoderDecoder

__all__ = ["NAMES", "build", "default_form"]

NAMES = tuple(TOYS)
"""Architectures that can be built, oldest first, by their names in the layout registry."""

#: What the released models have of `Shape` and the cut-down models keep.
_TRUE: dict[str, dict[str, int]] = {
    "deepseek-llm-7b": {"heads": 32},
    "deepseek-llm-67b": {"heads": 16},
    "deepseek-v3.2": {"topk": 2048},
    "deepseek-v4-pro": {"topk": 1024},
    "deepseek-v4-flash": {"topk": 512},
    "deepseek-v4.1-flash": {"topk": 512},
}
_TOY = {
    "hidden": 64,
    "head_dim": 32,
    "index_heads": 16,
    "topk": 8,
    "pool_blocks": 4,
    "reindex_every": 2,
}

#: By the last group that tells the family.
_FAMILIES: dict[str, Callable[[Layout, str, Shape], ReferenceModel]] = {
    "kv": HeadModel,
    "mla": LatentModel,
    "mtp-mla": DraftingModel,
    "index": SparseLatentModel,
    "csa": PooledModel,
    "r1": EncoderDecoder,
}


def default_form(name: str) -> str:
    """The precision in which an architecture's makers keep its cache.

    V2's and V3's packed records came later, with V3.2's kernels: theirs is bf16.
    """
    return "native" if NAMES.index(name) >= NAMES.index("deepseek-v3.2") else "bf16"


def build(
    name: str,
    *,
    toy: bool = False,
    form: str | None = None,
    draft: bool = False,
    seed: int = 0,
    **shape: Any,
) -> ReferenceModel:
    """A model of one architecture with random weights, the same for the same arguments.

    name is one of `NAMES`. toy=True has fewer layers and picks fewer entries; rows, ratios and
    windows are the true ones either way. form is the precision of stored rows: "native", "bf16" or
    "fp32", by default what `default_form` says. draft=True adds V3's prediction head, a
    `DraftingModel`. shape are fields of `Shape`: widths and counts that
    touch no row.

    ValueError for an unknown name, or a form that the architecture does not have.
    """
    if name not in NAMES:
        raise ValueError(f"name: {name!r} given, one of {', '.join(NAMES)} wanted")
    form = default_form(name) if form is None else form
    if draft and name != "deepseek-v3":
        raise ValueError(f"draft: True given for {name}, only deepseek-v3 has a draft head here")
    layout = layout_of(name, form, toy=toy, draft=draft)
    sizes = _TRUE.get(name, {}) | (_TOY if toy else {}) | shape
    family = next(_FAMILIES[g.name] for g in layout.groups[::-1] if g.name in _FAMILIES)
    model = family(layout, form, replace(Shape(), **sizes))
    seed_weights(model, seed, len(model.layers))
    return model.eval()
