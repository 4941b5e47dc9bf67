"""transformers configurations with the caches of released models and little else.

`true_geometry` gives a configuration whose cache has the layers, heads, widths, windows and states
of an architecture of the registry, byte for byte; hidden size, feed-forward layers, experts, query
heads and vocabulary are cut down, so that such a model fits a CPU. Numbers that a layout says are
taken from `Layout.named`; what it cannot say (how a state splits into heads) stands here.
transformers is imported on use.
"""

from __future__ import annotations

from typing import Any

from kvstore.layouts import Group, Layout
from kvstore.models.families import configuration

__all__ = ["GEOMETRIES", "true_geometry"]

_SMALL = {
    "num_experts": 2,
    "num_local_experts": 2,
    "n_routed_experts": 2,
    "n_shared_experts": 1,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "dense_intermediate_size": 64,
    "shared_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
}
_MLA = {
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
_INDEXER = {"index_n_heads": 2, "index_topk": 2048, "head_dim": 64}
_V4 = {
    "num_attention_heads": 2,
    "q_lora_rank": 32,
    "o_lora_rank": 16,
    "o_groups": 1,
    "index_n_heads": 2,
}
_DELTA = {"linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128}

#: The model type of each architecture, and the fields that its layout does not give.
GEOMETRIES: dict[str, tuple[str, dict[str, Any]]] = {
    **dict.fromkeys(
        [
            "deepseek-llm-7b",
            "deepseek-llm-67b",
            "llama-3-8b",
            "llama-3-70b",
            "llama-3-405b",
            "mistral-nemo-12b",
            "mistral-large-2",
        ],
        ("llama", {}),
    ),
    **dict.fromkeys(["mistral-7b", "mistral-7b-v0.1"], ("mistral", {})),
    **dict.fromkeys(["mixtral-8x7b", "mixtral-8x22b"], ("mixtral", {})),
    **dict.fromkeys(["qwen3-0.6b", "qwen3-8b", "qwen3-32b"], ("qwen3", {})),
    **dict.fromkeys(
        ["qwen3-30b-a3b", "qwen3-235b-a22b", "qwen3-coder-480b-a35b"],
        ("qwen3_moe", {"sliding_window": None, "head_dim": 128}),
    ),
    **dict.fromkeys(
        ["gemma-3-27b", "gemma-3-12b", "gemma-3-4b", "gemma-3-1b"], ("gemma3_text", {})
    ),
    **dict.fromkeys(["gpt-oss-20b", "gpt-oss-120b"], ("gpt_oss", {})),
    "minimax-m2": ("minimax_m2", {}),
    "minimax-m3": ("minimax_m3_vl_text", {"index_topk_blocks": 16, "index_block_size": 128}),
    **dict.fromkeys(["deepseek-v2", "deepseek-v2-lite"], ("deepseek_v2", _MLA | {"head_dim": 64})),
    **dict.fromkeys(["deepseek-v3", "kimi-k2"], ("deepseek_v3", _MLA)),
    "deepseek-v3.2": ("deepseek_v32", _MLA | _INDEXER),
    **dict.fromkeys(["glm-5", "glm-5.2"], ("glm_moe_dsa", _MLA | _INDEXER)),
    "deepseek-v4-pro": ("deepseek_v4", _V4 | {"index_topk": 1024}),
    **dict.fromkeys(
        ["deepseek-v4-flash", "deepseek-v4-flash-0731"], ("deepseek_v4", _V4 | {"index_topk": 512})
    ),
    "qwen3-next-80b-a3b": ("qwen3_next", _DELTA | {"linear_num_value_heads": 32}),
    "qwen3.5-397b-a17b": ("qwen3_5_moe_text", _DELTA | {"linear_num_value_heads": 64}),
    "kimi-k3": ("kimi_linear", _MLA | {"linear_num_heads": 96, "linear_head_dim": 128}),
}


def true_geometry(name: str) -> Any:
    """A small configuration with the cache of an architecture of the registry.

    Its `dtype` is bfloat16, in which the registry counts. KeyError names an architecture for which
    transformers has no model, or that no geometry stands here for.
    """
    layout = Layout.named(name, "transformers" if name in GEOMETRIES else None)
    if layout.name not in GEOMETRIES:
        raise KeyError(f"{name!r} is not one of {', '.join(GEOMETRIES)}")
    family, own = GEOMETRIES[layout.name]
    common = {
        "vocab_size": 256,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": layout.model_layers,
        "max_position_embeddings": 131_072,
        "pad_token_id": 0,
        "dtype": "bfloat16",
    }
    return configuration(family, common | _SMALL | _read(family, layout), own)


def _read(family: str, layout: Layout) -> dict[str, Any]:
    """The fields that a layout gives."""
    if family == "deepseek_v4":
        return _v4(layout)
    fields: dict[str, Any] = {}
    kinds = ["full_attention"] * layout.model_layers
    for group in layout.groups:
        if group.kind == "state":
            _mark(kinds, group, "linear_attention")
        elif group.name == "index":
            fields |= _indexed(family, kinds, group)
        elif group.heads:
            width = group.elements // group.heads // 2
            fields |= {"num_key_value_heads": group.heads, "head_dim": width}
            fields |= {"num_attention_heads": group.heads}
        else:
            fields["kv_lora_rank"] = group.elements - _MLA["qk_rope_head_dim"]
        if group.kind == "window":
            fields["sliding_window"] = group.window
            _mark(kinds, group, "sliding_attention")
    if family == "mistral":  # a window in each layer, or in none
        return {"sliding_window": None} | fields
    return fields | {"layer_types": kinds}


def _mark(kinds: list[str], group: Group, kind: str) -> None:
    for layer in group.layers:
        kinds[layer] = kind


def _indexed(family: str, kinds: list[str], group: Group) -> dict[str, Any]:
    """Layers that keep index keys; in a DSA model the others read those of a layer before."""
    if family == "minimax_m3_vl_text":
        _mark(kinds, group, "minimax_m3_sparse")
        return {"index_head_dim": group.elements}
    owners = set(group.layers)
    kinds[:] = ["indexed_attention"] * len(kinds)
    return {
        "index_head_dim": group.elements,
        "indexer_types": ["full" if i in owners else "shared" for i in range(len(kinds))],
    }


def _v4(layout: Layout) -> dict[str, Any]:
    groups = {group.name: group for group in layout.groups}
    kinds = ["sliding_attention"] * layout.model_layers
    _mark(kinds, groups["csa"], "compressed_sparse_attention")
    _mark(kinds, groups["hca"], "heavily_compressed_attention")
    return {
        "layer_types": kinds,
        "mlp_layer_types": ["moe"] * len(kinds),
        "head_dim": groups["csa"].elements,
        "num_key_value_heads": 1,
        "index_head_dim": groups["csa-index"].elements,
        "sliding_window": groups["window"].window,
    }
