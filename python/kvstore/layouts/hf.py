"""Layouts of transformers configurations.

A configuration is placed by its fields, not by its name: what kind of cache each layer keeps
(``layer_types`` where there is one), how wide its rows are, which layers share. The result is an
entry in the registry's own TOML form, so that it has the forms of every engine. What has no place
raises :class:`CannotPlace` with the field.

The kinds and tensor shapes are those of transformers 5.24 (``cache_utils`` and the models).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvstore._core import Layout
from kvstore.layouts.fields import CannotPlace, Config
from kvstore.layouts.place import place

__all__ = ["CannotPlace", "arch_toml", "layout_from_config", "read_config"]

_DTYPES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
}


def layout_from_config(
    config: Any,
    *,
    form: str = "transformers",
    dtype: str | None = None,
    draft: bool = False,
    block_tokens: int | None = None,
) -> Layout:
    """The layout of a configuration: an object, a dict, a config.json or a folder that holds one.

    ``dtype`` is the type in which transformers keeps the cache (the configuration's own when
    None, bfloat16 where it names none). ``form`` is a form of the registry. ``block_tokens`` is
    the length of a block in tokens, a multiple of the layout's alignment (the form's own when
    None).
    """
    cfg = read_config(config)
    name, text = arch_toml(cfg, dtype=dtype)
    layout = Layout.named(name, form, draft=draft, toml=text, origin=f"config of {name}")
    return layout if block_tokens is None else layout.with_block_tokens(block_tokens)


def read_config(config: Any) -> Config:
    """The text model's part of a configuration, by field."""
    if isinstance(config, Config):
        return config
    if isinstance(config, str | Path):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CannotPlace("config", f"{path}: {error}") from error
    if isinstance(config, dict):
        config = _with_defaults(config)
    return Config.of_text_model(config)


def _with_defaults(raw: dict[str, Any]) -> Any:
    """The configuration object of this dict, so that fields left out have the library's defaults;
    the dict itself without transformers, or for a type that it does not know."""
    if "model_type" not in raw:
        return raw
    try:
        from transformers import AutoConfig  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return raw
    fields = {key: value for key, value in raw.items() if key != "model_type"}
    try:
        made = AutoConfig.for_model(raw["model_type"], **fields)
    except Exception:
        return raw  # strict validators refuse what a field-by-field reading can still place
    given, taken = Config.of_text_model(raw), Config.of_text_model(made)
    if any(_differs(given.get(name), taken.get(name)) for name in _SHAPE):
        return raw  # the class keeps its text model elsewhere and gave it defaults
    return made


#: What a class must have taken over from a dict, or its own defaults are not to be used.
_SHAPE = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "layer_types",
)


def _differs(given: Any, taken: Any) -> bool:
    return given is not None and taken is not None and given != taken


def arch_toml(cfg: Config, *, dtype: str | None = None) -> tuple[str, str]:
    """Name and text of the registry entry of a configuration."""
    kept = dtype or str(cfg.get("dtype") or cfg.get("torch_dtype") or "bfloat16")
    kept = kept.removeprefix("torch.")
    if kept not in _DTYPES:
        raise CannotPlace("dtype", f"{kept!r} must be one of {', '.join(_DTYPES)}", cfg.model_type)
    placed = place(cfg, _DTYPES[kept])
    return placed.name, placed.toml()
