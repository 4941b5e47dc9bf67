"""Prefixes of a model's prompts, kept in a store."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import kvstore
from kvstore.errors import InvalidArgument
from kvstore.torch.binding import bind
from kvstore.torch.describe import describe
from kvstore.torch.errors import Unsupported
from kvstore.torch.policy import Policy
from kvstore.torch.pool import DevicePool
from kvstore.torch.reading import read_host, read_pool
from kvstore.torch.recorder import Recorder, Saved
from kvstore.torch.unchanged import signature
from kvstore.torch.weights import fingerprint
from kvstore.types import WeightsKind

if TYPE_CHECKING:
    from kvstore.torch.batch import BatchSession
    from kvstore.torch.session import Session

__all__ = ["PrefixCache"]

#: Token ids: a tensor or array [tokens] or [1, tokens], or a sequence of integers.
Ids = Any


class PrefixCache:
    """The prefixes of one model, kept in a store.

    with prefix.session(input_ids) as s:
        out = model.generate(input_ids, **s.kwargs)

    ``model`` is a causal language model of transformers, or one of `kvstore.models`. What is
    stored is found again by a model with the same weights, configuration, number type, attention
    implementation and adapter, and by no other; `explain` names what differs.

    - weights: a fingerprint (`kvstore.Weights`), or the kind of one to take: "full" (the default),
      "hub", "cached", "sampled". See `kvstore.torch.weights`, also for a name in their place.
    - cache_salt: the tenant's secret.
    - form: number formats of what is stored, a form of the layout: "transformers" keeps the live
      bytes, "vllm:fp8_ds_mla" and the like pack them to fewer bits.
    - block_tokens: tokens of a block (the layout's own: 64, DeepSeek V4 128).
    - chunk_tokens: tokens that a prefill computes at a time, a multiple of block_tokens (one
      block). Rows differ in their last bits with the length of the chunk that they were computed
      in, so only chunks of one block make the rows of a shared prefix independent of what follows.
      Resume points of windows are lost in chunks as long as the window (`Saved.skipped`).
    - policy: which resume points are kept (`Policy.default` of the layout).
    - ack, ttl: those of `Namespace.put`.
    - pool_slots: bodies that a `DevicePool` keeps on the model's device, marked in ``store.mirror``
      under ``worker``: blocks found there are not read from the store again (0: no pool).

    Raises Unsupported for a model whose cache cannot be kept or goes on wrongly.
    """

    def __init__(
        self,
        store: kvstore.Store,
        model: nn.Module,
        *,
        weights: kvstore.Weights | WeightsKind | None = None,
        cache_salt: bytes | str | None = None,
        form: str | None = None,
        block_tokens: int | None = None,
        chunk_tokens: int | None = None,
        policy: Policy | None = None,
        ack: str | None = None,
        ttl: float | None = None,
        deterministic: bool = False,
        pool_slots: int = 0,
        worker: int = 0,
    ) -> None:
        options = {"form": form} if form is not None else {}
        self.binding = bind(model, block_tokens=block_tokens, **options)
        self.model = model
        self.layout = self.binding.layout
        self.policy = policy or Policy.default(self.layout)
        self.chunk_tokens = self._chunk(chunk_tokens)
        self.namespace = self._namespace(
            store, weights, cache_salt=cache_salt, deterministic=deterministic
        )
        self.pool: DevicePool | None = None
        if pool_slots:
            device = self.binding.device
            self.pool = DevicePool(store, self.namespace, pool_slots, device, worker=worker)
        self._signature = signature(self.binding.module)
        self._options: dict[str, Any] = {"ack": ack, "ttl": ttl}

    def _namespace(
        self,
        store: kvstore.Store,
        weights: kvstore.Weights | WeightsKind | None,
        extra: Mapping[str, str] | None = None,
        **options: Any,
    ) -> kvstore.Namespace:
        """The model's namespace, with what else decides the bytes of its cache."""
        if weights is None or isinstance(weights, str):
            weights = fingerprint(self.model, weights)
        described = describe(self.model)
        described["extra"] |= extra or {}
        return store.namespace(
            self.layout,
            weights=weights,
            allow_weights_by_name=weights.kind == "name",
            **described,
            **options,
        )

    def _chunk(self, tokens: int | None) -> int:
        block = self.layout.block_tokens
        if tokens is None:
            return block
        if tokens < block or tokens % block:
            raise InvalidArgument(f"chunk_tokens = {tokens} must be a multiple of {block}")
        return tokens

    def check_unchanged(self) -> None:
        """Raises InvalidArgument when the model is no longer the one that was described."""
        if self.binding.module.training:
            raise InvalidArgument(
                "the model is in training mode, where dropout changes what it computes: call "
                "model.eval()"
            )
        if signature(self.binding.module) != self._signature:
            raise InvalidArgument(
                "the model's weights, adapters or attention implementation were changed since this "
                "PrefixCache was made: make a new one, whose namespace says so"
            )

    def restore(
        self,
        input_ids: Ids,
        *,
        extra_keys: Mapping[int, bytes | Sequence[bytes]] | None = None,
        allow_approximate: bool = False,
    ) -> tuple[Any, int]:
        """A cache that holds the longest stored prefix, and its tokens: (cache, usable).

        At least one token of the prompt is left to compute. The cache owns its tensors. Without a
        usable prefix it is empty and usable is 0. ``allow_approximate`` admits a bounded replay
        and what was stored after one.
        """
        cache, plan = self._restore(self._ids(input_ids), extra_keys, allow_approximate)
        return cache, plan.usable

    def _restore(
        self,
        ids: np.ndarray[Any, np.dtype[np.int64]],
        extra_keys: Mapping[int, bytes | Sequence[bytes]] | None,
        allow_approximate: bool,
    ) -> tuple[Any, kvstore.Plan]:
        self.check_unchanged()
        extra_keys = self._keys(ids, extra_keys)
        read = read_host if self.pool is None else functools.partial(read_pool, self.pool)
        plan, bodies, windows, checkpoint = read(self.namespace, ids, extra_keys, allow_approximate)
        block = self.layout.block_tokens
        again = range(plan.replay_start // block, -(-plan.usable // block))
        keyed = [number for number in extra_keys or () if number in again]
        if keyed:  # computing again has the tokens only, not what the keys stand for
            return self._restore(ids[: min(keyed) * block + 1], extra_keys, allow_approximate)
        if plan.usable == 0:
            return self.binding.new_cache(), plan
        objects = self.binding.objects
        tokens = torch.from_numpy(ids[: plan.usable]).unsqueeze(0).to(self.binding.device)
        if plan.replay_start == plan.usable:
            rows = objects.restored(bodies, windows, checkpoint, plan.usable)
            return self.binding.completed(self.binding.fill(rows, plan.usable), tokens), plan
        rows = objects.restored(bodies, windows, checkpoint, plan.replay_start)
        start, end = plan.replay_start, plan.usable
        with torch.inference_mode(False), torch.no_grad():
            return self.binding.replay(tokens, rows, plan.mode, start, end), plan

    def close(self) -> None:
        """Gives up the device pool, if there is one; what is stored stays."""
        if self.pool is not None:
            self.pool.close()

    def session(self, input_ids: Ids, **options: Any) -> Session:
        """A prompt whose prefix is restored, and whose new blocks are stored as they are computed.

        See `Session` for the options.
        """
        from kvstore.torch.session import Session

        return Session(self, input_ids, **options)

    def batch(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **options: Any,
    ) -> BatchSession:
        """Several prompts [batch, tokens], padded on the left as ``attention_mask`` says, each with
        a stored prefix of its own. See `BatchSession`."""
        from kvstore.torch.batch import BatchSession

        return BatchSession(self, input_ids, attention_mask, **options)

    def generate(self, input_ids: torch.Tensor, **options: Any) -> Any:
        """``model.generate`` with restored prefixes; what is new is stored.

        Raises Unsupported with ``cache_implementation``: generate makes those caches itself.
        """
        kind = self._option(options, "cache_implementation")
        if kind is not None:
            other = ", with a QuantizedPrefixCache" if kind == "quantized" else ""
            raise Unsupported(
                f"cache_implementation = {kind!r}: generate makes such a cache itself, empty; "
                f"leave it out to go on from a stored prefix{other}"
            )
        with self._session_for(input_ids, options) as session:
            return self.model.generate(input_ids, **options, **session.kwargs)  # type: ignore[operator]

    def _option(self, options: Mapping[str, Any], name: str) -> Any:
        """An option of ``generate``: as given, or as the model's configuration has it."""
        config = options.get("generation_config") or getattr(self.model, "generation_config", None)
        return options[name] if name in options else getattr(config, name, None)

    def _session_for(
        self, input_ids: torch.Tensor, options: Mapping[str, Any]
    ) -> Session | BatchSession:
        """The session that ``generate`` with these options wants."""
        sequences = max(
            self._option(options, name) or 1 for name in ("num_beams", "num_return_sequences")
        )
        mask = options.get("attention_mask")
        if not torch.is_tensor(input_ids) or input_ids.ndim != 2:
            raise InvalidArgument("input_ids: a tensor [batch, tokens] wanted, as generate does")
        if input_ids.shape[0] == 1 and (mask is None or bool(mask.all())):
            return self.session(input_ids, sequences=sequences)
        if sequences > 1:
            raise Unsupported(
                f"{sequences} sequences of each of {input_ids.shape[0]} prompts: give the prompts "
                "one by one, without padding"
            )
        return self.batch(input_ids, mask)

    def prefill(
        self,
        input_ids: Ids,
        *,
        extra_keys: Mapping[int, bytes | Sequence[bytes]] | None = None,
    ) -> tuple[Any, torch.Tensor]:
        """Computes a prompt in chunks on top of its stored prefix and stores what is new.

        The cache, and the logits of the last token, [1, vocabulary].
        """
        from kvstore.torch.session import Session

        with Session(self, input_ids, extra_keys=extra_keys, follow=False) as session:
            logits = session.compute(session.prompt - session.length)
        return session.cache, logits

    def save(
        self,
        input_ids: Ids,
        cache: Any,
        *,
        length: int | None = None,
        prompt: int | None = None,
        extra_keys: Mapping[int, bytes | Sequence[bytes]] | None = None,
    ) -> Saved:
        """Stores the whole blocks of a cache of one sequence that holds the first of these tokens.

        ``length`` is how many it holds, to be given where the cache does not count them (all layers
        recurrent; the last token that generate returns was never in it). ``prompt`` is the prompt's
        part of them (all). Windows and states of earlier blocks are no longer in a cache:
        `Saved.skipped` says which resume points are not kept for that; a session, which stores
        while it computes, has them all.

        Raises Unsupported for a cache of another kind than the model makes by itself: static,
        quantised, of another number type.
        """
        ids = self._ids(input_ids)
        counted = self.binding.length(cache)
        if counted is None and length is None:
            raise InvalidArgument(
                "length: the cache does not count its tokens, and a state of other tokens than "
                "input_ids says would be wrong: give how many it holds"
            )
        if length is not None and counted not in (None, length):
            raise InvalidArgument(f"length = {length}: the cache holds {counted} tokens")
        length = counted if length is None else length
        assert length is not None
        if not 0 <= length <= len(ids):
            raise InvalidArgument(f"input_ids has {len(ids)} tokens, the cache holds {length}")
        if length and self.binding.sequences(cache) != 1:
            raise InvalidArgument(
                f"cache: {self.binding.sequences(cache)} sequences, 1 wanted: save them one by one"
            )
        recorder = self.recorder(cache, ids, length=0, prompt=prompt or length, extra=extra_keys)
        recorder.computed(ids[:length].tolist())
        return recorder.finish()

    def recorder(
        self,
        cache: Any,
        ids: np.ndarray[Any, np.dtype[np.int64]],
        *,
        length: int,
        prompt: int,
        extra: Mapping[int, bytes | Sequence[bytes]] | None = None,
        replayed_from: int | None = None,
    ) -> Recorder:
        """A recorder of a cache of which the first ``length`` tokens are stored."""
        self.check_unchanged()

        def put(tokens: Ids, bodies: Any, **items: Any) -> kvstore.Batch:
            self.check_unchanged()
            keys = self._keys(tokens, extra)
            return self.namespace.put(
                tokens, bodies, extra_keys=keys, replayed_from=replayed_from, **items, **options
            )

        options = self._options
        return Recorder(
            self.binding, self.policy, put, cache, ids.tolist(), length=length, prompt=prompt
        )

    def _keys(
        self, ids: Ids, extra: Mapping[int, bytes | Sequence[bytes]] | None
    ) -> dict[int, bytes | Sequence[bytes]] | None:
        """The extra keys of the whole blocks of these tokens: the others come when they end."""
        whole = len(ids) // self.layout.block_tokens
        return {block: key for block, key in extra.items() if block < whole} if extra else None

    def explain(self, input_ids: Ids) -> kvstore.Explanation:
        """Why a prompt hits no more than it does, and what differs from what is stored."""
        return self.namespace.explain(self._ids(input_ids))

    def _ids(self, input_ids: Ids) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Token ids [tokens], from [tokens] or [1, tokens]."""
        if torch.is_tensor(input_ids):
            input_ids = input_ids.detach().cpu().numpy()
        ids = np.asarray(input_ids)
        if ids.ndim == 2 and ids.shape[0] == 1:
            ids = ids[0]
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer) or ids.size == 0:
            raise InvalidArgument(
                f"input_ids: {ids.dtype} of shape {ids.shape} given, integers [tokens] or "
                "[1, tokens] wanted"
            )
        longest = self.binding.longest
        if longest is not None and len(ids) > longest:
            raise Unsupported(
                f"input_ids: {len(ids)} tokens; with this model's positions (dynamic, longrope) "
                f"the rows of more than {longest} depend on the length of the prompt"
            )
        return np.array(ids, np.int64)  # a copy: the caller's may change
