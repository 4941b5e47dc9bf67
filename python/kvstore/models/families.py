"""Small configurations of the transformers families whose caches are known here.

`toy` gives a configuration of a family that runs on a CPU in a second, with random weights: the
kinds and shapes of its cache are the family's, its sizes are not. transformers is imported on use.

The families and what their caches hold are those of transformers 5.24 (`cache_utils` and the
models).
"""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["REFUSED", "TOYS", "WINDOW", "configuration", "toy", "toy_model"]

#: Window of the toy models in tokens: a prompt of 300 has left it behind.
WINDOW = 128

_BASE: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS: dict[str, Any] = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
_FEW = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_DENSE_FIRST = {"mlp_layer_types": ["dense", "dense", "dense", "sparse"]}
_LATENT: dict[str, Any] = {
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 32,
    "num_key_value_heads": 4,
}
_MLA = _LATENT | _EXPERTS
_INDEXER = {"index_head_dim": 32, "index_n_heads": 4, "index_topk": 16}
_LINEAR = {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}
_ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"] * 2}
_WINDOW = {"sliding_window": WINDOW}
_DELTA = _LINEAR | {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}
# The last two layers read the caches of the last window and the last full layer before them.
_SHARING = _WINDOW | {
    "num_hidden_layers": 6,
    "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "vocab_size_per_layer_input": 256,
    "hidden_size_per_layer_input": 32,
}
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 32, "mamba_n_groups": 1}

#: Fields of each family beyond the common ones.
TOYS: dict[str, dict[str, Any]] = {
    # keys and values per head, in minimax_m3 with a block index next to them
    "llama": {},
    "qwen3": {},
    "glm4_moe": _EXPERTS | {"first_k_dense_replace": 1},
    "minimax_m2": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "minimax_m3_vl_text": {
        "layer_types": ["full_attention", "minimax_m3_sparse"] * 2,
        "index_head_dim": 32,
        "index_block_size": 64,
        "index_topk_blocks": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "dense_intermediate_size": 256,
        "shared_intermediate_size": 64,
    },
    # latent and rope key, with or without index keys
    "deepseek_v2": _MLA | {"head_dim": 16, "first_k_dense_replace": 3},
    "deepseek_v3": _MLA | {"first_k_dense_replace": 3, "n_group": 1, "topk_group": 1},
    "axk1": _MLA | _DENSE_FIRST | {"n_group": 1, "topk_group": 1},
    "minicpm3": _LATENT,
    "glm4_moe_lite": _MLA | _DENSE_FIRST,
    "longcat_flash": _LATENT
    | {
        "num_layers": 2,
        "head_dim": 16,
        "ffn_hidden_size": 256,
        "n_routed_experts": 4,
        "zero_expert_num": 2,
    }
    | {"moe_topk": 2, "expert_ffn_hidden_size": 32},
    "deepseek_v32": _MLA | _INDEXER | {"head_dim": 16, "n_group": 1, "topk_group": 1},
    "glm_moe_dsa": _MLA | _INDEXER | {"head_dim": 16} | _DENSE_FIRST,
    "axk2": _MLA | _INDEXER | _DENSE_FIRST,
    "hy_v4": _MLA
    | _INDEXER
    | _DENSE_FIRST
    | {"head_dim": 32, "indexer_types": ["full", "full", "shared", "shared"]},
    # windows, with or without entries in other layers
    "mistral": _WINDOW,
    "gemma2": _WINDOW | _ALTERNATING,
    "gemma3_text": _WINDOW | _ALTERNATING,
    "gemma3n_text": _SHARING | {"laurel_rank": 8},
    "gemma4_text": _SHARING | {"global_head_dim": 64},
    "gpt_oss": _WINDOW | _ALTERNATING | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4_text": {
        "layer_types": ["chunked_attention"] * 3 + ["full_attention"],
        "attention_chunk_size": WINDOW,
        "num_local_experts": 2,
    },
    "deepseek_v4": _EXPERTS
    | _INDEXER
    | _WINDOW
    | {
        "num_key_value_heads": 1,
        "head_dim": 64,
        "q_lora_rank": 64,
        "o_lora_rank": 32,
        "o_groups": 2,
        "mlp_layer_types": ["moe"] * 4,
        "layer_types": [
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
            "compressed_sparse_attention",
        ],
    },
    # recurrent states in some layers, entries or windows in others
    "qwen3_next": _DELTA | _FEW | {"shared_expert_intermediate_size": 32},
    "qwen3_5_text": _DELTA,
    "olmo_hybrid": _DELTA,
    "qwen4_exp_text": _DELTA
    | _FEW
    | {
        "layer_types": ["linear_attention", "indexed_attention"] * 2,
        "shared_expert_intermediate_size": 32,
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 32,
        "indexer_budget": 32,
        "indexer_compress_ratio": 4,
        "hc_count": 2,
        "hc_lowrank": 16,
        "ple_layer_ids": [1],  # counted from 1
        "ngram_vocab_size_base": 64,
        "make_ngram_vocab_size_divisible_by": 8,
        "split_ngram_parts": 1,
    },
    "kimi_linear": _LATENT
    | _LINEAR
    | _DENSE_FIRST
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    | {"linear_num_heads": 4, "linear_head_dim": 32},
    "bailing_hybrid": _LATENT
    | _LINEAR
    | _DENSE_FIRST
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    | {"n_group": 1, "topk_group": 1},
    "lara_mini": _WINDOW
    | _DELTA
    | _FEW
    | {"shared_expert_intermediate_size": 32}
    | {
        "layer_types": [
            "linear_attention",
            "sliding_attention",
            "linear_attention",
            "full_attention",
        ]
    },
    "bamba": _MAMBA | {"attn_layer_indices": [2]},
    "granitemoehybrid": _MAMBA
    | {"layer_types": ["linear_attention", "full_attention"] * 2, "num_local_experts": 4}
    | {"shared_intermediate_size": 64},
    "nemotron_h": {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 32,
        "ssm_state_size": 32,
        "n_groups": 2,
        "n_routed_experts": 4,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 32,
    },
    # recurrent states and entries or windows in one layer
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
        "num_key_value_heads": 4,
        "n_mamba_heads": 8,
        "mamba_d_state": 32,
    },
    "falcon_h1": _MAMBA | {"mamba_d_ssm": 256},
    "zaya": {"num_experts": 4, "moe_intermediate_size": 32, "router_hidden_size": 32},
    "inkling_text": _EXPERTS
    | {
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 16,
        "sliding_window_size": WINDOW,
        "layer_types": ["hybrid_sliding", "hybrid"] * 2,
    },
    # states alone, or convolutions beside entries
    "mamba2": {"num_heads": 8, "head_dim": 32, "state_size": 32, "n_groups": 1, "expand": 2},
    "lfm2": {"layer_types": ["conv", "conv", "full_attention", "conv"]},
    "lfm3": {"layer_types": ["conv", "conv", "full_attention", "sliding_attention"]} | _WINDOW,
}

