"""Layouts against live caches: a toy model's cache has the bytes that the layout counts."""

from __future__ import annotations

from typing import Any

import pytest
from kvstore.layouts import Layout

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

#: Tokens of the prefill: no multiple of 128, so that a compressor's open group counts as well.
TOKENS = 304

BASE: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "sliding_window": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MLA = {
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 32,
    "head_dim": 16,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 4,
}
DSA = MLA | {"index_head_dim": 32, "index_n_heads": 4, "index_topk": 16}
LINEAR = {"layer_types": ["linear_attention"] * 3 + ["full_attention"], "num_experts": 0}
DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}
V4 = {
    "num_key_value_heads": 1,
    "head_dim": 64,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 64,
    "o_lora_rank": 32,
    "o_groups": 2,
    "index_head_dim": 32,
    "index_n_heads": 4,
    "index_topk": 16,
    "num_hash_layers": 0,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention"] * 2,
}
MAMBA2 = {"num_heads": 8, "state_size": 32, "n_groups": 1, "expand": 2}

TOYS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "gemma3_text": {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    "gemma4_text": {
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "vocab_size_per_layer_input": 256,
        "hidden_size_per_layer_input": 32,
    },
    "deepseek_v3": MLA,
    "deepseek_v32": DSA,
    "hy_v4": DSA | {"indexer_types": ["full", "full", "shared", "shared"]},
    "deepseek_v4": V4,
    "qwen3_5_text": LINEAR | DELTA,
    "kimi_linear": MLA | LINEAR | {"linear_num_heads": 4, "linear_head_dim": 32},
    "mamba2": MAMBA2,
    "lfm2": {"layer_types": ["conv", "conv", "full_attention", "conv"]},
    "minimax_m3_vl_text": {
        "layer_types": ["full_attention", "minimax_m3_sparse"] * 2,
        "index_head_dim": 32,
        "index_block_size": 64,
        "index_topk_blocks": 2,
        "num_local_experts": 4,
    },
}


def _bytes(value: Any, seen: set[tuple[int, tuple[int, ...]]]) -> int:
    """Bytes of the tensors in a layer's attributes, aliases counted once."""
    if torch.is_tensor(value):
        key = (value.data_ptr(), tuple(value.shape))
        if value.dim() == 0 or (key in seen and value.numel()):
            return 0
        seen.add(key)
        return int(value.numel() * value.element_size())
    if isinstance(value, dict):
        return sum(_bytes(item, seen) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(_bytes(item, seen) for item in value)
    return 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", TOYS)
def test_the_layout_counts_the_live_cache(model_type: str) -> None:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **(BASE | TOYS[model_type]))
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        out = model(torch.randint(3, 255, (1, TOKENS)), use_cache=True)
    cache = out.get("past_key_values") or out.get("cache_params") or out.get("cache")
    live, seen = 0, set[tuple[int, tuple[int, ...]]]()
    for layer in cache.layers:
        attributes = dict(vars(layer))
        if model_type == "deepseek_v4":
            attributes.pop("values", None)  # K and V are one vector: stored once
        live += _bytes(attributes, seen)
    layout = Layout.from_hf_config(config, dtype="float32")
    counted = (
        layout.entry_bytes(TOKENS) + layout.window_bytes_at(TOKENS) + layout.state_bytes(TOKENS)
    )
    assert counted == live
