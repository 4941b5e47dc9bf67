"""The built-in demo model: a small DeepSeek-V3-style decoder over bytes, trained on Python source.

    from kvstore.models import demo

    model = demo.load()
    prompt = demo.prompts(6000, seed=1)[0]
    cache = model.new_cache()
    logits = model.prefill(prompt, cache)
    print(bytes(model.generate(logits[-1], cache, 64)))

How it was trained is in `train.py` and `train.log`; how well, in the metadata of
`weights.safetensors`, which `describe` gives back.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from kvstore.models.demo.prompts import prompts
from kvstore.models.mla import MlaDecoder
from kvstore.models.mla_cache import CacheLayout
from kvstore.models.mla_config import MlaConfig
from kvstore.models.mla_weights import MlaWeights
from kvstore.models.safetensors import read

__all__ = ["config_file", "describe", "load", "prompts", "weights_file"]


def config_file() -> Traversable:
    """`config.json` of the model, as transformers' `DeepseekV3Config` reads it."""
    return files(__package__) / "config.json"


def weights_file() -> Traversable:
    """`weights.safetensors`, bfloat16, under DeepSeek-V3's tensor names in transformers."""
    return files(__package__) / "weights.safetensors"


def load() -> MlaDecoder:
    """The model, ready to run in numpy (float32, absorbed)."""
    config = MlaConfig.read(config_file())
    return MlaDecoder(config, MlaWeights.absorb(config, read(weights_file()).tensors))


def describe() -> dict[str, str | int]:
    """What the model is: sizes (elements, bytes), and the weights' metadata (training, quality)."""
    config = MlaConfig.read(config_file())
    stored = read(weights_file())
    layout = CacheLayout.of(config)
    return {
        "parameters": sum(tensor.size for tensor in stored.tensors.values()),
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "heads": config.num_attention_heads,
        "positions": config.max_position_embeddings,
        "cache_bytes_per_token": layout.bytes_per_token,
        "block_tokens": layout.block_tokens,
        "body_bytes": layout.body_bytes,
        **stored.metadata,
    }
