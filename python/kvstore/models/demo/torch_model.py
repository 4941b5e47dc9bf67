"""The demo model in torch, for training only: the plain form of multi-head latent attention.

The tensors have the names and shapes of DeepSeek-V3 checkpoints in transformers
(`DeepseekV3ForCausalLM` without query compression and without experts), so the trained weights
load there unchanged. The form with absorption, which reads the cache, is `kvstore.models.mla`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvstore.models.mla_config import MlaConfig


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE on [..., T, d]: dimension i turns together with dimension i + d/2."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


BLOCK = 256
"""Queries per step of `causal_attention`, in tokens."""


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v over [B, heads, T, d], each row over itself and what precedes it.

    At the short contexts that training mostly uses, this takes half the time of torch's fused CPU
    kernel (forward and backward, bf16); above 4,096 tokens the two are level.
    """
    scale = query.shape[-1] ** -0.5
    rows = []
    for start in range(0, query.shape[2], BLOCK):
        part = query[:, :, start : start + BLOCK] * scale
        end = start + part.shape[2]
        scores = part @ key[:, :, :end].transpose(2, 3)
        future = torch.full((end - start, end - start), -torch.inf, dtype=scores.dtype).triu(1)
        scores = torch.cat((scores[..., :start], scores[..., start:] + future), dim=-1)
        rows.append(scores.softmax(-1) @ value[:, :, :end])
    return torch.cat(rows, dim=2)


class Attention(nn.Module):
    def __init__(self, c: MlaConfig) -> None:
        super().__init__()
        self.c = c
        heads = c.num_attention_heads
        self.q_proj = linear(c.hidden_size, heads * c.qk_head_dim)
        self.kv_a_proj_with_mqa = linear(c.hidden_size, c.cache_width)
        self.kv_a_layernorm = RMSNorm(c.kv_lora_rank, c.rms_norm_eps)
        self.kv_b_proj = linear(c.kv_lora_rank, heads * (c.qk_nope_head_dim + c.v_head_dim))
        self.o_proj = linear(heads * c.v_head_dim, c.hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        c, (batch, length, _) = self.c, x.shape
        heads = c.num_attention_heads
        q = self.q_proj(x).view(batch, length, heads, c.qk_head_dim).transpose(1, 2)
        q_nope, q_rope = q.split((c.qk_nope_head_dim, c.qk_rope_head_dim), dim=-1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split(
            (c.kv_lora_rank, c.qk_rope_head_dim), dim=-1
        )
        latent = self.kv_a_layernorm(latent)
        k_rope = rotate(k_rope, cos, sin)
        if not self.training:  # these two are what a cache keeps, and it keeps them in bf16
            latent = latent.bfloat16().float()
            k_rope = k_rope.bfloat16().to(x.dtype)
        kv = self.kv_b_proj(latent).view(batch, length, heads, -1).transpose(1, 2)
        k_nope, value = kv.split((c.qk_nope_head_dim, c.v_head_dim), dim=-1)
        shared = k_rope[:, None].to(k_nope.dtype).expand(-1, heads, -1, -1)
        query = torch.cat((q_nope, rotate(q_rope, cos, sin)), dim=-1)
        key = torch.cat((k_nope, shared), dim=-1)
        with torch.autocast("cpu", enabled=False):  # softmax of bf16 scores stays bf16
            out = causal_attention(query, key, value)
        mixed: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return mixed


class Mlp(nn.Module):
    def __init__(self, c: MlaConfig) -> None:
        super().__init__()
        self.gate_proj = linear(c.hidden_size, c.intermediate_size)
        self.up_proj = linear(c.hidden_size, c.intermediate_size)
        self.down_proj = linear(c.intermediate_size, c.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    def __init__(self, c: MlaConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = Mlp(c)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Trunk(nn.Module):
    def __init__(self, c: MlaConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList([Layer(c) for _ in range(c.num_hidden_layers)])
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)


class Decoder(nn.Module):
    """tokens int64 [B, T] -> logits [B, T, vocab]; the embedding is the output matrix too."""

    cos: Tensor
    sin: Tensor

    def __init__(self, c: MlaConfig) -> None:
        super().__init__()
        self.config = c
        self.model = Trunk(c)
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(parameter)  # each layer starts as the identity
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        half = c.qk_rope_head_dim // 2
        turn = c.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(c.max_position_embeddings, dtype=torch.float64)[:, None] * turn
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)
