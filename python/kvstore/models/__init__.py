"""Small reference models: they compute real caches where no large model is at hand.

`kvstore.models.demo` is the built-in one, with trained weights. Everything here needs numpy and the
standard library only, except the training script `kvstore.models.demo.train` and
`kvstore.models.deepseek`, the attention of each DeepSeek generation, which need torch.
"""

from kvstore.models.mla import MlaDecoder
from kvstore.models.mla_cache import BLOCK_TOKENS, CacheLayout, MlaCache
from kvstore.models.mla_config import MlaConfig
from kvstore.models.mla_weights import MlaWeights

__all__ = ["BLOCK_TOKENS", "CacheLayout", "MlaCache", "MlaConfig", "MlaDecoder", "MlaWeights"]
