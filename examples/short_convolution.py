"""Short convolutions (LFM2): a state so short that it is computed again rather than stored."""

from common import kept, prompt, small_store, toy_model, two_runs
from kvstore.torch import Policy, PrefixCache

with small_store() as store:
    model = toy_model("lfm2")
    prefix = PrefixCache(store, model, policy=Policy.never())  # no checkpoints: replay instead
    two_runs(model, prefix, prompt(1000))
    kept(store, prefix)
