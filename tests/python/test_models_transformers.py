"""Layers against transformers' own, weight for weight: MLA; V4's window, CSA and HCA."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers.models.deepseek_v4", reason="needs transformers with DeepSeek-V4")

import torch
from kvstore.models.deepseek.mla import LatentAttention
from kvstore.models.deepseek.rows import Step
from kvstore.models.deepseek.v4 import CsaAttention, HcaAttention, WindowAttention
from reference_models import toy
from torch import Tensor, nn
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3Attention,
    DeepseekV3RotaryEmbedding,
)
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4Attention,
    DeepseekV4RotaryEmbedding,
)

pytestmark = pytest.mark.torch

#: Layers of the toy: its type in transformers.
LAYERS = {
    0: "sliding_attention",
    2: "compressed_sparse_attention",
    3: "heavily_compressed_attention",
}


@torch.no_grad()
def test_mla_gives_what_transformers_gives() -> None:
    torch.set_num_threads(1)
    model, tokens = toy("deepseek-v3", "fp32"), 300
    shape, ours = model.shape, model.layers[1].attention
    assert isinstance(ours, LatentAttention)
    config = DeepseekV3Config(
        hidden_size=shape.hidden,
        num_hidden_layers=1,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        q_lora_rank=shape.hidden,
        kv_lora_rank=512,
        qk_nope_head_dim=shape.head_dim,
        qk_rope_head_dim=64,
        v_head_dim=shape.head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    config._attn_implementation = "eager"
    theirs: nn.Module = DeepseekV3Attention(config, 0).eval()
    theirs.load_state_dict(
        {
            "q_a_proj.weight": ours.query_down.weight,
            "q_a_layernorm.weight": ours.query_norm.weight,
            "q_b_proj.weight": ours.query_up.weight,
            "kv_a_proj_with_mqa.weight": ours.latent.weight,
            "kv_a_layernorm.weight": ours.latent_norm.weight,
            "kv_b_proj.weight": torch.cat((ours.key_up, ours.value_up), 1).flatten(0, 1),
            "o_proj.weight": ours.out.weight,
        }
    )
    x = torch.randn(tokens, shape.hidden, generator=torch.Generator().manual_seed(1))
    found = ours(x, Step(model.new_cache(), 0, tokens))
    at = torch.arange(tokens)
    mask = torch.zeros(1, 1, tokens, tokens).masked_fill_(at > at[:, None], float("-inf"))
    rotary = DeepseekV3RotaryEmbedding(config)(x, at[None])
    expected = theirs(x[None], rotary, mask)[0][0]
    assert float(expected.std()) > 1e-2
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-4)


def weights_of(ours: WindowAttention) -> dict[str, Tensor]:
    """Our weights under transformers' names."""
    shared = ours.shared
    found = {
        "q_a_proj.weight": shared.query_down.weight,
        "q_a_norm.weight": shared.query_norm.weight,
        "q_b_proj.weight": shared.query_up.weight,
        "kv_proj.weight": shared.row.weight,
        "kv_norm.weight": shared.row_norm.weight,
        "sinks": shared.sink,
        # The low-rank output in groups is one matrix here.
        "o_a_proj.weight": torch.eye(shared.heads * shared.width),
        "o_b_proj.weight": shared.out.weight,
    }
    pools = {}
    if isinstance(ours, HcaAttention | CsaAttention):
        pools["compressor"] = ours.pool
    if isinstance(ours, CsaAttention):
        pools["compressor.indexer"] = ours.key_pool
        found["compressor.indexer.q_b_proj.weight"] = ours.indexer.query.weight
        found["compressor.indexer.scorer.weights_proj.weight"] = ours.indexer.weight.weight
    for prefix, pool in pools.items():
        assert pool.bias is not None
        found |= {
            f"{prefix}.kv_proj.weight": pool.content.weight,
            f"{prefix}.gate_proj.weight": pool.score.weight,
            f"{prefix}.position_bias": pool.bias,
            f"{prefix}.kv_norm.weight": pool.norm.weight,
        }
    return found


@pytest.mark.parametrize("layer", LAYERS)
@torch.no_grad()
def test_a_v4_layer_gives_what_transformers_gives(layer: int) -> None:
    torch.set_num_threads(1)
    model, tokens = toy("deepseek-v4-flash", "fp32"), 400
    shape = model.shape
    config = DeepseekV4Config(
        hidden_size=shape.hidden,
        num_hidden_layers=4,
        num_attention_heads=shape.heads,
        q_lora_rank=shape.hidden,
        o_groups=1,
        o_lora_rank=shape.heads * 512,
        index_n_heads=shape.index_heads,
        index_topk=shape.topk,
        layer_types=[LAYERS.get(i, "sliding_attention") for i in range(4)],
        rope_theta=10_000.0,
        compress_rope_theta=10_000.0,
    )
    config._attn_implementation = "eager"
    assert config.sliding_window == 128
    theirs: nn.Module = DeepseekV4Attention(config, layer).eval()
    ours = model.layers[layer].attention
    assert isinstance(ours, WindowAttention)
    ours.shared.sink.normal_(generator=torch.Generator().manual_seed(5))
    theirs.load_state_dict(weights_of(ours))
    x = torch.randn(tokens, shape.hidden, generator=torch.Generator().manual_seed(1))
    found = ours(x, Step(model.new_cache(), 0, tokens))
    ours.shared.sink.zero_()

    at = torch.arange(tokens)
    rotary = DeepseekV4RotaryEmbedding(config)
    positions = {kind: rotary(x, at[None], layer_type=kind) for kind in ("main", "compress")}
    distance = at[:, None] - at
    mask = torch.zeros(1, 1, tokens, tokens)
    mask.masked_fill_((distance < 0) | (distance >= 128), float("-inf"))
    expected = theirs(x[None], positions, at[None], mask)[0][0]
    assert float(expected.std()) > 1e-2
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-4)
