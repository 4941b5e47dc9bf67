"""Sliding windows (Gemma-3, gpt-oss, Mistral): the last rows of each resume point, in windows."""

from common import kept, prompt, small_store, toy_model, two_runs
from kvstore.torch import PrefixCache

with small_store() as store:
    model = toy_model("gemma3_text")
    prefix = PrefixCache(store, model)
    two_runs(model, prefix, prompt(1000))
    kept(store, prefix)
