"""Where the tensors of a transformers cache layer are: one field per tensor that is kept.

Shapes are those of transformers 5.24 (``cache_utils`` and the models' own layers); which fields a
layer has is taken from a live layer, since layers of one class differ.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from kvstore._core import Group
from kvstore.torch.errors import Unsupported

__all__ = ["Field", "clone_without", "fields_of"]


@dataclass(frozen=True, slots=True)
class Field:
    """One tensor of a layer: the attribute, and the key where that is a dict."""

    name: str
    key: str | int | None = None
    #: The axis of the batch.
    batch: int = 0
    #: The axis that counts entries; None for a state, which is one row.
    entries: int | None = None

    def get(self, layer: Any) -> torch.Tensor | None:
        """The tensor, or None where the layer has none."""
        value = getattr(layer, self.name, None)
        if self.key is not None and isinstance(value, dict):
            value = value.get(self.key)
        return value if torch.is_tensor(value) else None

    def set(self, layer: Any, value: torch.Tensor) -> None:
        """Puts a tensor in its place."""
        if self.key is None:
            setattr(layer, self.name, value)
        else:
            getattr(layer, self.name)[self.key] = value

    def rows(self, layer: Any, row: int) -> torch.Tensor:
        """The entries of one row of the batch, [entries, ...]: a view."""
        tensor = self.get(layer)
        if tensor is None:
            raise Unsupported(f"{type(layer).__name__}.{self.name} is not there")
        one = tensor.select(self.batch, row)
        if self.entries is None:
            return one.unsqueeze(0)
        return one.movedim(self.entries - (self.entries > self.batch), 0)

    def tensor(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [entries, ...] as the layer's tensor for a batch of one, in memory of its own."""
        if self.entries is None:
            return rows.squeeze(0).unsqueeze(self.batch).clone()
        one = rows.movedim(0, self.entries - (self.entries > self.batch))
        return one.unsqueeze(self.batch).contiguous()


_KEYS, _VALUES = Field("keys", entries=2), Field("values", entries=2)
#: Fields of the groups that `kvstore.layouts` makes of a configuration, by the group's name.
_BY_GROUP = {
    "kv": [_KEYS, _VALUES],
    "mla": [_KEYS, _VALUES],  # normalised latent, rotated rope key
    "window": [_KEYS, _VALUES],
    "index": [
        Field("indexer_keys", entries=1),
        Field("idx_keys", entries=2),
    ],
    "positions": [Field("indexer_position_ids", batch=1, entries=2)],
    "csa": [Field("compressed_kv", "compressor", entries=1)],
    "csa-index": [Field("compressed_kv", "indexer", entries=1)],
    "hca": [Field("compressed_kv", "compressor", entries=1)],
    "csa-tail": [
        Field("overlap_kv", "compressor", entries=1),
        Field("overlap_gate", "compressor", entries=1),
    ],
    "csa-index-tail": [
        Field("overlap_kv", "indexer", entries=1),
        Field("overlap_gate", "indexer", entries=1),
    ],
    "state": [
        Field("recurrent_states", 0),
        *(Field("conv_states", number) for number in range(8)),
    ],
}


def fields_of(group: Group, layer: Any) -> list[Field]:
    """The fields of a group that a live layer has. One row of V4's is key and value at once."""
    name = group.name
    while name not in _BY_GROUP and "-" in name:
        name = name.rsplit("-", 1)[0]  # groups of one name have numbers
    fields = [f for f in _BY_GROUP.get(name, []) if f.get(layer) is not None]
    if fields and fields[0] == _KEYS:
        keys = _KEYS.rows(layer, 0)
        if keys[:1].numel() == group.elements:
            fields = [_KEYS]
    if not fields:
        raise Unsupported(f"group {group.name!r}: {type(layer).__name__} has no tensor for it")
    return fields


def clone_without(value: Any, kept: frozenset[int]) -> Any:
    """A deep copy of a layer's attribute, in which the tensors with these ids are None."""
    if torch.is_tensor(value):
        return None if id(value) in kept else value.clone()
    if isinstance(value, dict):
        return {key: clone_without(item, kept) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(clone_without(item, kept) for item in value)
    return copy.deepcopy(value)
