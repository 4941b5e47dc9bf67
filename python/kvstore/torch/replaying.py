"""Computing tokens again over stored entries, in layers of transformers.

A replay rebuilds windows and states: the tokens from its start on go through the model once more,
while every layer that keeps entries answers with the stored ones instead of those just computed.
What a layer lacks at the start (window rows, pooling buffers) is zero; the start lies so far back
that nothing of that reaches the rows which are kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from kvstore.torch.live import Field

__all__ = ["answering_stored"]


@contextlib.contextmanager
def answering_stored(
    layers: list[Any], stored: dict[int, list[tuple[Field, torch.Tensor]]]
) -> Iterator[None]:
    """Within the block, updates of these layers' entries are answered from ``stored``: by layer,
    fields and their tensors for the whole replay."""
    changed: list[tuple[Any, str]] = []
    try:
        for index, entries in stored.items():
            layer = layers[index]
            for name, method in _methods(layer, dict(entries)).items():
                setattr(layer, name, method)
                changed.append((layer, name))
        yield
    finally:
        for layer, name in changed:
            delattr(layer, name)


def _methods(layer: Any, stored: dict[Field, torch.Tensor]) -> dict[str, Any]:
    """The methods with which this layer appends to these fields."""
    tensors = {(field.name, field.key): tensor for field, tensor in stored.items()}
    methods: dict[str, Any] = {}

    def update(keys: torch.Tensor, values: torch.Tensor, *rest: Any, **more: Any) -> Any:
        end = layer.keys.shape[-2] + keys.shape[-2]
        layer.keys = tensors["keys", None][:, :, :end]
        layer.values = tensors["values", None][:, :, :end]
        return layer.keys, layer.values

    def update_indexer(keys: torch.Tensor) -> torch.Tensor:
        end = layer.indexer_keys.shape[1] + keys.shape[1]
        layer.indexer_keys = tensors["indexer_keys", None][:, :end]
        return layer.indexer_keys  # type: ignore[no-any-return]

    def update_compressor_states(name: str, compressed: torch.Tensor) -> torch.Tensor:
        layer.entry_count[name] += compressed.shape[1]
        kept = tensors["compressed_kv", name][:, : layer.entry_count[name]]
        layer.compressed_kv[name] = kept
        return kept

    names = {name for name, _ in tensors}
    if "keys" in names:
        methods["update"] = update
    if "indexer_keys" in names:
        methods["update_indexer"] = update_indexer
    if "compressed_kv" in names:
        methods["update_compressor_states"] = update_compressor_states
    return methods
