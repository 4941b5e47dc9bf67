"""Weights of an MLA decoder, with the up-projections absorbed.

A DeepSeek checkpoint holds multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)
as it is trained. With h the token's hidden vector and c its latent of r values:

    c        = norm(W_DKV h)                what the cache keeps of a token, with the rope key
    q_nope_i = W_Q_i h                      content part of head i's query
    k_nope_i = W_UK_i c,  v_i = W_UV_i c    keys and values of head i, made from the latent

Computed like that, every step would expand all past latents to keys and values of all heads. But
the score needs only the product q_nope_i . (W_UK_i c) = (W_UK_i^T W_Q_i h) . c, and the output only
the sum over past tokens W_O_i (sum p W_UV_i c) = (W_O_i W_UV_i) (sum p c). So both matrices of an
up-projection can be multiplied into their neighbours once, when the weights are loaded:

    W_QK_i = W_UK_i^T W_Q_i    [r, hidden]       the query, directly in the space of the latent
    W_OV_i = W_O_i W_UV_i      [hidden, r]       the output, directly from the mean of the latents

and no key or value of any head is ever made. What is left is attention with one shared key of
r + rope values and, as value, the first r of the same: the cache itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvstore.models.mla_config import MlaConfig

__all__ = ["Array", "LayerWeights", "MlaWeights"]

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer, float32; matrices are [inputs, outputs], so that rows of tokens stand left."""

    attention_norm: Array
    """[hidden]"""
    query: Array
    """[hidden, heads * (r + rope)]: per head W_QK transposed, then the rope part of W_Q. It carries
    the softmax scale too."""
    record: Array
    """[hidden, r + rope]: W_DKV and the rope key, what a token leaves in the cache before the
    latent's norm and the rotation."""
    latent_norm: Array
    """[r]"""
    output: Array
    """[heads * r, hidden]: per head W_OV transposed."""
    mlp_norm: Array
    """[hidden]"""
    gate: Array
    """[hidden, intermediate]"""
    up: Array
    """[hidden, intermediate]"""
    down: Array
    """[intermediate, hidden]"""


@dataclass(frozen=True, slots=True)
class MlaWeights:
    embedding: Array
    """[vocab, hidden]; transposed it is the output matrix as well (tied)."""
    layers: tuple[LayerWeights, ...]
    final_norm: Array
    """[hidden]"""

    @classmethod
    def absorb(cls, config: MlaConfig, tensors: Mapping[str, NDArray[Any]]) -> MlaWeights:
        """From the tensors of a checkpoint, under DeepSeek-V3's names in transformers.

        ValueError where a tensor is missing, has another shape, or is not part of this model.
        """
        left = dict(tensors)
        embedding = _take(left, "model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        layers = tuple(_layer(config, left, n) for n in range(config.num_hidden_layers))
        final_norm = _take(left, "model.norm.weight", config.hidden_size)
        if left:
            raise ValueError(f"tensors of another model: {', '.join(sorted(left))}")
        return cls(embedding, layers, final_norm)


def _take(tensors: dict[str, NDArray[Any]], name: str, *shape: int) -> Array:
    """Remove a tensor from the dictionary and check its shape."""
    found = tensors.pop(name, None)
    if found is None:
        raise ValueError(f"tensor {name!r} is missing")
    if found.shape != shape:
        raise ValueError(f"tensor {name!r}: shape {list(found.shape)}, expected {list(shape)}")
    return np.ascontiguousarray(found, dtype=np.float32)


def _layer(c: MlaConfig, tensors: dict[str, NDArray[Any]], number: int) -> LayerWeights:
    prefix = f"model.layers.{number}."
    heads, nope, rank = c.num_attention_heads, c.qk_nope_head_dim, c.kv_lora_rank

    def take(name: str, *shape: int) -> Array:
        return _take(tensors, f"{prefix}{name}.weight", *shape)

    # Checkpoints keep matrices as [outputs, inputs]; head after head along the outputs.
    q = take("self_attn.q_proj", heads * c.qk_head_dim, c.hidden_size)
    kv_b = take("self_attn.kv_b_proj", heads * (nope + c.v_head_dim), rank)
    o = take("self_attn.o_proj", c.hidden_size, heads * c.v_head_dim)
    # The products are made in float64: absorption then costs one rounding to float32, no more.
    q_heads = q.astype(np.float64).reshape(heads, c.qk_head_dim, c.hidden_size)
    kv_heads = kv_b.astype(np.float64).reshape(heads, nope + c.v_head_dim, rank)
    o_heads = o.astype(np.float64).reshape(c.hidden_size, heads, c.v_head_dim).transpose(1, 2, 0)
    w_uk, w_uv = kv_heads[:, :nope], kv_heads[:, nope:]
    w_qk = w_uk.transpose(0, 2, 1) @ q_heads[:, :nope]  # [heads, rank, hidden]
    query = np.concatenate((w_qk, q_heads[:, nope:]), axis=1) * c.softmax_scale
    w_ov = w_uv.transpose(0, 2, 1) @ o_heads  # [heads, rank, hidden]
    return LayerWeights(
        attention_norm=take("input_layernorm", c.hidden_size),
        query=_matrix(query.reshape(heads * c.cache_width, c.hidden_size).T),
        record=_matrix(take("self_attn.kv_a_proj_with_mqa", c.cache_width, c.hidden_size).T),
        latent_norm=take("self_attn.kv_a_layernorm", rank),
        output=_matrix(w_ov.reshape(heads * rank, c.hidden_size)),
        mlp_norm=take("post_attention_layernorm", c.hidden_size),
        gate=_matrix(take("mlp.gate_proj", c.intermediate_size, c.hidden_size).T),
        up=_matrix(take("mlp.up_proj", c.intermediate_size, c.hidden_size).T),
        down=_matrix(take("mlp.down_proj", c.hidden_size, c.intermediate_size).T),
    )


def _matrix(values: NDArray[Any]) -> Array:
    return np.ascontiguousarray(values, dtype=np.float32)
