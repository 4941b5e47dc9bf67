"""A prefix cache with a device pool: what the pool holds is not read from the store again."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

from kvstore.models.families import toy_model  # noqa: E402
from kvstore.torch import PrefixCache  # noqa: E402
from torch_caches import continued, opened, prompt  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_5_text", "deepseek_v4"])
def test_blocks_of_the_pool_are_not_read_again(family: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = toy_model(family)
    ids = prompt(700)
    with opened(tmp_path) as store, torch.no_grad():
        plain = PrefixCache(store, model)
        plain.prefill(ids[:, :400])
        pooled = PrefixCache(store, model, pool_slots=16)
        assert pooled.pool is not None
        given = []
        for _ in range(2):
            before = store.stats()["counters"]["reads_given"]
            cache, usable = pooled.restore(ids[:, :400])
            given.append(store.stats()["counters"]["reads_given"] - before)
            other, same = plain.restore(ids[:, :400])
            assert usable == same == 399 // pooled.layout.block_tokens * pooled.layout.block_tokens
            got = continued(pooled.binding, cache, ids, usable, 400)
            assert torch.equal(got, continued(plain.binding, other, ids, usable, 400))
        blocks = usable // pooled.layout.block_tokens
        assert len(pooled.pool) == blocks
        assert given[0] - given[1] == blocks, "windows and checkpoints are read, bodies are not"
        pooled.close()
