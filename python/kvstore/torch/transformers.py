"""Models of transformers, and the caches that they keep."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from kvstore._core import Group, Layout
from kvstore.models.families import REFUSED
from kvstore.torch.adapters import unwrapped
from kvstore.torch.binding import Binding
from kvstore.torch.errors import Unsupported
from kvstore.torch.live import Field, clone_without, fields_of
from kvstore.torch.objects import Fields, Objects, Place
from kvstore.torch.replaying import answering_stored

__all__ = ["TransformersBinding", "TransformersModel"]

#: Fields with one row per token: padding can stand before them.
_BY_TOKEN = {"keys", "values", "indexer_keys", "idx_keys", "indexer_position_ids"}
#: The names of the cache in forward's arguments, newest first.
_ARGUMENTS = ("cache", "past_key_values", "cache_params")


class TransformersModel(Binding):
    """A causal language model of transformers, whatever cache it is given."""

    def __init__(self, model: nn.Module) -> None:
        model = unwrapped(model)
        self.module = model
        config: Any = getattr(model, "config", None)
        if config is None:
            raise Unsupported(f"{type(model).__name__} has no configuration and is no known model")
        self._config = config.get_text_config(decoder=True)
        kind = str(self._config.model_type)
        if kind in REFUSED:
            raise Unsupported(f"{kind}: {REFUSED[kind]}")
        if getattr(config, "is_encoder_decoder", False):
            raise Unsupported(f"{kind}: caches of encoder-decoder models are not kept")
        parameters = inspect.signature(model.forward).parameters
        self.argument = next((name for name in _ARGUMENTS if name in parameters), "cache")
        self._parameters = frozenset(parameters)

    def length(self, cache: Any) -> int | None:
        try:
            return int(cache.get_seq_length())
        except ValueError:  # a cache without an attention layer does not count
            return None

    def repeat(self, cache: Any, times: int) -> None:
        index = torch.zeros(times, dtype=torch.int64, device=self.device)
        with torch.inference_mode(False):
            cache.reorder_cache(index)

    def forward(self, ids: torch.Tensor, cache: Any, start: int) -> torch.Tensor:
        arguments: dict[str, Any] = {"input_ids": ids, self.argument: cache, "use_cache": True}
        if "position_ids" in self._parameters:  # some models do not add the cache's length
            end = start + ids.shape[1]
            arguments["position_ids"] = torch.arange(start, end, device=ids.device).unsqueeze(0)
        if "logits_to_keep" in self._parameters:
            arguments["logits_to_keep"] = 1
        logits: torch.Tensor = self.module(**arguments).logits
        return logits[:, -1]


class TransformersBinding(TransformersModel):
    """A model with the cache that ``use_cache=True`` makes.

    The model runs once over a few tokens, to see which tensors its layers keep: their types, their
    shapes and what else belongs to a layer are taken from there.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        form: str = "transformers",
        block_tokens: int | None = None,
    ) -> None:
        super().__init__(model)
        dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        self.layout = Layout.from_hf_config(
            model.config, form=form, dtype=dtype, block_tokens=block_tokens
        )
        self.longest = _longest(self._config)
        self._probe = self._run_probe()
        self._fields: dict[Place, list[Field]] = {}
        self.objects = Objects(self.layout, self._like)

    def _run_probe(self) -> Any:
        """A cache of a few tokens: as many as the coarsest entries pool."""
        tokens = max([2, *(group.ratio for group in self.layout.groups)])
        ids = torch.zeros(1, tokens, dtype=torch.int64, device=self.device)
        cache = self._empty()
        with torch.inference_mode(False), torch.no_grad():
            self.forward(ids, cache, 0)
        return cache

    def _like(self, group: Group, layer: int) -> Fields:
        live = self._probe.layers[layer]
        fields = fields_of(group, live)
        self._fields[group.name, layer] = fields
        return [field.rows(live, 0)[:1].cpu() for field in fields]

    def _empty(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self._config)

    def new_cache(self) -> Any:
        return self._empty()

    def sequences(self, cache: Any) -> int:
        (_, layer), (field, *_) = next(iter(self._fields.items()))
        tensor = field.get(self._live(cache, layer))
        return 1 if tensor is None else tensor.shape[field.batch]

    def fields(self, cache: Any, group: Group, layer: int, row: int = 0) -> Fields:
        live = self._live(cache, layer)
        found = [field.rows(live, row) for field in self._fields[group.name, layer]]
        for one, like in zip(found, self.objects.like(group, layer), strict=True):
            if one.dtype != like.dtype or one.shape[1:] != like.shape[1:]:
                raise Unsupported(
                    f"layer {layer} of the cache has rows {list(one.shape[1:])} of {one.dtype}, "
                    f"{list(like.shape[1:])} of {like.dtype} wanted: those of the model as it was "
                    "when its PrefixCache was made"
                )
        return found

    def _live(self, cache: Any, layer: int) -> Any:
        """A layer of a cache, which must be of the kind that the model makes by itself: only of
        that it is known what its tensors hold."""
        live, known = cache.layers[layer], self._probe.layers[layer]
        if type(live) is not type(known):
            raise Unsupported(
                f"layer {layer} of the cache is a {type(live).__name__}, a {type(known).__name__} "
                "wanted: that of DynamicCache(config=...)"
            )
        return live

    def fill(self, rows: Mapping[Place, Fields], length: int) -> Any:
        cache = self._empty()
        device = self.device
        stored = self._fields_by_layer(rows)
        with torch.inference_mode(False):
            for index, layer in enumerate(cache.layers):
                fields = stored.get(index, [])
                self._copy_rest(layer, self._probe.layers[index], fields, length)
            for place, values in rows.items():
                layer = cache.layers[place[1]]
                for field, value in zip(self._fields[place], values, strict=True):
                    field.set(layer, field.tensor(value.to(device)))
            for index, fields in stored.items():
                _alias(cache.layers[index], fields)
        return cache

    def replay(
        self, ids: torch.Tensor, rows: Mapping[Place, Fields], mode: str, start: int, end: int
    ) -> Any:
        block = self.layout.block_tokens
        first = start // block * block  # chunks as they were computed first: the same bits
        kinds = {group.name: group for group in self.layout.groups}
        begin, stored = dict(rows), dict[int, list[tuple[Field, torch.Tensor]]]()
        for place, values in rows.items():
            group = kinds[place[0]]
            if group.kind != "entries":
                continue
            begin[place] = [value[: first // group.ratio] for value in values]
            entries = stored.setdefault(place[1], [])
            for field, value in zip(self._fields[place], values, strict=True):
                entries.append((field, field.tensor(value.to(self.device))))
        for group in self.layout.groups:
            for layer in group.layers if group.kind == "window" else ():
                if (group.name, layer) not in rows:
                    begin[group.name, layer] = self._zeros(group, layer, first)
        cache = self.fill(begin, first)
        with answering_stored(cache.layers, stored):
            for at in range(first, end, block):
                self.forward(ids[:, at : min(at + block, end)], cache, at)
        return cache

    def _zeros(self, group: Group, layer: int, length: int) -> Fields:
        assert group.window is not None
        count = min(length, group.window - 1)
        like = self.objects.like(group, layer)
        return [field.new_zeros(count, *field.shape[1:]) for field in like]

    def _fields_by_layer(self, places: Iterable[Place]) -> dict[int, list[Field]]:
        fields: dict[int, list[Field]] = {}
        for place in places:
            fields.setdefault(place[1], []).extend(self._fields[place])
        return fields

    def _copy_rest(self, layer: Any, live: Any, fields: list[Field], length: int) -> None:
        """Gives an empty layer what a live one has but these fields, after ``length`` tokens."""
        kept = frozenset(id(field.get(live)) for field in fields)
        vars(layer).update({k: clone_without(v, kept) for k, v in vars(live).items()})
        if hasattr(layer, "cumulative_length"):
            layer.cumulative_length = length
        for name in getattr(layer, "entry_count", {}):
            layer.entry_count[name] = length // layer.compress_rate

    def join(self, caches: list[Any], lengths: list[int], columns: int) -> Any:
        joined = self._empty()
        by_layer = self._fields_by_layer(self._fields)
        with torch.inference_mode(False):
            for index, layer in enumerate(joined.layers):
                live = [cache.layers[index] for cache in caches]
                fields = by_layer.get(index, [])
                self._copy_rest(layer, live[0], fields, columns)
                window = getattr(layer, "sliding_window", None)
                rows = columns if window is None else min(columns, window - 1)
                for field in (*fields, *_buffers(live[0])):
                    tensors = [t for t in map(field.get, live) if t is not None]
                    field.set(layer, _padded(field, tensors, rows))
                _alias(layer, fields)
        return joined


def _longest(config: Any) -> int | None:
    """Tokens up to which the keys are rotated in one way: "dynamic" and "longrope" positions take
    other frequencies for all tokens of a longer prompt (``modeling_rope_utils``), and "dynamic"
    ones keep those of the longest prompt so far."""
    rope = getattr(config, "rope_parameters", None) or {}
    parts = [part for part in (rope, *rope.values()) if isinstance(part, dict)]
    limits = [
        int(part.get("original_max_position_embeddings") or config.max_position_embeddings) - 1
        for part in parts
        if part.get("rope_type") in ("dynamic", "longrope")
    ]
    return min(limits, default=None)


def _alias(layer: Any, fields: list[Field]) -> None:
    """One vector is key and value where only keys are kept."""
    names = {field.name for field in fields}
    if "keys" in names and "values" not in names:
        layer.values = layer.keys


def _padded(field: Field, tensors: list[torch.Tensor], rows: int) -> torch.Tensor:
    """The tensors of a field as one batch; those by token have ``rows``, zeros on the left."""
    axis = field.entries
    if axis is None or field.name not in _BY_TOKEN:
        shapes = {tuple(tensor.shape) for tensor in tensors}
        if len(shapes) > 1:
            raise Unsupported(
                f"{field.name}: prompts of different lengths pool their tokens differently and "
                "cannot share a batch; give prompts of one length, or one at a time"
            )
        return torch.cat(tensors, dim=field.batch)
    padded = []
    for tensor in tensors:
        shape = list(tensor.shape)
        shape[axis] = rows - tensor.shape[axis]
        padded.append(torch.cat([tensor.new_zeros(shape), tensor], dim=axis))
    return torch.cat(padded, dim=field.batch)


def _buffers(layer: Any) -> list[Field]:
    """Tokens that wait for their pooling group to fill: nothing of them is left at a block end."""
    return [
        Field(name, key)
        for name in ("buffer_kv", "buffer_gate")
        for key, value in getattr(layer, name, {}).items()
        if value is not None
    ]
