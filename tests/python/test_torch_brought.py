"""Caches that callers bring: saved when they hold the rows of the tokens, refused otherwise."""

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
from torch_caches import honest, opened, prompt, stored_everywhere  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

IDS = prompt(320)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kvstore.Store]:
    torch.set_num_threads(1)
    with opened(tmp_path) as store, torch.no_grad():
        yield store


def test_a_cache_that_does_not_count_its_tokens(store: kvstore.Store) -> None:
    """The tokens that generate returns are one more than its cache holds."""
    prefix = PrefixCache(store, toy_model("mamba2", "float32", seed=1))
    cache = prefix.binding.new_cache()
    prefix.binding.forward(IDS[:, :256], cache, 0)
    with pytest.raises(InvalidArgument, match="length: the cache does not count its tokens"):
        prefix.save(IDS, cache)
    prefix.save(IDS, cache, length=256)
    assert honest(prefix, IDS) == 256


def test_a_wrong_length(store: kvstore.Store) -> None:
    prefix = PrefixCache(store, toy_model("llama", "float32", seed=1))
    cache = prefix.binding.new_cache()
    prefix.binding.forward(IDS[:, :200], cache, 0)
    with pytest.raises(InvalidArgument, match="length = 320: the cache holds 200 tokens"):
        prefix.save(IDS, cache, length=320)
    with pytest.raises(InvalidArgument, match="input_ids has 100 tokens, the cache holds 200"):
        prefix.save(IDS[:, :100], cache)
    assert prefix.save(IDS, cache).tokens == 192
    assert honest(prefix, IDS) == 192


@pytest.mark.parametrize("chunk", [64, 128, 256])
def test_windows_that_went_by_in_a_chunk_are_named(store: kvstore.Store, chunk: int) -> None:
    """Of 127 rows at token 256 one is missing of what token 192 needs."""
    prefix = PrefixCache(store, toy_model("mistral", "float32", seed=1), chunk_tokens=chunk)
    with prefix.session(IDS[:, :257]) as session:
        pass
    assert set(session.saved.skipped) == (set() if chunk == 64 else {192})
    assert honest(prefix, IDS[:, :257]) == (256 if chunk == 64 else 0)


def test_windows_that_a_cache_no_longer_has_are_named(store: kvstore.Store) -> None:
    prefix = PrefixCache(store, toy_model("gemma3_text", "float32", seed=1))
    cache = prefix.binding.new_cache()
    prefix.binding.forward(IDS[:, :319], cache, 0)
    assert set(prefix.save(IDS, cache).skipped) == {192}
    assert honest(prefix, IDS) == 0


def test_several_sequences(store: kvstore.Store) -> None:
    prefix = PrefixCache(store, toy_model("llama", "float32", seed=1))
    cache = prefix.binding.new_cache()
    prefix.binding.forward(torch.cat([prompt(320, seed=4), IDS]), cache, 0)
    with pytest.raises(InvalidArgument, match="cache: 2 sequences, 1 wanted"):
        prefix.save(IDS, cache)


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_caches_of_other_kinds(store: kvstore.Store, family: str) -> None:
    """A static cache has rows that hold no token; a quantised one has no rows of its tokens."""
    from transformers import QuantizedCache, StaticCache

    model = toy_model(family, "float32", seed=1)
    prefix = stored_everywhere(store, model)
    caches: list[Any] = [StaticCache(config=model.config, max_cache_len=512)]
    if family == "llama":
        caches.append(QuantizedCache(backend="fp8", config=model.config))
    for cache in caches:
        prefix.binding.forward(IDS[:, :64], cache, 0)
        with pytest.raises(Unsupported, match=r"Layer, a Dynamic\w*Layer wanted"):
            prefix.save(IDS[:, :64], cache)
    assert prefix.restore(IDS)[1] == 0


def test_rows_of_another_type(store: kvstore.Store) -> None:
    """float16 rows have the size of bfloat16 ones."""
    prefix = PrefixCache(store, toy_model("llama", "bfloat16", seed=1))
    other = PrefixCache(store, toy_model("llama", "float16", seed=1))
    cache, _ = other.prefill(IDS)
    with pytest.raises(Unsupported, match=r"of torch.float16, .* of torch.bfloat16 wanted"):
        prefix.save(IDS, cache)
