"""Blocks that say who they are: keys and payloads made from block ids, many at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEY_BYTES", "Ids", "keys", "payloads", "wrong_bytes"]

Ids = NDArray[np.uint64]
KEY_BYTES = 16
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, so that different ids stay different


def keys(ids: Ids) -> NDArray[np.uint8]:
    """Keys, uint8 [n, 16], as a serving stack would hand its block hashes over."""
    pairs = np.empty((len(ids), 2), np.uint64)
    pairs[:, 0] = ids
    pairs[:, 1] = ~ids * _SPREAD
    return pairs.view(np.uint8)


def payloads(ids: Ids, size: int) -> NDArray[np.uint8]:
    """Payloads, uint8 [n, size]: word j of a block is its spread id, xor j.

    Two blocks differ in every word, and so do two places of one block.
    """
    places = np.arange(size // 8, dtype=np.uint64)
    words: NDArray[np.uint64] = (ids * _SPREAD)[:, None] ^ places
    return words.view(np.uint8)


def wrong_bytes(found: NDArray[np.uint8], ids: Ids) -> int:
    """Bytes of `found`, uint8 [n, size], that are not their block's payload."""
    expected = payloads(ids, found.shape[1])
    # Words first: it is eight times less to look at, and they nearly always agree.
    if np.array_equal(found.view(np.uint64), expected.view(np.uint64)):
        return 0
    return int(np.count_nonzero(found != expected))
