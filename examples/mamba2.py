"""Mamba-2: nothing but state. A prompt goes on from its last checkpoint."""

from common import kept, prompt, small_store, toy_model, two_runs
from kvstore.torch import PrefixCache

with small_store() as store:
    model = toy_model("mamba2")
    prefix = PrefixCache(store, model)
    two_runs(model, prefix, prompt(1000))
    kept(store, prefix)
