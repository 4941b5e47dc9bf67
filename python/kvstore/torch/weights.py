"""Fingerprints of weights, of every kind that a namespace takes.

| kind | what it reads | of |
| --- | --- | --- |
| `full` | all bytes of all tensors | a model, a state dict, safetensors files |
| `hub` | the SHA-256 names in the Hugging Face cache | a snapshot in that cache |
| `cached` | a file's bytes once, then its inode, size and times | files |
| `sampled` | names, dtypes, shapes and 64 KiB of each tensor | as `full` |
| `name` | nothing | a name |

The kind is part of a namespace, so a weaker one never hits a stronger one. Two kinds of one
model give two namespaces; so do `full` of a model and of its files, where the model's tensors
have other names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kvstore.errors import InvalidArgument
from kvstore.torch import weight_files
from kvstore.torch.adapters import adapter_digest, base_name, unwrapped
from kvstore.torch.framed import Framed
from kvstore.types import WeightsFingerprint, WeightsKind

__all__ = ["FULL_LIMIT", "fingerprint"]

#: Bytes up to which everything is read without being asked to: 20 GB.
FULL_LIMIT = 20_000_000_000

_OF_TENSORS = ("full", "sampled")


def fingerprint(
    source: Any,
    kind: WeightsKind | None = None,
    *,
    remember: str | os.PathLike[str] | None = None,
    allow_weights_by_name: bool = False,
) -> WeightsFingerprint:
    """The fingerprint of weights: a kind and 32 bytes.

    `source` is a model, a state dict (tensors or arrays by name), or the path of a weights file
    or of a folder of them. It changes with any value, dtype, shape or name of a parameter or
    persistent buffer, and with the active adapters of a model; `sampled` sees only its sample.

    Without `kind` it is `full` up to 20 GB. Above that a path is identified as `hub` if it is a
    snapshot in the Hugging Face cache and else as `cached`; a model or state dict raises
    InvalidArgument with the kinds to choose from. `remember` is the file in which `cached` keeps
    its digests (by default weights.json in the user's cache directory). The name of a model, as
    `source`, is accepted with `allow_weights_by_name` only.
    """
    if kind == "name":
        return _by_name(source, allow_weights_by_name)
    if isinstance(source, str | os.PathLike):
        return weight_files.fingerprint(Path(source), kind, remember, FULL_LIMIT)
    if kind in ("hub", "cached"):
        raise InvalidArgument(
            f"kind {kind!r} takes the path of the files: a model in memory may differ from those "
            'that it came from. Use "full", or "sampled", or give the path'
        )
    if kind not in (None, *_OF_TENSORS):
        raise weight_files.no_kind(kind)
    tensors, adapter = _read(source)
    size = sum(_size(value) for value in tensors.values())
    if kind is None and size > FULL_LIMIT:
        raise InvalidArgument(
            f"the weights have {size:,} bytes, above the {FULL_LIMIT:,} that are read without "
            'being asked to. Choose kind="full" to read them all the same, kind="sampled" for '
            "64 KiB of each tensor, or give the path of the files they came from for "
            'kind="hub" (the Hugging Face cache) or kind="cached"'
        )
    chosen: WeightsKind = kind or "full"
    framed = Framed(f"kvstore weights {chosen} 1", sampled=chosen == "sampled")
    _hash(framed, tensors)
    if adapter is not None:
        framed.text("adapter")
        framed.bytes(adapter)
    return WeightsFingerprint(chosen, framed.digest())


def _by_name(source: Any, allowed: bool) -> WeightsFingerprint:
    if not isinstance(source, str) or not source:
        raise InvalidArgument(f'kind "name" takes the name of a model, not {source!r:.60}')
    if not allowed:
        raise InvalidArgument(
            'kind "name": other weights under the same name would be hits. Use another kind, or '
            "allow_weights_by_name=True where that would be fine"
        )
    return WeightsFingerprint("name", source.encode())


def _read(source: Any) -> tuple[dict[str, Any], bytes | None]:
    """The entries of a model or state dict by name, and the digest of active adapters."""
    if not isinstance(source, torch.nn.Module):
        if not isinstance(source, Mapping):
            raise InvalidArgument(
                f"a {type(source).__name__} has no weights: give a model, a state dict or a path"
            )
        return dict(source), None
    model = unwrapped(source)
    named = ((base_name(model, key), value) for key, value in model.state_dict().items())
    return {name: value for name, value in named if name is not None}, adapter_digest(model)


def _hash(framed: Framed, tensors: dict[str, Any]) -> None:
    """All entries in the order of their names. One that is another's memory counts as its name."""
    framed.number(len(tensors))
    seen: dict[Any, str] = {}
    for name in sorted(tensors):
        value = tensors[name]
        framed.text(name)
        same = _memory(value)
        if same is not None and same in seen:
            framed.text("tied")
            framed.text(seen[same])
            continue
        if same is not None:
            seen[same] = name
        framed.value(name, value)


def _memory(value: Any) -> Any:
    """What is equal for two tensors that are the same memory in the same order, or None."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or not value.numel():
        return None
    if value.layout != torch.strided or value.device.type == "meta" or value.is_quantized:
        return None
    return value.device, value.data_ptr(), value.dtype, value.shape, value.stride()


def _size(value: Any) -> int:
    if torch.is_tensor(value):
        return int(value.numel() * value.element_size())
    return int(getattr(value, "nbytes", 0))
