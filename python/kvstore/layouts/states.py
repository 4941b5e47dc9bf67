"""Recurrent and convolution states of a configuration's layers.

transformers keeps as many columns as the convolution is wide, other engines one less; the recurrent
state is float32 unless said otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvstore.layouts.fields import Config

if TYPE_CHECKING:
    from kvstore.layouts.place import Placed

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int64": 8}
_MAMBA_1 = {"mamba", "falcon_mamba", "jamba", "zamba"}


def inferred_types(cfg: Config) -> list[str] | None:
    """Layer types of families that give a period instead of a list, or None."""
    match cfg.model_type:
        case "mamba" | "falcon_mamba" | "mamba2":
            return ["linear_attention"] * cfg.number("num_hidden_layers")
        case "jamba":
            period, offset = cfg.number("attn_layer_period"), cfg.number("attn_layer_offset")
            count = cfg.number("num_hidden_layers")
            return [
                "full_attention" if i % period == offset else "linear_attention"
                for i in range(count)
            ]
        case "bamba":
            full = set(cfg.get("attn_layer_indices") or [])
            count = cfg.number("num_hidden_layers")
            return ["full_attention" if i in full else "linear_attention" for i in range(count)]
        case "falcon_h1":
            return ["hybrid"] * cfg.number("num_hidden_layers")
    return None


def nested_types(cfg: Config) -> list[str] | None:
    """Layer types that an original configuration gives in a table of its own, or None."""
    count = cfg.get("num_hidden_layers")
    linear, sparse = cfg.get("linear_attn_config"), cfg.get("sparse_attention_config")
    if linear is not None:
        full = set(Config(linear).get("full_attn_layers") or [])  # counted from 1
        return ["full_attention" if i + 1 in full else "linear_attention" for i in range(count)]
    if sparse is not None:
        flags = Config(sparse).get("sparse_attention_freq")
        if not isinstance(flags, list | tuple):
            raise cfg.cannot("sparse_attention_config", "has no sparse_attention_freq")
        return ["minimax_m3_sparse" if flag else "full_attention" for flag in flags]
    return None


def place(cfg: Config, placed: Placed, layer: int, kind: str) -> None:
    """Adds the state of one layer to its group."""
    own = placed.dtype
    # (elements, type, columns of a convolution or 0)
    parts: list[tuple[int, str, int]]
    span: int | None = None
    heads: int | None = None
    if kind == "conv":
        columns = cfg.number("conv_L_cache")
        parts, span = [(cfg.number("hidden_size"), own, columns)], columns
    elif cfg.get("linear_num_value_heads"):
        parts, heads = _gated_delta(cfg, own)
        if layer + 1 in (cfg.get("ple_layer_ids") or ()):  # counted from 1
            parts += _ngram(cfg, own)
    elif cfg.get("linear_num_heads") or cfg.get("linear_attn_config"):
        table = Config(cfg.get("linear_attn_config") or cfg.raw)
        heads = table.number("linear_num_heads", "num_heads")
        dim = table.number("linear_head_dim", "head_dim")
        columns = table.number("linear_conv_kernel_dim", "short_conv_kernel_size")
        parts = [(heads * dim * dim, "fp32", 0), (3 * heads * dim, own, columns)]
    elif cfg.model_type in _MAMBA_1:
        parts = _mamba_1(cfg, own)
    elif cfg.first("mamba_d_state", "ssm_state_size", "state_size") is not None:
        parts, heads = _mamba_2(cfg, own)
    elif cfg.model_type == "minimax":
        heads, dim = _lightning_shape(cfg)
        parts = [(heads * dim * dim, own, 0)]
    elif cfg.model_type == "zaya":
        parts, span = _zaya(cfg, own)
    elif cfg.get("number_of_conv_states") or "inkling" in cfg.model_type:
        parts, span = _inkling(cfg, kind)
    else:
        raise cfg.cannot("layer_types", f"{kind!r}: no field gives the shape of its state")
    _add(placed, layer, parts, span, heads)


def _add(
    placed: Placed,
    layer: int,
    parts: list[tuple[int, str, int]],
    span: int | None,
    heads: int | None,
) -> None:
    fields: dict[str, Any] = {
        "kind": "state",
        "parts": [
            {"elements": elements * (columns - 1 if columns > 1 else 1), "dtype": dtype}
            for elements, dtype, columns in parts
        ],
    }
    if span is not None:
        fields["span"] = span
    if heads is not None:
        fields["split_heads"] = heads
    name = placed.add("state", layer, fields)
    planes = [elements * (columns or 1) * _BYTES[dtype] for elements, dtype, columns in parts]
    placed.records[name] = {"planes": planes}


def _gated_delta(cfg: Config, own: str) -> tuple[list[tuple[int, str, int]], int]:
    values, value = cfg.number("linear_num_value_heads"), cfg.number("linear_value_head_dim")
    keys, key = cfg.number("linear_num_key_heads"), cfg.number("linear_key_head_dim")
    channels = 2 * keys * key + values * value
    columns = cfg.number("linear_conv_kernel_dim")
    return [(values * key * value, "fp32", 0), (channels, own, columns)], values


def _ngram(cfg: Config, own: str) -> list[tuple[int, str, int]]:
    """Qwen4's embeddings of token n-grams: a dilated convolution over all residual streams, and the
    ids of the tokens before."""
    ngram = cfg.number("ngram_size")
    streams = cfg.number("hc_count") * cfg.number("hidden_size")
    rows = (cfg.number("ple_conv_kernel_size") - 1) * ngram
    return [(streams * rows, own, 0), (ngram - 1, "int64", 0)]


def _mamba_1(cfg: Config, own: str) -> list[tuple[int, str, int]]:
    inner = cfg.number("mamba_expand", "expand") * cfg.number("hidden_size")
    state = cfg.number("mamba_d_state", "state_size")
    return [(inner * state, "fp32", 0), (inner, own, cfg.number("mamba_d_conv", "conv_kernel"))]


def _mamba_2(cfg: Config, own: str) -> tuple[list[tuple[int, str, int]], int]:
    heads = cfg.number("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    inner = cfg.first("mamba_d_ssm")
    if inner is None:
        dim = cfg.first("mamba_d_head", "mamba_head_dim", "mamba_headdim")
        if dim is None and cfg.model_type == "mamba2":
            dim = cfg.get("head_dim")
        if not isinstance(dim, int):  # "auto", or absent
            dim = cfg.number("mamba_expand", "expand") * cfg.number("hidden_size") // heads
        inner = heads * dim
    groups = cfg.number("mamba_n_groups", "n_groups", "mamba_ngroups")
    state = cfg.number("mamba_d_state", "ssm_state_size", "state_size")
    columns = cfg.number("mamba_d_conv", "conv_kernel")
    return [(inner * state, "fp32", 0), (inner + 2 * groups * state, own, columns)], heads


def _lightning_shape(cfg: Config) -> tuple[int, int]:
    heads = cfg.number("num_attention_heads")
    return heads, cfg.first("head_dim") or cfg.number("hidden_size") // heads


def _zaya(cfg: Config, own: str) -> tuple[list[tuple[int, str, int]], int]:
    """Convolution over queries and keys, and the delayed half of each value: the last tokens'."""
    dim, kv_heads = cfg.number("head_dim"), cfg.number("num_key_value_heads")
    channels = (cfg.number("num_attention_heads") + kv_heads) * dim
    columns = 2
    return [(kv_heads * dim // 2, own, 0), (channels, own, columns)], columns


def _inkling(cfg: Config, kind: str) -> tuple[list[tuple[int, str, int]], int]:
    """Four float32 convolutions: over keys, values, and twice over the hidden state."""
    sliding = kind == "hybrid_sliding"
    heads = cfg.number("swa_num_key_value_heads" if sliding else "num_key_value_heads")
    width = heads * cfg.number("swa_head_dim" if sliding else "head_dim")
    hidden, columns = cfg.number("hidden_size"), cfg.number("conv_kernel_size")
    return [(size, "fp32", columns) for size in (width, width, hidden, hidden)], columns
