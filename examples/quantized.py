"""Quantised caches (fp8, HQQ, Quanto): the whole cache is kept at resume points.

Their history is quantised anew as it grows, so no block of it could be shared with another prompt.
"""

from common import kept, prompt, small_store, toy_model, two_runs
from kvstore.torch import QuantizedPrefixCache

with small_store() as store:
    model = toy_model("llama")
    prefix = QuantizedPrefixCache(store, model, backend="fp8")
    two_runs(model, prefix, prompt(1000))
    kept(store, prefix)
