"""What a model's cache is to a store: rows by group and layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from kvstore._core import Group, Layout
from kvstore.torch.errors import Unsupported
from kvstore.torch.objects import Fields, Objects, Place

__all__ = ["Binding", "bind"]


class Binding(ABC):
    """One model and its live cache, as far as a store needs to know them."""

    #: The model whose forward calls are followed.
    module: nn.Module
    layout: Layout
    objects: Objects
    #: Name of the cache in the model's arguments.
    argument: str
    #: Longest prompt whose rows depend on its tokens alone, where there is one.
    longest: int | None = None

    @abstractmethod
    def new_cache(self) -> Any:
        """An empty cache."""

    @abstractmethod
    def length(self, cache: Any) -> int | None:
        """Tokens in a cache, or None where the cache does not know."""

    def sequences(self, cache: Any) -> int:
        """Sequences in a cache: its batch."""
        return 1

    @abstractmethod
    def fields(self, cache: Any, group: Group, layer: int, row: int = 0) -> Fields:
        """The live rows of a group and layer in one row of the batch: [rows, ...] views, one per
        field."""

    @abstractmethod
    def fill(self, rows: Mapping[Place, Fields], length: int) -> Any:
        """A cache of ``length`` tokens that owns these rows."""

    @abstractmethod
    def forward(self, ids: torch.Tensor, cache: Any, start: int) -> torch.Tensor:
        """Computes ids [1, tokens] at the positions from ``start`` on, and appends to the cache.
        The logits of the last token, [1, vocabulary]."""

    def completed(self, cache: Any, ids: torch.Tensor) -> Any:
        """A restored cache of ids [1, tokens] with what it holds besides rows: as it is, unless the
        model keeps anything."""
        return cache

    def replay(
        self, ids: torch.Tensor, rows: Mapping[Place, Fields], mode: str, start: int, end: int
    ) -> Any:
        """A cache of ``end`` tokens whose entries are these rows, and whose windows and states come
        from computing ids [1, end] again from ``start`` on."""
        raise Unsupported(f"{type(self.module).__name__}: nothing of it can be replayed ({mode})")

    def repeat(self, cache: Any, times: int) -> None:
        """Makes a cache of one sequence one of ``times`` equal ones, for beams."""
        raise Unsupported(f"{type(self.module).__name__}: one sequence at a time")

    def join(self, caches: list[Any], lengths: list[int], columns: int) -> Any:
        """One cache of these, padded on the left to ``columns`` tokens."""
        raise Unsupported(f"{type(self.module).__name__}: one prompt at a time")

    def rows(self, cache: Any, kind: str, row: int = 0) -> dict[Place, Fields]:
        """The live rows of all groups of one kind that have any."""
        return {
            (group.name, layer): self.fields(cache, group, layer, row)
            for group, layer in self.objects.places(kind)
        }

    @property
    def device(self) -> torch.device:
        """Where the model computes; its weights may wait elsewhere (hooks of accelerate)."""
        device = next(self.module.parameters()).device
        if device.type != "meta":
            return device
        hooks = (getattr(module, "_hf_hook", None) for module in self.module.modules())
        places = (getattr(hook, "execution_device", None) for hook in hooks)
        return next((torch.device(place) for place in places if place is not None), device)


def bind(model: nn.Module, **options: Any) -> Binding:
    """The binding of a model of transformers or of `kvstore.models`."""
    from kvstore.models.deepseek import ReferenceModel
    from kvstore.torch.reference import ReferenceBinding
    from kvstore.torch.transformers import TransformersBinding

    known = ReferenceBinding if isinstance(model, ReferenceModel) else TransformersBinding
    return known(model, **options)
