"""Restored caches continue with the bits of live ones, for every family of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

from kvstore.models.families import TOYS, toy_model  # noqa: E402
from torch_caches import (  # noqa: E402
    LONGEST,
    STEPS,
    LiveCaches,
    continued,
    cuts,
    kinds,
    opened,
    prompt,
    stored_everywhere,
)

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

DTYPES = ["float32", "bfloat16"]
#: Families without windows and states: their caches can be cut at any token.
ENTRIES_ONLY = [
    "llama",
    "qwen3",
    "glm4_moe",
    "minimax_m2",
    "minimax_m3_vl_text",
    "deepseek_v2",
    "deepseek_v3",
    "axk1",
    "minicpm3",
    "glm4_moe_lite",
    "longcat_flash",
    "deepseek_v32",
    "glm_moe_dsa",
    "axk2",
    "hy_v4",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", TOYS)
def test_restored_at_every_cut(family: str, dtype: str, tmp_path: Path) -> None:
    """A prompt of n tokens is stored; another call restores it, computes the rest of it in one
    chunk, and goes on for more than a window. The live cache does the same without a store."""
    torch.set_num_threads(1)
    model = toy_model(family, dtype, seed=1)
    ids = prompt(LONGEST + sum(STEPS))
    with opened(tmp_path) as store, torch.no_grad():
        prefix = stored_everywhere(store, model)
        block = prefix.layout.block_tokens
        assert (kinds(prefix) == {"entries"}) == (family in ENTRIES_ONLY)
        prefix.prefill(ids[:, :LONGEST])
        live = LiveCaches(prefix.binding, ids)
        for n in cuts(seed=2):
            cache, usable = prefix.restore(ids[:, :n])
            assert usable == (n - 1) // block * block
            got = continued(prefix.binding, cache, ids, usable, n)
            want = continued(prefix.binding, live.at(usable), ids, usable, n)
            assert torch.equal(got, want), f"cut {n}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ENTRIES_ONLY)
def test_entries_cut_out_of_a_longer_chunk(family: str, dtype: str, tmp_path: Path) -> None:
    """A cache that was prefilled in one chunk is saved; its restored prefixes are what slices of
    the live cache are. Only entries can be sliced: windows and states belong to a token."""
    torch.set_num_threads(1)
    model = toy_model(family, dtype, seed=1)
    ids = prompt(LONGEST + sum(STEPS))
    with opened(tmp_path) as store, torch.no_grad():
        prefix = stored_everywhere(store, model)
        binding, block = prefix.binding, prefix.layout.block_tokens
        whole = binding.new_cache()
        binding.forward(ids[:, :LONGEST], whole, 0)
        saved = prefix.save(ids[:, :LONGEST], whole)
        assert (saved.tokens, saved.skipped) == (LONGEST // block * block, {})
        for n in cuts(seed=3):
            cache, usable = prefix.restore(ids[:, :n])
            assert usable == (n - 1) // block * block
            rows = binding.rows(whole, "entries")
            cut = {place: [field[:usable] for field in fields] for place, fields in rows.items()}
            sliced = binding.fill(cut, usable) if usable else binding.new_cache()
            got = continued(binding, cache, ids, usable, n)
            assert torch.equal(got, continued(binding, sliced, ids, usable, n)), f"cut {n}"
