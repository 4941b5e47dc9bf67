"""Conversations: each turn goes on from everything that the turns before it have stored."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

from kvstore.models.families import TOYS, toy_model  # noqa: E402
from kvstore.torch import PrefixCache  # noqa: E402
from torch_caches import opened, prompt  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

TURNS = 20
QUIET = {"pad_token_id": 0, "eos_token_id": None}


@pytest.mark.parametrize("family", TOYS)
def test_twenty_turns(family: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = toy_model(family, "float32", seed=1)
    ids = prompt(90)
    fed = 0
    for turns in (range(TURNS // 2), range(TURNS // 2, TURNS)):  # the store is opened again between
        with opened(tmp_path) as store, torch.no_grad():
            prefix = PrefixCache(store, model)
            block = prefix.layout.block_tokens
            for turn in turns:
                with prefix.session(ids) as session:
                    assert session.plan.usable == fed // block * block, f"turn {turn}"
                    new = {"max_new_tokens": 11, "do_sample": turn % 2 == 1}
                    mask = torch.ones_like(ids)  # a random model says the pad token, too
                    out = model.generate(ids, attention_mask=mask, **new, **QUIET, **session.kwargs)
                assert session.saved.wait(30)
                assert session.saved.count("rejected") == 0
                assert session.saved.skipped == {}
                fed = out.shape[1] - 1  # the last token was never an input
                ids = torch.cat([out, prompt(21, seed=turn)], dim=1)
