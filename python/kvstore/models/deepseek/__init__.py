"""Small models of each DeepSeek generation's attention in PyTorch, to be read beside the papers.

    >>> from kvstore.models import deepseek
    >>> model = deepseek.build("deepseek-v3", toy=True)
    >>> cache = model.new_cache()
    >>> model(torch.tensor([[1, 2, 3]]), cache).shape, cache.length
    (torch.Size([1, 3, 256]), 3)

They compute real caches: row for row the bytes that the layout registry accounts for, from random
weights. To be read in this order, each file a step of the way from 491,520 bytes per token to 890:

    heads      DeepSeek LLM    keys and values per head: MHA, GQA
    mla        V2, V3          one latent for all heads, in two equal forms
    mtp        V3              a head that drafts the token after next
    index      V3.2, V4, V4.1  the lightning indexer, and V4.1's candidate pool
    dsa        V3.2            latents of picked tokens only
    pooling    V4, V4.1        entries of several tokens, and what a compressor holds between passes
    shared     V4, V4.1        rows that are key and value in one, window and entries in one softmax
    v4         V4              CSA and HCA, layer by layer
    v41        V4.1-Flash      four owners for forty layers, encoder and decoder

`rows` is the cache, `records` its bytes, `model` the layers and replay, `build` the way in.

What touches no cache is cut down or left out: hidden size and query heads; experts (a small dense
block stands in); hyper-connections; Engram, and with it the 3 token ids before a replay; the
grouped output projection; the Hadamard rotation of index queries and keys; the stretching of
positions for long contexts. V4.1's and V3.2's index keys are normalised and turned as V4's are.
"""

from kvstore.models.deepseek.build import NAMES, build
from kvstore.models.deepseek.model import ReferenceModel, Shape
from kvstore.models.deepseek.rows import RowCache

__all__ = ["NAMES", "ReferenceModel", "RowCache", "Shape", "build"]
