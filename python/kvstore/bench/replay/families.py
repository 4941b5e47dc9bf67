"""Families of transformers whose windows and states an exact replay makes again."""

from __future__ import annotations

import copy
import tempfile
import warnings
from typing import Any

import torch

import kvstore
from kvstore.bench.replay.subjects import PIECES, random_ids
from kvstore.models.families import toy_model
from kvstore.torch import Policy, PrefixCache

__all__ = ["FAMILIES", "measure_family"]

#: Toys with entries in some layers, and in the others windows or states that depend on a bounded
#: number of tokens.
FAMILIES = (
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gemma4_text",
    "gpt_oss",
    "llama4_text",
    "deepseek_v4",
    "inkling_text",
    "lfm2",
    "lfm3",
    "zaya",
)


def measure_family(family: str, cut: int) -> dict[str, Any]:
    """The first ``cut`` tokens of a prompt, a multiple of the block, stored as entries only and
    replayed: whether the logits of what follows have the live cache's bits, and what it cost."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = toy_model(family, seed=1)
    ids = random_ids(cut + sum(PIECES), 0).clamp(3, 254)  # below and above lie special tokens
    with (
        tempfile.TemporaryDirectory() as folder,
        kvstore.open(folder, host_bytes="64 MiB", disk_bytes="256 MiB", objects=10_000) as store,
    ):
        prefix = PrefixCache(store, model, policy=Policy.never())
        binding, block = prefix.binding, prefix.layout.block_tokens
        with prefix.session(ids[:, : cut + 1], prefill=False, follow=False) as session:
            for _ in range(0, cut, block):
                session.compute(block)
            live = copy.deepcopy(session.cache)
        session.saved.wait(60)
        plan = prefix.namespace.match(ids[0, : cut + 1].numpy())
        cache, usable = prefix.restore(ids[:, : cut + 1])
        layout = prefix.layout
        same, at = True, cut
        with torch.no_grad():
            for tokens in PIECES:
                piece = ids[:, at : at + tokens]
                got, want = (binding.forward(piece, c, at) for c in (cache, live))
                same, at = same and torch.equal(got, want), at + tokens
    return {
        "family": family,
        "mode": plan.mode,
        "cut": cut,
        "usable": usable,
        "recompute_tokens": plan.recompute_tokens,
        "recompute_layer_tokens": plan.recompute_layer_tokens,
        "cold_layer_tokens": (cut + 1) * layout.model_layers,
        "read_bytes": plan.read_bytes,
        "spared_bytes": layout.resume_point_bytes(),
        "equal_bits": same,
    }
