"""Exact replay through a prefix cache: windows and states from stored entries, with live bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

from kvstore.models import deepseek  # noqa: E402
from kvstore.models.families import toy_model  # noqa: E402
from kvstore.torch import Policy, PrefixCache  # noqa: E402
from torch_caches import STEPS, LiveCaches, continued, opened, prompt  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

#: Families whose windows or states are functions of the last tokens, with entries to replay over.
FAMILIES = [
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gemma4_text",
    "gpt_oss",
    "llama4_text",
    "deepseek_v4",
    "lfm2",
    "lfm3",
    "inkling_text",
]
LENGTHS = (1100, 1152, 1153)


def replayed(model: Any, tmp_path: Path, policy: Policy) -> None:
    """Entries are stored (and windows, if the policy says so); what is restored from them continues
    as the live cache does."""
    torch.set_num_threads(1)
    ids = prompt(max(LENGTHS) + sum(STEPS))
    with opened(tmp_path) as store, torch.no_grad():
        prefix = PrefixCache(store, model, policy=policy)
        prefix.prefill(ids[:, : max(LENGTHS)])
        live = LiveCaches(prefix.binding, ids)
        for n in LENGTHS:
            plan = prefix.namespace.match(ids[0, :n].numpy())
            assert plan.mode == "exact_replay"
            assert plan.replay_start < plan.usable
            cache, usable = prefix.restore(ids[:, :n])
            assert usable == (n - 1) // prefix.layout.block_tokens * prefix.layout.block_tokens
            got = continued(prefix.binding, cache, ids, usable, n)
            want = continued(prefix.binding, live.at(usable), ids, usable, n)
            assert torch.equal(got, want), f"length {n}"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_from_entries_alone(family: str, dtype: str, tmp_path: Path) -> None:
    replayed(toy_model(family, dtype), tmp_path, Policy.never())


@pytest.mark.parametrize("form", ["native", "bf16"])
def test_of_a_reference_model(form: str, tmp_path: Path) -> None:
    model = deepseek.build("deepseek-v4-flash", toy=True, form=form)
    replayed(model, tmp_path, Policy.never())


@pytest.mark.parametrize("which", ["transformers", "reference"])
def test_of_a_state_over_stored_windows(which: str, tmp_path: Path) -> None:
    """Windows of every block but no checkpoint: one block back is far enough for V4's tails."""
    model = (
        toy_model("deepseek_v4")
        if which == "transformers"
        else deepseek.build("deepseek-v4-flash", toy=True)
    )
    windows = Policy(prompt_end=False, output_end=False, windows="all")
    replayed(model, tmp_path, windows)