#: Families whose caches cannot be stored and restored, and why (transformers 5.24).
REFUSED: dict[str, str] = {
    "minimax": "a prefix does not continue exactly in transformers itself, with any cache",
    "mamba": "transformers drops the recurrent state when more than one token follows at once",
    "falcon_mamba": "transformers drops the recurrent state when more than one token follows",
    "jamba": "transformers drops the recurrent state when more than one token follows at once",
    "recurrent_gemma": "its state lives in the modules, not in a cache object",
    "rwkv": "its state is a list of tensors, not a cache object",
    "xlstm": "its state is an xLSTMCache, not layers of a cache object",
}


def toy(name: str) -> Any:
    """The tiny configuration of a family; KeyError names one that is not in `TOYS`.

    Only fields that the family has are set: a window in a configuration without windows would give
    its cache windows.
    """
    if name not in TOYS:
        raise KeyError(f"{name!r} is not one of {', '.join(TOYS)}")
    return configuration(name, _BASE, TOYS[name])


def configuration(model_type: str, common: dict[str, Any], own: dict[str, Any]) -> Any:
    """A configuration of a type with those of the common fields that it has, and all of its own."""
    from transformers import CONFIG_MAPPING

    cls = CONFIG_MAPPING[model_type]
    known = {field.name for field in dataclasses.fields(cls)} | set(cls.attribute_map)
    return cls(**({k: v for k, v in common.items() if k in known} | own))


def toy_model(name: str, dtype: str = "float32", seed: int = 0) -> Any:
    """The toy of a family with random weights in ``dtype``, ready for inference."""
    import torch
    import transformers

    causal: Any = transformers.AutoModelForCausalLM
    torch.manual_seed(seed)
    return causal.from_config(toy(name), dtype=getattr(torch, dtype)).eval()
