"""Ways of generating over a stored prefix: each gives what it gives without a store, or says why
it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

import kvstore  # noqa: E402
from kvstore.errors import InvalidArgument  # noqa: E402
from kvstore.models.families import toy_model  # noqa: E402
from kvstore.torch import PrefixCache, Unsupported  # noqa: E402
from torch_caches import honest, opened, prompt  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

#: One family of each kind of layer whose attention does not flip on the rounding of chunks.
FAMILIES = ["llama", "gemma3_text", "deepseek_v3", "deepseek_v4", "qwen3_5_text", "mamba2", "lfm2"]
#: Those whose caches can be cut back, as assisted decoding does.
CROPPABLE = ["llama", "gemma3_text", "deepseek_v3", "lfm2"]
NEW: dict[str, Any] = {"max_new_tokens": 40, "pad_token_id": 0, "eos_token_id": None}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kvstore.Store]:
    torch.set_num_threads(1)
    with opened(tmp_path) as store, torch.no_grad():
        yield store


def both(store: kvstore.Store, family: str, ids: Any, **options: Any) -> tuple[Any, Any, Any]:
    """Output with a prefix stored by a first call, without a store, and the prefix cache."""
    model = toy_model(family, "float32", seed=1)
    prefix = PrefixCache(store, model)
    outputs = []
    for generate in (prefix.generate, prefix.generate, model.generate):
        torch.manual_seed(7)
        outputs.append(generate(ids, **NEW, **options))
    assert torch.equal(outputs[0], outputs[1])
    return outputs[1], outputs[2], prefix


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options", [{"do_sample": False}, {"do_sample": True}, {"num_beams": 3, "do_sample": False}]
)
def test_same_tokens(store: kvstore.Store, family: str, options: dict[str, Any]) -> None:
    ids = prompt(200)
    got, want, prefix = both(store, family, ids, **options)
    assert torch.equal(got, want)
    assert prefix.restore(ids)[1] == 199 // prefix.layout.block_tokens * prefix.layout.block_tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_same_tokens_under_inference_mode(store: kvstore.Store, family: str) -> None:
    with torch.inference_mode():
        got, want, prefix = both(store, family, prompt(200), do_sample=False)
        assert torch.equal(got, want)
        cache, _ = prefix.restore(prompt(200))
    # What was restored under inference mode can be continued without it.
    usable = 199 // prefix.layout.block_tokens * prefix.layout.block_tokens
    prefix.binding.forward(prompt(200)[:, usable:], cache, usable)


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_both_names_of_the_cache(store: kvstore.Store, name: str) -> None:
    """transformers 5 calls it cache, versions before past_key_values, which 5 still takes."""
    model = toy_model("llama", "float32", seed=1)
    prefix = PrefixCache(store, model)
    want = model.generate(prompt(200), do_sample=False, **NEW)
    for usable in (0, 192):
        with prefix.session(prompt(200)) as session:
            assert session.plan.usable == usable
            got = model.generate(prompt(200), do_sample=False, **NEW, **{name: session.cache})
        assert torch.equal(got, want)
        assert session.saved.tokens == 192


def test_a_prefill_loop_of_ones_own(store: kvstore.Store) -> None:
    """Chunks of any length, stored as they are computed; the same prompt then goes on from them."""
    model = toy_model("gemma3_text", "float32", seed=1)
    prefix = PrefixCache(store, model)
    ids = prompt(300)
    with prefix.session(ids, prefill=False) as session:
        for start, end in ((0, 64), (64, 128), (128, 192), (192, 256), (256, 300)):
            model(ids[:, start:end], cache=session.cache, use_cache=True)
            assert session.saved.tokens == end // 64 * 64
    assert prefix.restore(ids)[1] == 256


def test_several_returned_sequences(store: kvstore.Store) -> None:
    got, want, _ = both(store, "llama", prompt(200), do_sample=True, num_return_sequences=3)
    assert torch.equal(got, want)


@pytest.mark.parametrize("family", CROPPABLE)
def test_assisted_decoding(store: kvstore.Store, family: str) -> None:
    ids = prompt(100).repeat(1, 2)  # so that the look-up finds something
    got, want, prefix = both(store, family, ids, do_sample=False, prompt_lookup_num_tokens=3)
    assert torch.equal(got, want)
    # What was stored on the way is what the tokens say: the output goes on from it.
    longer = torch.cat([got, prompt(30, seed=3)], dim=1)
    cache, usable = prefix.restore(longer)
    block = prefix.layout.block_tokens
    assert usable >= 200 // block * block
    live = prefix.binding.new_cache()
    for start in range(0, usable, block):
        prefix.binding.forward(longer[:, start : start + block], live, start)
    rest = longer[:, usable:]
    restored = prefix.binding.forward(rest, cache, usable)
    torch.testing.assert_close(restored, prefix.binding.forward(rest, live, usable))


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "deepseek_v4"])
def test_batch_with_left_padding(store: kvstore.Store, family: str) -> None:
    ids = torch.cat([prompt(200, seed=seed) for seed in (1, 2, 3)])
    mask = torch.ones_like(ids)
    for row, pad in ((1, 70), (2, 3)):
        ids[row, :pad], mask[row, :pad] = 0, 0
    got, want, prefix = both(store, family, ids, attention_mask=mask, do_sample=False)
    assert torch.equal(got, want)
    with prefix.batch(ids, mask) as batch:
        block = prefix.layout.block_tokens
        assert batch.usable == [n // block * block for n in (199, 129, 196)]
    # A prompt of the batch is found by itself, and goes on from its output.
    alone = torch.cat([got[1, 70:], prompt(9)[0]])
    assert prefix.restore(alone)[1] == (got.shape[1] - 70 - 1) // block * block


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_5_text", "mamba2"])
@pytest.mark.parametrize("tokens", [120, 200])
def test_batch_with_padding_before_every_prompt(
    store: kvstore.Store, family: str, tokens: int
) -> None:
    """No prompt is as long as the batch is wide, with windows longer and shorter than that."""
    ids = torch.cat([prompt(tokens, seed=seed) for seed in (1, 2)])
    mask = torch.ones_like(ids)
    for row, pad in ((0, 7), (1, tokens // 2)):
        ids[row, :pad], mask[row, :pad] = 0, 0
    got, want, prefix = both(store, family, ids, attention_mask=mask, do_sample=False)
    assert torch.equal(got, want)
    assert honest(prefix, got[:1, 7:]) == (tokens - 7 + 39) // 64 * 64


def test_batch_of_one_length_of_a_pooling_model(store: kvstore.Store) -> None:
    """Prompts of one length share a batch, open pooling groups included."""
    prefix = PrefixCache(store, toy_model("deepseek_v4", "float32", seed=1))
    ids = torch.cat([prompt(203, seed=seed) for seed in (1, 2)])
    binding = prefix.binding
    with prefix.batch(ids) as batch:
        joined = [
            binding.module(ids[:, 202:], cache=batch.cache).logits[:, -1],
            binding.module(prompt(2).view(2, 1), cache=batch.cache).logits[:, -1],
        ]
    for row in range(2):
        cache, _ = prefix.prefill(ids[row, :202])
        alone = [
            binding.forward(ids[row : row + 1, 202:], cache, 202),
            binding.forward(prompt(2)[:, row : row + 1], cache, 203),
        ]
        torch.testing.assert_close(torch.cat([j[row : row + 1] for j in joined]), torch.cat(alone))


def test_padding_of_a_pooling_model_is_refused(store: kvstore.Store) -> None:
    prefix = PrefixCache(store, toy_model("deepseek_v4", "float32", seed=1))
    ids = prompt(200).repeat(2, 1)
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    with pytest.raises(Unsupported, match="cannot share a batch"):
        prefix.generate(ids, attention_mask=mask, **NEW)


def test_a_static_cache_is_refused(store: kvstore.Store) -> None:
    model = toy_model("llama", "float32", seed=1)
    prefix = PrefixCache(store, model)
    with pytest.raises(Unsupported, match="cache_implementation = 'static'"):
        prefix.generate(prompt(100), cache_implementation="static", **NEW)
    model.generation_config.cache_implementation = "static"
    with pytest.raises(Unsupported, match="cache_implementation = 'static'"):
        prefix.generate(prompt(100), **NEW)
    with pytest.raises(InvalidArgument, match=r"input_ids: a tensor \[batch, tokens\] wanted"):
        prefix.generate(prompt(100)[0], cache_implementation=None, **NEW)


def test_wrong_calls_inside_a_session(store: kvstore.Store) -> None:
    model = toy_model("llama", "float32", seed=1)
    prefix = PrefixCache(store, model)
    ids = prompt(200)
    with (
        pytest.raises(InvalidArgument, match="position 192 on are not those of the prompt"),
        prefix.session(ids) as session,
    ):
        model.generate(prompt(200, seed=9), **NEW, **session.kwargs)
    with (
        pytest.raises(InvalidArgument, match="brings no new one"),
        prefix.session(ids) as session,
    ):
        model.generate(ids[:, :192], **NEW, **session.kwargs)
    with (
        pytest.raises(InvalidArgument, match="called with 3: beams"),
        prefix.session(ids) as session,
    ):
        model.generate(ids, num_beams=3, **NEW, **session.kwargs)
    session = prefix.session(ids)
    with pytest.raises(InvalidArgument, match="not entered"):
        session.kwargs  # noqa: B018
    # No hook is left behind.
    assert torch.equal(
        model.generate(ids, do_sample=False, **NEW), model.generate(ids, do_sample=False, **NEW)
    )


def test_other_calls_of_the_model_are_not_followed(store: kvstore.Store) -> None:
    model = toy_model("llama", "float32", seed=1)
    prefix = PrefixCache(store, model)
    with prefix.session(prompt(200)) as session:
        model(prompt(50, seed=4))
        assert session.length == 192
