"""Acceptance of V3's drafts by a live cache and by one that was restored."""

from __future__ import annotations

import tempfile
from typing import Any

import kvstore
from kvstore.bench.replay.subjects import random_ids
from kvstore.models.deepseek import build
from kvstore.models.deepseek.mtp import DraftingModel
from kvstore.torch import PrefixCache

__all__ = ["measure_drafts"]


def measure_drafts(seed: int, prompt: int, count: int) -> dict[str, Any]:
    """``count`` greedy tokens behind a prompt, by a live cache and by one from a store: how many of
    the drafts before them were right, and whether the tokens are the same."""
    model = build("deepseek-v3", toy=True, draft=True, seed=seed)
    assert isinstance(model, DraftingModel)
    ids = random_ids(prompt, seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        kvstore.open(folder, host_bytes="64 MiB", disk_bytes="256 MiB", objects=10_000) as store,
    ):
        prefix = PrefixCache(store, model)
        block = prefix.layout.block_tokens
        live = model.new_cache()
        cut = (prompt - 1) // block * block
        for at in range(0, cut, block):
            model(ids[:, at : at + block], live)
        prefix.prefill(ids)
        restored, usable = prefix.restore(ids)
        assert usable == cut
        expected, right = model.generate(ids[:, cut:], live, count)
        found, right_restored = model.generate(ids[:, cut:], restored, count)
    return {
        "seed": seed,
        "prompt": prompt,
        "cut": cut,
        "drafts": count - 1,
        "right_live": right,
        "right_restored": right_restored,
        "same_tokens": found == expected,
    }
