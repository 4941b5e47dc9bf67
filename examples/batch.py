"""Prompts of different lengths in one batch, padded on the left, each with a prefix of its own."""

import torch
from common import QUIET, prompt, small_store, toy_model
from kvstore.torch import PrefixCache

system = prompt(500)  # what all prompts begin with
prompts = [torch.cat([system, prompt(n, seed=n)], dim=1) for n in (40, 120, 75)]
longest = max(p.shape[1] for p in prompts)
ids = torch.stack([torch.nn.functional.pad(p[0], (longest - p.shape[1], 0)) for p in prompts])
mask = torch.stack([torch.arange(longest) >= longest - p.shape[1] for p in prompts]).long()

with small_store() as store:
    model = toy_model("llama")
    prefix = PrefixCache(store, model)
    prefix.prefill(system)
    with prefix.batch(ids, mask) as batch:
        out = model.generate(ids, attention_mask=mask, max_new_tokens=16, **QUIET, **batch.kwargs)
    print(f"restored, by prompt: {batch.usable} tokens")
    assert torch.equal(out, prefix.generate(ids, attention_mask=mask, max_new_tokens=16, **QUIET))
    print("the same tokens when all of it is restored")
