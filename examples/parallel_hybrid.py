"""Parallel hybrids (Falcon-H1): each layer keeps entries and a state."""

from common import kept, prompt, small_store, toy_model, two_runs
from kvstore.torch import PrefixCache

with small_store() as store:
    model = toy_model("falcon_h1")
    prefix = PrefixCache(store, model)
    two_runs(model, prefix, prompt(1000))
    kept(store, prefix)
