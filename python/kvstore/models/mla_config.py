"""The shape of a decoder with multi-head latent attention, read from its `config.json`.

The fields are those of transformers' `DeepseekV3Config`; only what `kvstore.models` can compute is
accepted, and anything else is named in the error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

__all__ = ["MlaConfig"]


@dataclass(frozen=True, slots=True)
class MlaConfig:
    """Sizes of the decoder. All are numbers of elements, none are bytes."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    kv_lora_rank: int
    """Width of the latent: what a token's keys and values of all heads are made from."""
    qk_nope_head_dim: int
    """Part of a query or key head that carries content (no position)."""
    qk_rope_head_dim: int
    """Part that carries position; its key is one per token, shared by all heads."""
    v_head_dim: int
    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def cache_width(self) -> int:
        """Values that one token leaves in the cache of one layer: latent, then rope key."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def softmax_scale(self) -> float:
        """1 / sqrt(width of the *unabsorbed* head): absorption does not change the scores."""
        return float(self.qk_head_dim**-0.5)

    @classmethod
    def read(cls, path: Path | Traversable) -> MlaConfig:
        """Read a `config.json`. ValueError names the file and the field that does not fit."""
        try:
            fields = json.loads(path.read_text("utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path.name}: not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise ValueError(f"{path.name}: expected an object, found {type(fields).__name__}")
        return cls.from_fields(fields, path.name)

    @classmethod
    def from_fields(cls, fields: dict[str, Any], source: str = "config") -> MlaConfig:
        """Build from the parsed fields; `source` is the name that errors carry."""
        _require(fields, source)
        sizes: dict[str, Any] = {}
        for name in _SIZES:
            value = fields.get(name)
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise ValueError(f"{source}: {name} must be a positive integer, found {value!r}")
            sizes[name] = value
        for name in ("rope_theta", "rms_norm_eps"):
            value = fields.get(name)
            if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
                raise ValueError(f"{source}: {name} must be a positive number, found {value!r}")
            sizes[name] = float(value)
        if sizes["qk_rope_head_dim"] % 2:
            raise ValueError(f"{source}: qk_rope_head_dim must be even (RoPE turns pairs)")
        return cls(**sizes)


_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "max_position_embeddings",
)


def _require(fields: dict[str, Any], source: str) -> None:
    """Refuse variants whose arithmetic differs from what is written in `kvstore.models`."""
    required = {
        "model_type": "deepseek_v3",
        "q_lora_rank": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "rope_interleave": False,
        "rope_scaling": None,
        "first_k_dense_replace": fields.get("num_hidden_layers"),
        "num_key_value_heads": fields.get("num_attention_heads"),
    }
    for name, value in required.items():
        found = fields.get(name)
        if found != value:
            raise ValueError(f"{source}: {name} must be {value!r} here, found {found!r}")
