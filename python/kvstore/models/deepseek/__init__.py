"""Small models of each DeepSeek generation's attention in PyTorch, to be read beside the papers.

    >>> from kvstore.models import deepseek
    >>> model = deepseek.build("deepseek-v3", toy=True)
    >>> cache = model.new_cache()
    >>> model(torch.tensor([[1, 2, 3]]), cache).shape, cache.length
    (torch.Size([1, 3, 256]), 3)

They compute real caches: row for row the bytes that the layout registry accounts for, from random
weights. What touches no cache is cut down or left out: hidden size, query heads, experts (a small
dense block stands in), hyper-connections, Engram, long-context stretching of positions.
"""

from kvstore.models.deepseek.build import NAMES, build
from kvstore.models.deepseek.model import ReferenceModel, Shape
from kvstore.models.deepseek.rows import RowCache

__all__ = ["NAMES", "ReferenceModel", "RowCache", "Shape", "build"]
