"""Layouts of transformers configurations."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kvstore.layouts import CannotPlace, Layout

LLAMA = {
    "model_type": "llama",
    "vocab_size": 128_256,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
}
V3 = {
    "model_type": "deepseek_v3",
    "vocab_size": 129_280,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
}
V32 = V3 | {
    "model_type": "deepseek_v32",
    "index_head_dim": 128,
    "index_topk": 2048,
    "layer_types": ["indexed_attention"] * 61,
}
V4_FLASH = {
    "model_type": "deepseek_v4",
    "vocab_size": 129_280,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "hidden_size": 4096,
    "index_head_dim": 128,
    "index_topk": 512,
    "sliding_window": 128,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
}
NEXT = {
    "model_type": "qwen3_next",
    "vocab_size": 151_936,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_size": 2048,
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12,
}
OSS = {
    "model_type": "gpt_oss",
    "vocab_size": 201_088,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_size": 2880,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}
M3 = LLAMA | {
    "model_type": "minimax_m3",
    "num_hidden_layers": 60,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "sparse_attention_config": {
        "sparse_attention_freq": [0] * 3 + [1] * 57,
        "sparse_index_dim": 128,
        "sparse_topk_blocks": 16,
        "sparse_block_size": 128,
    },
}
K3 = V3 | {
    "model_type": "kimi_k3",
    "num_hidden_layers": 93,
    "num_nextn_predict_layers": 0,
    "linear_attn_config": {
        "full_attn_layers": [*range(4, 93, 4), 93],
        "num_heads": 96,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "llama-3-70b"),
        (V3, "deepseek-v3"),
        (V32, "deepseek-v3.2"),
        (V4_FLASH, "deepseek-v4-flash"),
        (NEXT, "qwen3-next-80b"),
        (OSS, "gpt-oss-120b"),
        (M3, "minimax-m3"),
        (K3, "kimi-k3"),
    ],
)
def test_a_configuration_gives_the_registrys_layout(config: dict[str, Any], name: str) -> None:
    ours = Layout.from_hf_config(config)
    registry = Layout.named(name, "transformers")
    assert ours.bytes_per_token() == registry.bytes_per_token()
    assert ours.window_bytes == registry.window_bytes
    assert ours.checkpoint_bytes == registry.checkpoint_bytes
    assert ours.read_bytes(100_000) == registry.read_bytes(100_000)
    layers = [[g.layers for g in layout.groups] for layout in (ours, registry)]
    assert sorted(layers[0]) == sorted(layers[1])


def test_a_configuration_has_the_forms_of_its_family() -> None:
    assert Layout.from_hf_config(V32, form="vllm:fp8_ds_mla").bytes_per_token() == 48_068
    native = Layout.from_hf_config(V4_FLASH, form="native")
    assert native.canonical() == Layout.named("deepseek-v4-flash").canonical()
    drafted = Layout.from_hf_config(V32, form="vllm:fp8_ds_mla", draft=True)
    assert drafted.bytes_per_token() == 48_068 + 788


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_the_type_of_the_cache(dtype: str, size: int) -> None:
    per_token = 2 * 80 * 8 * 128 * size
    assert Layout.from_hf_config(LLAMA, dtype=dtype).bytes_per_token() == per_token
    assert Layout.from_hf_config(LLAMA | {"torch_dtype": dtype}).bytes_per_token() == per_token


def test_objects_files_and_folders(tmp_path: Path) -> None:
    expected = Layout.from_hf_config(LLAMA)
    assert Layout.from_hf_config(SimpleNamespace(**LLAMA)) == expected
    nested = {"model_type": "some_vlm", "text_config": LLAMA}
    assert Layout.from_hf_config(nested) == expected
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert Layout.from_hf_config(tmp_path) == expected
    assert Layout.from_hf_config(str(tmp_path / "config.json")) == expected
    with pytest.raises(CannotPlace, match="nowhere"):
        Layout.from_hf_config(tmp_path / "nowhere")


def test_layers_that_share_or_keep_nothing_own_no_pages() -> None:
    shared = OSS | {"model_type": "x", "num_kv_shared_layers": 6}
    assert max(max(g.layers) for g in Layout.from_hf_config(shared).groups) == 29
    types = ["sliding_attention", "mlp", "full_attention"] * 12
    groups = Layout.from_hf_config(OSS | {"model_type": "x", "layer_types": types}).groups
    assert sorted(len(g.layers) for g in groups) == [12, 12]


def test_layers_may_differ() -> None:
    wide = {str(i): {"head_dim": 128, "num_key_value_heads": 2} for i in range(1, 36, 2)}
    layout = Layout.from_hf_config(OSS | {"model_type": "x", "per_layer_config": wide})
    sizes = {g.name: g.record_bytes for g in layout.groups}
    assert sizes == {"window": 2 * 8 * 64 * 2, "kv": 2 * 2 * 128 * 2}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"vocab_size": None}, "vocab_size"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_attention_heads": None}, "num_attention_heads"),
        ({"hidden_size": None}, "head_dim"),
        ({"layer_types": ["quantum_attention"] * 80}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 80}, "layer_types"),
        ({"layer_types": ["indexed_attention"] * 80}, "index_head_dim"),
        ({"layer_types": ["sliding_attention"] * 80}, "sliding_window"),
        ({"layer_types": ["moe"] * 80}, "layer_types"),
        ({"torch_dtype": "float8_e4m3fn"}, "dtype"),
        ({"model_type": "rwkv"}, "model_type"),
        ({"block_configs": [{}]}, "block_configs"),
        ({"compress_ratios": [4, 64]}, "compress_ratios"),
    ],
)
def test_what_has_no_place_names_its_field(change: dict[str, Any], field: str) -> None:
    config = {"model_type": "x"} | {k: v for k, v in LLAMA.items() if k != "model_type"} | change
    with pytest.raises(CannotPlace) as caught:
        Layout.from_hf_config(config)
    assert caught.value.field == field
    assert caught.value.why


def test_blocks_of_another_length() -> None:
    layout = Layout.from_hf_config(LLAMA, block_tokens=16)
    assert layout.block_tokens == 16
    assert layout.body_bytes == 16 * layout.bytes_per_token()
    assert layout == Layout.from_hf_config(LLAMA).with_block_tokens(16)
    assert layout.canonical() != Layout.from_hf_config(LLAMA).canonical()
    v4 = Layout.from_hf_config(V4_FLASH, block_tokens=384)
    assert v4.body_bytes == 3 * Layout.from_hf_config(V4_FLASH).body_bytes
    assert v4.checkpoint_bytes == Layout.from_hf_config(V4_FLASH).checkpoint_bytes


@pytest.mark.parametrize("block_tokens", [0, 64, 192])
def test_blocks_that_are_no_multiple_of_the_alignment(block_tokens: int) -> None:
    wrong = f"block_tokens = {block_tokens}.* multiple of the layout's alignment, 128"
    with pytest.raises(ValueError, match=wrong):
        Layout.from_hf_config(V4_FLASH, block_tokens=block_tokens)
    with pytest.raises(ValueError, match="block_tokens"):
        Layout.from_hf_config(LLAMA, block_tokens=1 << 17)
