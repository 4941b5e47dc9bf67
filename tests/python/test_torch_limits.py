"""Rows that depend on more than their tokens: how long a prompt is, and what came with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

import kvstore  # noqa: E402
from kvstore.errors import InvalidArgument  # noqa: E402
from kvstore.models.families import toy, toy_model  # noqa: E402
from kvstore.torch import Policy, PrefixCache, Unsupported, fingerprint  # noqa: E402
from torch_caches import EVERYWHERE, honest, opened, prompt  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

QUIET: dict[str, Any] = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
ROPES: dict[str, dict[str, Any]] = {
    "dynamic": {"factor": 4.0},
    "longrope": {"factor": 4.0, "short_factor": [1.0] * 16, "long_factor": [4.0] * 16},
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kvstore.Store]:
    torch.set_num_threads(1)
    with opened(tmp_path) as store, torch.no_grad():
        yield store


@pytest.mark.parametrize("kind", ROPES)
def test_positions_that_depend_on_the_prompt_s_length(store: kvstore.Store, kind: str) -> None:
    from transformers import AutoModelForCausalLM

    config = toy("llama")
    config.max_position_embeddings = 256
    config.rope_parameters = ROPES[kind] | {
        "rope_type": kind,
        "rope_theta": 10000.0,
        "original_max_position_embeddings": 256,
    }
    torch.manual_seed(1)
    causal: Any = AutoModelForCausalLM
    model = causal.from_config(config).eval()
    prefix = PrefixCache(store, model)
    model(prompt(400, seed=3))  # changes the frequencies until the next short prompt
    ids = prompt(200)
    with prefix.session(ids) as session:
        out = model.generate(ids, max_new_tokens=150, **QUIET, **session.kwargs)
    assert "depend on the length of the prompt" in str(session.saved.stopped)
    assert session.saved.tokens == 192
    assert honest(prefix, out[:, :250]) == 192
    with pytest.raises(Unsupported, match="300 tokens; with this model's positions"):
        prefix.restore(prompt(300))


def test_what_extra_keys_stand_for_is_not_computed_again(store: kvstore.Store) -> None:
    """A replay has the tokens only: blocks with a picture are never part of one."""
    prefix = PrefixCache(store, toy_model("lfm2", seed=1), policy=Policy.never())
    keys = {4: b"digest of a picture, 16 or more"}
    ids = prompt(400)
    prefix.prefill(ids, extra_keys=keys)
    assert prefix.restore(ids, extra_keys=keys)[1] == 384
    assert prefix.restore(ids[:, :330], extra_keys=keys)[1] == 256
    prefix.prefill(ids)
    assert prefix.restore(ids[:, :330])[1] == 320


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "lfm2", "deepseek_v3"])
def test_tokens_taken_back_behind_a_block_end(store: kvstore.Store, family: str) -> None:
    """A draft that filled a block is stored under its own tokens, what replaced it under others."""
    model = toy_model(family, "float32", seed=1)
    prefix = PrefixCache(store, model, policy=EVERYWHERE)
    draft = prompt(200)
    final = torch.cat([draft[:, :131], prompt(129, seed=9)], dim=1)
    with prefix.session(draft[:, :130]) as session:
        for layer in session.cache.layers:
            layer.record_past = True  # as generate does for assisted decoding
        model(draft[:, 128:], cache=session.cache)
        session.cache.crop(-69)
        model(final[:, 131:], cache=session.cache)
    assert (honest(prefix, draft), honest(prefix, final)) == (192, 256)


def test_pictures_need_keys_of_their_own(store: kvstore.Store) -> None:
    """What an image token gives is the picture's, which the tokens do not say."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    text = toy("gemma3_text").to_dict() | {"vocab_size": 300}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    fields: dict[str, Any] = {"text_config": text, "vision_config": vision}
    fields |= {"image_token_index": 290, "boi_token_index": 291, "eoi_token_index": 292}
    torch.manual_seed(1)
    made: Any = Gemma3ForConditionalGeneration
    model = made(Gemma3Config(mm_tokens_per_image=4, **fields)).eval()
    prefix = PrefixCache(store, model)
    ids = prompt(300)
    ids[0, 80:84] = 290
    picture = {"pixel_values": torch.randn(1, 3, 32, 32), "token_type_ids": (ids == 290).long()}
    options = QUIET | {"max_new_tokens": 20}
    with pytest.raises(InvalidArgument, match="token_type_ids: changes what the tokens give"):
        prefix.generate(ids, **picture, **options)
    want = model.generate(ids, **picture, **options)
    keys = {1: b"digest of a picture, 16 or more"}
    with prefix.session(ids, prefill=False, extra_keys=keys) as session:
        got = model.generate(ids, **picture, **options, **session.kwargs)
    assert torch.equal(got, want)
    assert session.saved.tokens == 256
    # Text alone is like that of a text model.
    plain = prompt(200)
    got = prefix.generate(plain, **options)
    assert torch.equal(got, model.generate(plain, **options))
    assert honest(prefix, plain) == 192


def test_weights_that_wait_elsewhere(store: kvstore.Store) -> None:
    accelerate = pytest.importorskip("accelerate")
    model = toy_model("llama", "float32", seed=1)
    ids = prompt(200)
    want = model.generate(ids, max_new_tokens=20, **QUIET)
    model = accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    weights = fingerprint("toy", "name", allow_weights_by_name=True)
    prefix = PrefixCache(store, model, weights=weights)
    for _ in range(2):
        assert torch.equal(prefix.generate(ids, max_new_tokens=20, **QUIET), want)
