"""What of a model changes the bytes of its cache, as the arguments of `store.namespace`.

The weights are identified by `kvstore.torch.weights`; here is the rest: how the model computes.
Two processes share cache when both are equal. What is not here: the device, the number of threads,
the precision of float32 products and the length of the chunks in which a prompt was computed. They
change the last bits of a row, as in every serving engine; the first writer's rows are kept.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import PurePath
from typing import Any

from kvstore._core import Blake3
from kvstore.models.deepseek import ReferenceModel
from kvstore.torch.adapters import adapter_digest, unwrapped

__all__ = ["describe"]

#: Bytes of a value in clear; a longer one ends in its digest. A namespace description has 960.
_IN_CLEAR = 96

#: Fields of a configuration that say where the model is from, what it returns, or how to train it.
_IDLE = {
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "attention_dropout",
    "dtype",
    "id2label",
    "initializer_range",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "problem_type",
    "return_dict",
    "router_aux_loss_coef",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}
_ROPE = ("rope_parameters", "rope_scaling", "rope_theta", "rope_local_base_freq")
_WINDOW = ("sliding_window", "attention_chunk_size", "use_sliding_window")


def describe(model: Any) -> dict[str, Any]:
    """The keyword arguments of `store.namespace` that a transformers model gives, but its weights:

    `store.namespace(layout, weights=fingerprint(model), **describe(model))`

    `model` and `revision` are those that it was loaded as (of a local path the last part), `dtype`
    that of its weights, `adapter` the digest of its active PEFT adapters. `extra` has `attention`
    and `experts` (the implementations), `rope`, `window` and `quantization` as canonical JSON
    where the configuration has them, `config` (a digest of all other fields that the model
    computes by) and `transformers` (its major version, whose models may compute otherwise). In
    `ns.explain()` a field that differs is named. A model of `kvstore.models` gives its name and
    its shape.
    """
    if isinstance(model, ReferenceModel):
        return {"model": model.layout.name, "extra": {"shape": _short(repr(model.shape))}}
    model = unwrapped(model)
    config = model.config
    text = config.get_text_config(decoder=True)
    fields = _plain(config.to_dict())
    own = _plain(text.to_dict())
    extra = {
        "transformers": metadata.version("transformers").split(".")[0],
        "attention": str(text._attn_implementation),
        "experts": str(getattr(text, "_experts_implementation", None) or ""),
        "rope": _canonical(_present(own, _ROPE)),
        "window": _canonical(_present(own, _WINDOW)),
        "quantization": _canonical(fields.get("quantization_config") or {}),
        "config": _digest(_canonical(_computing(fields))),
    }
    described: dict[str, Any] = {
        "model": _name(config),
        "revision": str(getattr(config, "_commit_hash", None) or ""),
        "dtype": str(model.dtype).removeprefix("torch."),
        "extra": {name: _short(value) for name, value in extra.items() if value not in ("", "{}")},
    }
    adapter = adapter_digest(model)
    if adapter is not None:
        described["adapter"] = adapter
    return described


def _name(config: Any) -> str:
    """The name on the hub, the last part of a local path, or the type."""
    name = str(getattr(config, "_name_or_path", "") or "")
    path = PurePath(name)
    if path.is_absolute() or name.startswith(".") or len(path.parts) > 2:
        name = path.name
    return _short(name or str(config.model_type))


def _present(fields: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The fields of these names that are set; of a single one its value."""
    found = {name: fields[name] for name in names if fields.get(name) is not None}
    return next(iter(found.values())) if len(found) == 1 else found


def _computing(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that a model computes by and that no other entry names."""
    named = {*_IDLE, *_ROPE, *_WINDOW, "quantization_config"}
    kept = {key: value for key, value in fields.items() if key not in named}
    for key, value in kept.items():
        if isinstance(value, dict) and "model_type" in value:  # a part, like the text model
            kept[key] = {k: v for k, v in value.items() if k not in _IDLE}
    return kept


def _plain(value: Any) -> Any:
    """A value of a configuration as JSON has it, the same for equal ones."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_plain(item) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "to_dict"):
        return _plain(value.to_dict())
    return str(value)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> str:
    hasher = Blake3()
    hasher.update(text.encode())
    return hasher.digest()[:16].hex()


def _short(text: str) -> str:
    """A text of up to `_IN_CLEAR` bytes, or its beginning and its digest."""
    data = text.encode()
    if len(data) <= _IN_CLEAR:
        return text
    head = data[: _IN_CLEAR - 36].decode(errors="ignore")
    return f"{head}... {_digest(text)}"
