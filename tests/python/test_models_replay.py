"""Replay: windows and states made again over stored entries, exactly or bounded."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
from kvstore.models.deepseek import RowCache, build
from reference_models import feed, same_rows, tokens, toy

pytestmark = pytest.mark.torch

HYBRID = ("deepseek-v4-flash", "deepseek-v4.1-flash")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def in_chunks(length: int, start: int = 0) -> list[int]:
    """Cuts at multiples of 128 between start and length."""
    return list(range(start - start % 128 + 128, length, 128))


@pytest.mark.parametrize("name", HYBRID)
@pytest.mark.parametrize("form", ["fp32", "native"])
@pytest.mark.parametrize("length", [129, 1665])
def test_exact_replay_gives_the_live_bits(name: str, form: str, length: int) -> None:
    """One window of tokens per layer, cut where the live cache was cut: every row is the same."""
    model, ids = toy(name, form), tokens(length + 30)
    live = model.new_cache()
    feed(model, ids[:, :length], live, in_chunks(length))
    start = model.replay_start(length, exact=True)
    assert start == max(0, length - len(model.layers) * 128)
    start -= start % 128
    restored = live.only("entries")
    assert restored.nbytes("window") == restored.nbytes("state") == 0
    model.replay(ids[:, start:length], restored, start, chunk=128)
    assert restored.length == length
    assert same_rows(restored, live)
    expected, found = (model(ids[:, length:], cache) for cache in (live, restored))
    assert torch.equal(expected, found)


@pytest.mark.parametrize("name", HYBRID)
def test_exact_replay_in_one_pass_agrees_up_to_rounding(name: str) -> None:
    model, ids, length = toy(name, "fp32"), tokens(1760), 1700
    live = model.new_cache()
    model(ids[:, :length], live)
    start = model.replay_start(length, exact=True)
    restored = live.only("entries")
    model.replay(ids[:, start:length], restored, start)
    expected, found = (model(ids[:, length:], cache) for cache in (live, restored))
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", HYBRID)
def test_one_window_less_per_layer_is_not_exact(name: str) -> None:
    """The bound is needed: half the tokens leave the upper layers' windows different."""
    model, ids, length = toy(name, "fp32"), tokens(1792), 1792
    live = model.new_cache()
    feed(model, ids, live, in_chunks(length))
    layers = len(model.layers)
    start = length - (layers // 2) * 128
    restored = live.only("entries")
    model.replay(ids[:, start:], restored, start, chunk=128)
    same = [
        torch.equal(live.rows["window", i][0], restored.rows["window", i][0]) for i in range(layers)
    ]
    # Window rows of layer l are exact after l + 1 windows.
    assert same[: layers // 2] == [True] * (layers // 2)
    assert not all(same)


@pytest.mark.parametrize("length", [1024, 1027])
@pytest.mark.parametrize("form", ["fp32", "native"])
def test_bounded_replay_is_an_approximation_above_the_first_layer(form: str, length: int) -> None:
    """128 tokens; global entries are read, never written; also where a group of two is open."""
    model, ids = toy("deepseek-v4.1-flash", form), tokens(length + 20)
    live = model.new_cache()
    feed(model, ids[:, :length], live, [length - 128])
    start = model.replay_start(length)
    assert start == length - 128
    assert model.layout.bounded_replay_tokens == 128
    restored = live.only("entries")
    entries = dict(restored.rows)
    model.replay(ids[:, start:length], restored, start)
    for (group, layer), planes in restored.rows.items():
        if model.new_cache().groups[group].kind == "entries":
            assert planes is entries[group, layer]
    assert restored.nbytes("window") == model.layout.window_bytes_at(length)
    assert restored.nbytes("state") == model.layout.state_bytes(length)
    # The first layer's rows are made of the tokens alone.
    assert torch.equal(live.rows["window", 0][0], restored.rows["window", 0][0])
    assert not torch.equal(live.rows["window", 1][0], restored.rows["window", 1][0])
    expected, found = (model(ids[:, length:], cache)[0] for cache in (live, restored))
    difference = float((found - expected).abs().max())
    assert 0 < difference < 0.5
    assert float(expected.std()) > 0.5


def test_bounded_replay_depends_on_where_it_ends() -> None:
    """So the same prefix may be stored with other bytes after a replay."""
    model, ids = toy("deepseek-v4.1-flash", "native"), tokens(1152)
    live = model.new_cache()
    model(ids[:, :1024], live)
    restored = live.only("entries")
    model.replay(ids[:, 896:1024], restored, 896)
    for cache in (live, restored):
        model(ids[:, 1024:], cache)
    assert not torch.equal(live.rows["r1", 6][0], restored.rows["r1", 6][0])
    assert torch.equal(live.rows["r1", 6][0][:1024], restored.rows["r1", 6][0][:1024])


def test_a_replay_of_a_short_prompt_begins_at_its_start() -> None:
    model, ids = toy("deepseek-v4.1-flash", "native"), tokens(90)
    live = model.new_cache()
    model(ids, live)
    restored = live.only("entries")
    assert model.replay_start(90) == 0
    model.replay(ids, restored, 0)
    assert same_rows(live, restored)


def cache_of(length: int) -> RowCache:
    model = toy("deepseek-v4.1-flash", "fp32")
    cache = model.new_cache()
    model(tokens(length), cache)
    return cache


@pytest.mark.parametrize(
    ("start", "given", "what"),
    [
        (100, 90, "input_ids: 90 given, 100 wanted from 100 on"),
        (150, 50, "start: 150 given, at most 72 wanted at 200"),
    ],
)
def test_misuse(start: int, given: int, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        toy("deepseek-v4.1-flash", "fp32").replay(tokens(given), cache_of(200), start)


def test_misuse_of_chunk() -> None:
    with pytest.raises(ValueError, match="chunk: 0 given"):
        toy("deepseek-v4.1-flash", "fp32").replay(tokens(200), cache_of(200), 0, chunk=0)


def test_a_model_without_windows_has_nothing_to_replay() -> None:
    model = build("deepseek-v3", toy=True)
    cache = model.new_cache()
    model(tokens(10), cache)
    with pytest.raises(ValueError, match="has no windows"):
        model.replay(tokens(10), cache, 0)
