"""Recurrent state (Qwen3-Next, Kimi-Linear): valid at one token: a checkpoint per resume point."""

from common import kept, prompt, small_store, toy_model, two_runs
from kvstore.torch import PrefixCache

with small_store() as store:
    model = toy_model("qwen3_next")
    prefix = PrefixCache(store, model)
    two_runs(model, prefix, prompt(1000))
    kept(store, prefix)
