"""Fewer bits: a live bf16 cache of MLA stored as the 656-byte records of FlashMLA.

That loses precision, so it happens only when a form asks for it, and what is stored so is never
found by a cache that keeps the live bytes.
"""

import torch
from common import prompt, small_store
from kvstore.models.families import configuration
from kvstore.torch import PrefixCache
from transformers import AutoModelForCausalLM

WIDTHS = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 32, "v_head_dim": 32}
SMALL = {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 256, "q_lora_rank": 64}
LAYERS = {"num_hidden_layers": 3, "num_attention_heads": 4, "first_k_dense_replace": 3}

torch.manual_seed(0)
config = configuration("deepseek_v3", {}, WIDTHS | SMALL | LAYERS)
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
ids = prompt(1000)
with small_store() as store:
    for form in ("transformers", "flashmla:fp8_ds_mla", "vllm:nvfp4_ds_mla"):
        prefix = PrefixCache(store, model, form=form)
        _, live = prefix.prefill(ids)
        cache, usable = prefix.restore(ids)
        logits = prefix.binding.forward(ids[:, usable:], cache, usable)
        print(
            f"{form:<22} {prefix.layout.bytes_per_token()} B per token, logits off by at most "
            f"{(logits - live).abs().max():.4f} of {live.std():.2f}"
        )
