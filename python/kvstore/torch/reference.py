"""The reference models of `kvstore.models`, whose caches are rows by group and layer already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from kvstore._core import Group
from kvstore.errors import InvalidArgument
from kvstore.models.deepseek import ReferenceModel, RowCache
from kvstore.models.deepseek.mtp import DraftingModel
from kvstore.torch.binding import Binding
from kvstore.torch.objects import Fields, Objects, Place

__all__ = ["ReferenceBinding"]


class ReferenceBinding(Binding):
    """A `ReferenceModel`: its own layout, its own form, and both kinds of replay."""

    argument = "cache"

    def __init__(
        self, model: nn.Module, *, form: str | None = None, block_tokens: int | None = None
    ) -> None:
        assert isinstance(model, ReferenceModel)
        self.module = self._model = model
        self.layout = model.layout
        for name, given, own in (
            ("form", form, model.form),
            ("block_tokens", block_tokens, model.layout.block_tokens),
        ):
            if given is not None and given != own:
                raise InvalidArgument(f"{name} = {given!r}: the model was built with {own!r}")
        self._empty = model.new_cache()
        self.objects = Objects(self.layout, self._like)

    def _like(self, group: Group, layer: int) -> Fields:
        return list(self._empty.planes(group.name, layer))

    def new_cache(self) -> RowCache:
        return self._model.new_cache()

    def length(self, cache: RowCache) -> int:
        return cache.length

    def fields(self, cache: RowCache, group: Group, layer: int, row: int = 0) -> Fields:
        return list(cache.planes(group.name, layer))

    def fill(self, rows: Mapping[Place, Fields], length: int) -> RowCache:
        cache = self.new_cache()
        cache.length = length
        for place, planes in rows.items():
            cache.rows[place] = tuple(plane.to(self.device) for plane in planes)
        return cache

    def completed(self, cache: RowCache, ids: torch.Tensor) -> RowCache:
        if isinstance(self._model, DraftingModel):
            self._model.recall(int(ids[0, -1]), cache)
        return cache

    def forward(self, ids: torch.Tensor, cache: Any, start: int) -> torch.Tensor:
        logits: torch.Tensor = self.module(ids, cache)
        return logits[:, -1]

    def replay(
        self, ids: torch.Tensor, rows: Mapping[Place, Fields], mode: str, start: int, end: int
    ) -> RowCache:
        cache = self.fill(rows, end)
        kinds = {group.name: group.kind for group in self.layout.groups}
        windows = any(kinds[name] == "window" for name, _ in rows)
        chunk = self.layout.block_tokens
        self._model.replay(ids[:, start:end], cache, start, chunk=chunk, windows=windows)
        return cache
