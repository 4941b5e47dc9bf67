"""The cache of the MLA decoder, laid out so that one token block is one contiguous run of bytes.

Attention needs two things of each past token and layer, and no more, whatever the number of heads:
the *latent* (kv_lora_rank values, after its RMSNorm) and the *rope key* (qk_rope_head_dim values,
already turned by the token's position). Both are kept as bfloat16, one after the other:

    record   one token in one layer      [latent 128 bytes | rope key 64 bytes]  = 192 bytes
    page     one block in one layer      64 records                              = 12,288 bytes
    body     one block, all layers       pages by ascending layer                = layers x 12,288

(the sizes are those of the demo model). A body is what the store keeps under a block's key. Since
attention reads these very bytes, also in the run that computed them, a cache restored from bodies
continues with the same bits as the live one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvstore.models.bf16 import bf16_to_f32, f32_to_bf16
from kvstore.models.mla_config import MlaConfig

__all__ = ["BLOCK_TOKENS", "CacheLayout", "MlaCache"]

BLOCK_TOKENS = 64
"""Tokens per block: the unit of storing, of restoring, and of one prefill step."""


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """What an accountant must know of the cache; it has one group."""

    layers: int
    record_bytes: int
    """Bytes of one token in one layer."""
    group: str = "mla"
    kind: str = "entries"
    """Each token's record is needed from token 0 on (no window, no state)."""
    block_tokens: int = BLOCK_TOKENS

    @classmethod
    def of(cls, config: MlaConfig) -> CacheLayout:
        return cls(layers=config.num_hidden_layers, record_bytes=2 * config.cache_width)

    @property
    def page_bytes(self) -> int:
        return self.block_tokens * self.record_bytes

    @property
    def body_bytes(self) -> int:
        return self.layers * self.page_bytes

    @property
    def bytes_per_token(self) -> int:
        return self.layers * self.record_bytes


class MlaCache:
    """Room for `capacity` tokens (rounded up to whole blocks), of which `length` are filled."""

    def __init__(self, config: MlaConfig, capacity: int | None = None) -> None:
        wanted = config.max_position_embeddings if capacity is None else capacity
        if not 0 < wanted <= config.max_position_embeddings:
            raise ValueError(
                f"capacity {wanted}: the model has positions 1 to {config.max_position_embeddings}"
            )
        self.layout = CacheLayout.of(config)
        self.length = 0
        """Tokens that are in the cache, counted from the prompt's first."""
        blocks = -(-wanted // BLOCK_TOKENS)
        self._bits = np.zeros(
            (blocks, config.num_hidden_layers, BLOCK_TOKENS, config.cache_width), dtype=np.uint16
        )

    @property
    def capacity(self) -> int:
        return len(self._bits) * BLOCK_TOKENS

    def write(self, layer: int, position: int, records: NDArray[np.float32]) -> None:
        """Round records, float32 [n, cache_width], to bfloat16 and keep them from `position` on.

        They must lie in one block. `length` is left to the caller: it moves when all layers are in.
        """
        block, row = divmod(position, BLOCK_TOKENS)
        self._bits[block, layer, row : row + len(records)] = f32_to_bf16(records)

    def read(self, layer: int, end: int) -> NDArray[np.float32]:
        """What attention sees in a layer: records 0 to end-1, float32 [end, cache_width]."""
        blocks = -(-end // BLOCK_TOKENS)
        wide = bf16_to_f32(self._bits[:blocks, layer])
        return wide.reshape(blocks * BLOCK_TOKENS, -1)[:end]

    def body(self, block: int) -> NDArray[np.uint8]:
        """The body of a full block: a read-only view, uint8 [body_bytes], of the cache's memory."""
        if not 0 <= block < self.length // BLOCK_TOKENS:
            raise IndexError(f"block {block}: {self.length // BLOCK_TOKENS} blocks are full")
        body: NDArray[np.uint8] = self.bodies(block, block + 1)[0]
        return body

    def bodies(self, first_block: int, end_block: int) -> NDArray[np.uint8]:
        """The bodies of full blocks first to end-1: a read-only view, uint8 [n, body_bytes]."""
        full = self.length // BLOCK_TOKENS
        if not 0 <= first_block <= end_block <= full:
            raise IndexError(f"blocks {first_block} to {end_block}: {full} blocks are full")
        pages = self._bits[first_block:end_block].view(np.uint8)
        view = pages.reshape(end_block - first_block, self.layout.body_bytes)
        view.flags.writeable = False
        return view

    def load_bodies(self, first_block: int, bodies: ArrayLike) -> None:
        """Copy bodies, uint8 [n, body_bytes] (or one, [body_bytes]), in as blocks first, first+1...

        Blocks before the first must be there (a prefix has no holes). What lay behind the last one
        loaded is dropped: `length` becomes the end of that block.
        """
        array = np.ascontiguousarray(bodies)
        if array.dtype != np.uint8 or array.shape[-1:] != (self.layout.body_bytes,):
            raise ValueError(
                f"bodies: expected uint8 [n, {self.layout.body_bytes}], "
                f"found {array.dtype} {list(array.shape)}"
            )
        count = array.size // self.layout.body_bytes
        if not 0 <= first_block <= self.length // BLOCK_TOKENS:
            raise ValueError(f"block {first_block} would leave a hole behind {self.length} tokens")
        if first_block + count > len(self._bits):
            raise ValueError(f"{first_block + count} blocks: there is room for {len(self._bits)}")
        target = self._bits[first_block : first_block + count]
        target[...] = array.view(np.uint16).reshape(target.shape)
        self.length = (first_block + count) * BLOCK_TOKENS
