"""PyTorch models on a store: restore a prompt's prefix, compute the rest, keep what is new.

from kvstore.torch import PrefixCache

prefix = PrefixCache(store, model)
with prefix.session(input_ids) as s:
    out = model.generate(input_ids, **s.kwargs)
"""

from kvstore.torch.errors import Unsupported
from kvstore.torch.policy import Policy
from kvstore.torch.prefix import PrefixCache
from kvstore.torch.recorder import Saved
from kvstore.torch.session import Session
from kvstore.torch.weights import fingerprint
from kvstore.torch.whole import QuantizedPrefixCache

__all__ = [
    "Policy",
    "PrefixCache",
    "QuantizedPrefixCache",
    "Saved",
    "Session",
    "Unsupported",
    "fingerprint",
]
