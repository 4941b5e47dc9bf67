"""Sparse attention with an indexer (DeepSeek-V3.2, GLM-5): index keys beside the latents.

Top-k picks flip on rounding: prefill in chunks of one block gives the same rows in every run."""

from common import kept, prompt, small_store, toy_model, two_runs
from kvstore.torch import PrefixCache

with small_store() as store:
    model = toy_model("deepseek_v32")
    prefix = PrefixCache(store, model)
    two_runs(model, prefix, prompt(1000))
    kept(store, prefix)
