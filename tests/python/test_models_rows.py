"""The reference models' caches: bytes to the layout's arithmetic, and what a cut carries over."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
from kvstore.layouts import Layout
from kvstore.models.deepseek import NAMES, RowCache, build
from kvstore.models.deepseek.layouts import forms_of, layout_of
from reference_models import BOUNDARIES, CASES, GENERATIONS, feed, octets, same_rows, tokens, toy

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def check(cache: RowCache) -> None:
    """Rows, planes and bytes are those that the layout accounts for."""
    layout, n = cache.layout, cache.length
    assert cache.nbytes("entries") == layout.entry_bytes(n)
    assert cache.nbytes("window") == layout.window_bytes_at(n)
    assert cache.nbytes("state") == layout.state_bytes(n)
    assert set(cache.rows) == {(g.name, layer) for g in layout.groups for layer in g.layers}
    for group in layout.groups:
        for layer in group.layers:
            planes = cache.rows[group.name, layer]
            assert len(planes) == len(group.planes)
            for plane, size in zip(planes, group.planes, strict=True):
                assert octets(plane).shape[1] == size or not len(plane)
            if group.kind == "entries":
                assert {len(plane) for plane in planes} == {n // group.ratio}
            elif group.window is not None:
                assert {len(plane) for plane in planes} == {min(n, group.window - 1)}


@pytest.mark.parametrize(("name", "form"), CASES)
def test_bytes_at_boundary_lengths(name: str, form: str) -> None:
    model = toy(name, form)
    grown = model.new_cache()
    check(grown)
    ids = tokens(max(BOUNDARIES))
    for length in BOUNDARIES:
        model(ids[:, grown.length : length], grown)
        assert grown.length == length
        check(grown)
    at_once = model.new_cache()
    model(ids, at_once)
    check(at_once)


@pytest.mark.parametrize(
    ("name", "per_token", "window", "state"),
    [
        # layouts.md 5.3 and 4.1: 127 window rows of 528 B in 40 layers, no tail at an even length.
        ("deepseek-v4.1-flash", 890, 40 * 127 * 528, 0),
        # 5.2; 43 x 127 x 584; first halves of 4 rows, 20,480 B in each of 21 CSA layers.
        ("deepseek-v4-flash", 3514.25, 43 * 127 * 584, 21 * 20_480),
        ("deepseek-v3.2", 48_068, 0, 0),
    ],
)
def test_true_geometry_at_256_tokens(name: str, per_token: float, window: int, state: int) -> None:
    model = build(name, hidden=32, heads=1, index_heads=2)
    cache = model.new_cache()
    model(tokens(256), cache)
    check(cache)
    assert cache.nbytes("entries") == 256 * per_token
    assert cache.nbytes("window") == window
    assert cache.nbytes("state") == state
    assert model.layout.groups == Layout.named(name, model.layout.form).groups


@pytest.mark.parametrize("name", NAMES)
def test_layouts_are_the_registrys(name: str) -> None:
    """A toy, or a precision that the registry has no form for, changes layers and bytes only."""
    known = Layout.named(name)
    for form in forms_of(name):
        true, small = layout_of(name, form), layout_of(name, form, toy=True)
        assert [g.name for g in true.groups] == [g.name for g in small.groups]
        assert true.elements_per_token() == known.elements_per_token()
        for n in BOUNDARIES:
            assert true.state_bytes(n) == known.state_bytes(n)
        for group, of_toy, of_known in zip(true.groups, small.groups, known.groups, strict=True):
            for other in (of_toy, of_known):
                assert (group.name, group.kind, group.ratio, group.window) == (
                    other.name,
                    other.kind,
                    other.ratio,
                    other.window,
                )
                assert group.elements == other.elements
            assert group.layers == of_known.layers
        assert small.alignment == true.alignment
        assert small.bounded_replay_tokens == true.bounded_replay_tokens


@pytest.mark.parametrize(("name", "form"), CASES)
@pytest.mark.parametrize("cut", [1, 3, 128, 131, 200])
def test_copied_rows_continue_with_the_same_bits(name: str, form: str, cut: int) -> None:
    model, ids = toy(name, form), tokens(340)
    live = model.new_cache()
    feed(model, ids[:, :cut], live, cuts=(1,) if cut > 1 else ())
    rebuilt = model.new_cache()
    rebuilt.length = live.length
    for key, planes in live.rows.items():
        # As bytes of a page in a store, which begins at a multiple of 8.
        pages = [torch.empty(8 + octets(plane).numel(), dtype=torch.uint8) for plane in planes]
        for page, plane in zip(pages, planes, strict=True):
            page[8:] = octets(plane).reshape(-1)
        rebuilt.rows[key] = tuple(page[8:] for page in pages)
    before = {key: [plane.clone() for plane in planes] for key, planes in live.rows.items()}
    views = dict(live.rows)
    cuts = (1, 2, 7)
    expected = feed(model, ids[:, cut:], live, cuts)
    assert torch.equal(feed(model, ids[:, cut:], rebuilt, cuts), expected)
    assert same_rows(live, rebuilt)
    # No row was written in place.
    for key, planes in views.items():
        assert all(torch.equal(a, b) for a, b in zip(planes, before[key], strict=True))


@pytest.mark.parametrize(("name", "form"), CASES)
def test_chunked_prefill_agrees_with_one_pass(name: str, form: str) -> None:
    model, ids = toy(name, form), tokens(400)
    whole, parts = model.new_cache(), model.new_cache()
    expected = model(ids, whole)[0]
    found = feed(model, ids, parts, cuts=(1, 4, 130, 131, 257, 399))
    if form == "fp32":
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    else:
        # A rounding may fall on the other side, and a pick with it: a row changes by a whole step
        # of its format. What differs is then small against logits of unit variance.
        assert float((found - expected).abs().mean()) < 0.01
    for key, planes in whole.rows.items():
        assert [plane.shape for plane in planes] == [plane.shape for plane in parts.rows[key]]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_later_tokens_change_nothing_before_them(name: str, form: str) -> None:
    model, ids, split = toy(name, form), tokens(300), 141
    other = ids.clone()
    other[:, split:] = (ids[:, split:] + 1) % 256
    a, b = model.new_cache(), model.new_cache()
    first, second = model(ids, a)[0], model(other, b)[0]
    assert torch.equal(first[:split], second[:split])
    assert not torch.equal(first[split:], second[split:])
    for group in model.layout.groups:
        if group.kind == "entries":
            n = split // group.ratio
            for layer in group.layers:
                for x, y in zip(a.rows[group.name, layer], b.rows[group.name, layer], strict=True):
                    assert torch.equal(octets(x[:n]), octets(y[:n]))


@pytest.mark.parametrize("name", GENERATIONS)
def test_early_tokens_reach_late_logits(name: str) -> None:
    """Behind the window too: what the entries keep is read."""
    model, ids = toy(name, "fp32"), tokens(400)
    other = ids.clone()
    other[:, :100] = (ids[:, :100] + 1) % 256
    difference = model(ids)[0, -1] - model(other)[0, -1]
    assert float(difference.abs().max()) > 1e-3


def test_same_seed_same_model() -> None:
    ids = tokens(20)
    a, b = (build("deepseek-v4.1-flash", toy=True)(ids) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, build("deepseek-v4.1-flash", toy=True, seed=1)(ids))


def test_a_window_of_128_rows_is_as_good_as_127() -> None:
    """Engines keep a row more than is needed."""
    model, ids = toy("deepseek-v4-flash", "fp32"), tokens(300)
    cache, longer = model.new_cache(), model.new_cache()
    model(ids[:, :200], longer)
    rows = {key: planes for key, planes in longer.rows.items() if key[0] == "window"}
    model(ids[:, :200], cache)
    for key, planes in rows.items():
        cache.rows[key] = tuple(torch.cat((torch.full_like(p[:1], 9.0), p)) for p in planes)
    assert torch.equal(model(ids[:, 200:], cache), model(ids[:, 200:], longer))


@pytest.mark.parametrize(
    ("group", "count"),
    [("csa", 3), ("window", 5), ("csa-tail", 1), ("csa-index", 32), ("hca-tail", 0)],
)
def test_missing_rows_are_named(group: str, count: int) -> None:
    model, ids = toy("deepseek-v4-flash", "native"), tokens(140)
    cache = model.new_cache()
    model(ids[:, :135], cache)
    layer = next(layer for name, layer in cache.rows if name == group)
    kept = dict(cache.rows)
    cache.rows[group, layer] = tuple(plane[:count] for plane in cache.rows[group, layer])
    before = dict(cache.rows)
    with pytest.raises(ValueError, match=rf"{count} .*in group '{group}', layer {layer}"):
        model(ids[:, 135:], cache)
    assert cache.length == 135
    assert cache.rows == before  # a pass that fails leaves the cache as it was
    cache.rows.update(kept)
    model(ids[:, 135:], cache)
    check(cache)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"name": "deepseek-v5"}, "name: 'deepseek-v5' given, one of deepseek-llm-7b"),
        ({"name": "deepseek-llm-7b", "form": "native"}, r"form: 'native' .* \['bf16', 'fp32'\]"),
        ({"name": "deepseek-llm-67b", "heads": 12}, "heads: 12 given, a multiple of the 8"),
        ({"name": "deepseek-v3.2", "draft": True}, "draft: True given for deepseek-v3.2"),
    ],
)
def test_misuse_of_build(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        build(toy=True, **arguments)


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        (torch.zeros(3, dtype=torch.int64), r"int64 \(3,\) given, int64 \(1, T\) wanted"),
        (torch.zeros(2, 3, dtype=torch.int64), r"\(2, 3\) given"),
        (torch.zeros(1, 3, dtype=torch.int32), "int32"),
        (torch.zeros(1, 0, dtype=torch.int64), "no tokens given"),
        (torch.tensor([[1, 256]]), "ids 1 to 256 given, 0 to 255 wanted"),
        (torch.tensor([[-1]]), "ids -1 to -1 given"),
    ],
)
def test_misuse_of_forward(ids: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        toy("deepseek-v3", "fp32")(ids)
