"""Multi-head latent attention (DeepSeek-V2, V3, Kimi): one latent and one rope key per token."""

from common import kept, prompt, small_store, toy_model, two_runs
from kvstore.torch import PrefixCache

with small_store() as store:
    model = toy_model("deepseek_v3")
    prefix = PrefixCache(store, model)
    two_runs(model, prefix, prompt(1000))
    kept(store, prefix)
