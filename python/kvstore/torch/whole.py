"""Prefixes of a model with a quantised cache: the whole cache is kept at each resume point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import kvstore
from kvstore.torch.batch import BatchSession
from kvstore.torch.errors import Unreadable, Unsupported
from kvstore.torch.policy import Policy
from kvstore.torch.prefix import PrefixCache
from kvstore.torch.quantized import MARK, QuantizedBinding
from kvstore.torch.recorder import Recorder
from kvstore.torch.serial import encode
from kvstore.types import WeightsKind

__all__ = ["QuantizedPrefixCache"]

_Ids = np.ndarray[Any, np.dtype[np.int64]]
_ExtraKeys = Mapping[int, bytes | Sequence[bytes]]


class _Recorder(Recorder):
    """A recorder whose checkpoints are whole caches.

    One that may still be asked for is kept as the cache's own tensors; it becomes bytes when it is
    stored.
    """

    _binding: QuantizedBinding

    def __init__(
        self,
        prefix: QuantizedPrefixCache,
        extra: _ExtraKeys | None,
        cache: Any,
        ids: _Ids,
        *,
        length: int,
        prompt: int,
    ) -> None:
        super().__init__(
            prefix.binding,
            prefix.policy,
            prefix.namespace.put,
            cache,
            ids.tolist(),
            length=length,
            prompt=prompt,
        )
        self._prefix, self._extra = prefix, extra
        #: Tokens of the last resume point, under which the next one hangs.
        self._last = length

    def _checkpoint(self) -> Any:
        return self._binding.snapshot(self.cache)

    def _put_objects(
        self,
        end: int,
        bodies: torch.Tensor | None,
        windows: dict[int, torch.Tensor],
        checkpoints: dict[int, Any],
    ) -> None:
        for point, tree in sorted(checkpoints.items()):
            ids = np.asarray(self._ids[:point], np.int64)
            self.saved.batches += self._prefix.put_whole(ids, tree, self._last, self._extra)
            self._last = point


class QuantizedPrefixCache(PrefixCache):
    """The prefixes of one model whose cache is quantised, kept in a store.

    prefix = QuantizedPrefixCache(store, model, backend="hqq", nbits=4)
    out = prefix.generate(input_ids)

    Two prompts cannot share blocks of such a cache (see `kvstore.torch.quantized`), so each resume
    point of the policy is one object: the whole cache at that block end, byte for byte, under the
    key of the prefix. It is as large as the cache, so points are few by default: prompt end and
    output end. A checkpoint of a few bytes marks the point, which is what is looked up and what
    `explain` goes by; where the whole cache is gone or cannot be read, the point before it is used.

    How a prompt was cut into chunks decides the scales, and so does a first chunk that was shorter
    than a block: what is restored is what was computed for these tokens first. ``chunk_tokens`` is
    part of what must be equal.

    - backend: "fp8", "hqq" (package hqq) or "quanto" (package optimum-quanto, which builds its
      kernels at first use and needs ninja and a C++ compiler for that).
    - settings: nbits, axis_key, axis_value, q_group_size, residual_length, as in ``cache_config``
      of generate; fp8 has none.
    - The others are those of `PrefixCache`.

    Raises Unsupported for a model with other than full-attention layers, InvalidArgument for
    settings that the backend does not have.
    """

    binding: QuantizedBinding

    def __init__(
        self,
        store: kvstore.Store,
        model: nn.Module,
        *,
        backend: str = "fp8",
        weights: kvstore.Weights | WeightsKind | None = None,
        cache_salt: bytes | str | None = None,
        block_tokens: int | None = None,
        chunk_tokens: int | None = None,
        policy: Policy | None = None,
        ack: str | None = None,
        ttl: float | None = None,
        deterministic: bool = False,
        **settings: Any,
    ) -> None:
        self.binding = QuantizedBinding(
            model, backend=backend, block_tokens=block_tokens, settings=settings
        )
        self.model = model
        self.layout = self.binding.layout
        self.policy = policy or Policy()
        self.chunk_tokens = self._chunk(chunk_tokens)
        self.namespace = self._namespace(
            store,
            weights,
            self.binding.describe() | {"chunk_tokens": str(self.chunk_tokens)},
            cache_salt=cache_salt,
            deterministic=deterministic,
        )
        self._options = {"ack": ack, "ttl": ttl}

    def batch(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **options: Any,
    ) -> BatchSession:
        """Raises Unsupported: caches with scales of their own cannot be joined."""
        raise Unsupported(
            "quantised caches have scales of their own and cannot be joined: give the prompts one "
            "by one, without padding"
        )

    def _restore(
        self, ids: _Ids, extra_keys: _ExtraKeys | None, allow_approximate: bool
    ) -> tuple[Any, kvstore.Plan]:
        """The newest resume point whose cache can be read."""
        while True:
            plan = self.namespace.match(ids, extra_keys, allow_approximate=allow_approximate)
            plan = self.namespace.get_into(plan, bytearray(plan.read_bytes))
            if plan.usable == 0:
                return self.binding.new_cache(), plan
            ids = ids[: plan.usable]
            extra_keys = self._within(ids, extra_keys)
            cache = self._read(ids, extra_keys)
            if cache is not None:
                return cache, plan

    def _within(self, ids: _Ids, extra_keys: _ExtraKeys | None) -> _ExtraKeys | None:
        """The extra keys of these whole blocks."""
        blocks = len(ids) // self.layout.block_tokens
        return extra_keys and {b: key for b, key in extra_keys.items() if b < blocks}

    def _read(self, ids: _Ids, extra_keys: _ExtraKeys | None) -> Any:
        """The cache that holds these whole blocks; None when it is not there or is not one."""
        with self.namespace.keyed.lease([self._key(ids, extra_keys)]) as lease:
            if len(lease) == 0:
                return None
            parts = [np.frombuffer(memoryview(part), np.uint8) for part in lease.parts(0)]
            whole = torch.from_numpy(np.concatenate(parts))
        try:
            return self.binding.fill({("whole", 0): [whole.unsqueeze(0)]}, len(ids))
        except Unreadable:
            return None

    def _key(self, ids: _Ids, extra_keys: _ExtraKeys | None) -> bytes:
        """The key of the last block of these whole ones."""
        return self.namespace.keys(ids, extra_keys)[-32:]

    def put_whole(
        self, ids: _Ids, tree: Any, before: int, extra_keys: _ExtraKeys | None
    ) -> list[kvstore.Batch]:
        """Stores a snapshot of the cache after these tokens, whole blocks, under that of its first
        ``before`` ones, and then its mark, unless it was refused."""
        extra_keys = self._within(ids, extra_keys)
        parent: int | bytes = -1
        if before:
            parent = self._key(ids[:before], self._within(ids[:before], extra_keys))
        key, whole = self._key(ids, extra_keys), encode(tree).numpy()
        kept = self.namespace.keyed.put([key], [whole], parents=[parent], **self._options)
        status = kept.status[0]
        if not status.accepted and status.name != "pending":
            return [kept]
        mark = {len(ids): MARK}
        marked = self.namespace.put(
            ids, None, checkpoints=mark, extra_keys=extra_keys, **self._options
        )
        return [kept, marked]

    def recorder(
        self,
        cache: Any,
        ids: _Ids,
        *,
        length: int,
        prompt: int,
        extra: _ExtraKeys | None = None,
        replayed_from: int | None = None,
    ) -> Recorder:
        """A recorder of a cache of which the first ``length`` tokens are stored."""
        return _Recorder(self, extra, cache, ids, length=length, prompt=prompt)
