"""The reference models' attention, part by part, against the papers' formulas written as loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
from kvstore.models.deepseek import build
from kvstore.models.deepseek.attention import windowed
from kvstore.models.deepseek.index import Indexer, pool_of, within
from kvstore.models.deepseek.mla import LatentAttention
from kvstore.models.deepseek.parts import rotate, seed_weights, unit
from kvstore.models.deepseek.pooling import Compressor
from kvstore.models.deepseek.rows import Step
from kvstore.models.deepseek.v4 import CsaAttention, HcaAttention, WindowAttention
from kvstore.models.deepseek.v41 import Csa2Attention, Owner
from reference_models import tokens, toy
from torch import Tensor

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ["deepseek-v2", "deepseek-v3", "deepseek-v3.2"])
def test_absorbed_and_materialised_mla_agree(name: str) -> None:
    """In float32 within 1e-5 of logits of unit variance: only the order of additions differs."""
    ids = tokens(300)
    absorbed, materialised = (build(name, toy=True, form="fp32") for _ in range(2))
    for layer in materialised.layers:
        attention = layer.attention
        assert isinstance(attention, LatentAttention)
        attention.mode = "materialised"
    a, b = absorbed(ids), materialised(ids)
    assert float(a.std()) > 0.5
    assert not torch.equal(a, b)
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def test_mla_is_the_papers_formula() -> None:
    """Per head: score = q_nope . k_nope + q_rope . k_rope, over sqrt(nope + 64)."""
    layer = toy("deepseek-v3", "fp32").layers[0].attention
    assert isinstance(layer, LatentAttention)
    rank, nope = layer.rank, layer.nope
    q, rows = normal(1, layer.heads, nope + 64), normal(10, rank + 64, seed=1)
    found = layer.absorbed(q, rows, torch.tensor([9]), None)
    for head in range(layer.heads):
        keys = torch.stack([layer.key_up[head] @ row[:rank] for row in rows])
        values = torch.stack([layer.value_up[head] @ row[:rank] for row in rows])
        scores = keys @ q[0, head, :nope] + rows[:, rank:] @ q[0, head, nope:]
        weights = (scores / (nope + 64) ** 0.5).softmax(0)
        torch.testing.assert_close(found[0, head], weights @ values, atol=1e-5, rtol=1e-5)


def test_rotation_leaves_distances() -> None:
    a, b = normal(1, 96), normal(1, 96, seed=1)

    def product(i: int, j: int) -> float:
        turned = [rotate(x, torch.tensor([at]), 64) for x, at in ((a, i), (b, j))]
        return float((turned[0] * turned[1]).sum())

    assert product(17, 5) == pytest.approx(product(1017, 1005), abs=1e-3)
    assert abs(product(17, 5) - product(17, 6)) > 1e-2
    at = torch.tensor([123])
    torch.testing.assert_close(rotate(rotate(a, at, 64), at, 64, inverse=True), a)
    assert torch.equal(rotate(a, at, 64)[:, :32], a[:, :32])


def changed(make: Callable[[Tensor], Tensor], x: Tensor, token: int) -> list[int]:
    """Which of the entries that `make` gives change when one token's input does."""
    other = x.clone()
    other[token] += 1.0
    return (make(x) != make(other)).any(1).nonzero().flatten().tolist()


@pytest.mark.parametrize("token", [0, 3, 4, 9, 127, 128, 199])
def test_a_csa_entry_pools_its_8_tokens(token: int) -> None:
    """Its own 4 and the 4 before; so each token reaches two entries, and no third."""
    model = toy("deepseek-v4-flash", "fp32")
    attention = model.layers[2].attention
    assert isinstance(attention, CsaAttention)

    def entries(x: Tensor) -> Tensor:
        step = Step(model.new_cache(), 0, len(x))
        return attention.far(x, attention.shared.query_latent(x), step)[0]

    def keys(x: Tensor) -> Tensor:
        step = Step(model.new_cache(), 0, len(x))
        attention.far(x, attention.shared.query_latent(x), step)
        return step.new["csa-index", 2][0]

    x = normal(202, model.shape.hidden)
    expected = [g for g in (token // 4, token // 4 + 1) if g < 50]
    assert changed(entries, x, token) == expected
    assert changed(keys, x, token) == expected


@pytest.mark.parametrize("token", [0, 127, 128, 300])
def test_an_hca_entry_pools_its_128_tokens(token: int) -> None:
    model = toy("deepseek-v4-flash", "fp32")
    attention = model.layers[3].attention
    assert isinstance(attention, HcaAttention)

    def entries(x: Tensor) -> Tensor:
        return attention.far(x, x, Step(model.new_cache(), 0, len(x)))[0]

    x = normal(300 + 100, model.shape.hidden)
    assert changed(entries, x, token) == ([token // 128] if token < 384 else [])


@pytest.mark.parametrize(("layer", "ratio"), [(2, 2), (6, 1)])
def test_a_csa2_entry_pools_its_own_tokens(layer: int, ratio: int) -> None:
    """No overlap, no bias; and the index key is made of the pooled latent."""
    model = toy("deepseek-v4.1-flash", "fp32")
    attention = model.layers[layer].attention
    assert isinstance(attention, Csa2Attention)
    owner = attention.owner
    assert isinstance(owner, Owner)
    x = normal(41, model.shape.hidden)

    def caches(x: Tensor) -> tuple[Tensor, Tensor]:
        cache = owner(x, Step(model.new_cache(), 0, len(x)))
        return cache.entries, cache.keys

    for token in (0, 1, 20, 39):
        assert changed(lambda x: caches(x)[0], x, token) == [token // ratio]
        assert changed(lambda x: caches(x)[1], x, token) == [token // ratio]
    assert owner.pool is None or owner.pool.bias is None
    # The latent is the entry before its rotation.
    entries, keys = caches(x)
    first = ratio * torch.arange(41 // ratio)
    latents = rotate(entries, first, 64, inverse=True)
    made = rotate(owner.key_norm(owner.key(latents)), first, 64)
    torch.testing.assert_close(keys, made, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("ratio", "overlap"), [(4, True), (128, False)])
def test_pooling_is_a_softmax_per_dimension(ratio: int, overlap: bool) -> None:
    hidden, width = 16, 8
    pool = Compressor(hidden, width, ratio, overlap=overlap)
    seed_weights(pool, 0, 1)
    count = 3 * ratio
    x = normal(count, hidden)
    pairs = pool.pairs(x, torch.arange(count))
    assert pool.bias is not None
    for i in range(count):
        content, score = pool.content.weight @ x[i], pool.score.weight @ x[i]
        score = score + pool.bias[i % ratio]  # the stored score has the bias in it
        torch.testing.assert_close(pairs[i, :, 0].flatten(), content)
        torch.testing.assert_close(pairs[i, :, 1].flatten(), score)
    found = pool.pool(pairs, 0)
    for group in range(3):
        slots = [pairs[i, -1] for i in range(group * ratio, (group + 1) * ratio)]
        if overlap and group:
            slots = [pairs[i, 0] for i in range((group - 1) * ratio, group * ratio)] + slots
        for d in range(width):
            weights = torch.stack([slot[1, d] for slot in slots]).softmax(0)
            mean = sum(w * slot[0, d] for w, slot in zip(weights, slots, strict=True))
            found_mean = found[group, d] / unit_scale(slots)
            torch.testing.assert_close(found_mean, mean, atol=1e-5, rtol=1e-4)


def unit_scale(slots: list[Tensor]) -> Tensor:
    """What the norm multiplies an entry of these slots with."""
    pairs = torch.stack(slots)
    mean = (pairs[:, 0] * pairs[:, 1].softmax(0)).sum(0)
    scale: Tensor = unit(mean)[0] / mean[0]
    return scale


def test_index_score_is_a_weighted_sum_of_relu_products() -> None:
    indexer = Indexer(16, 16, heads=3, topk=5)
    seed_weights(indexer, 0, 1)
    x, c_q, keys = normal(20, 16), normal(20, 16, seed=1), normal(20, 128, seed=2)
    at = torch.arange(20)
    picks, pool = indexer(x, c_q, at, keys, 1)
    assert pool is None
    q = rotate(indexer.query(c_q).view(20, 3, 128), at, 64)
    w = indexer.weight(x) / 3**0.5
    for t in range(20):
        scores = [
            sum(float(w[t, j]) * max(float(q[t, j] @ keys[s]) / 128**0.5, 0.0) for j in range(3))
            for s in range(t + 1)
        ]
        best = sorted(range(t + 1), key=lambda s: -scores[s])[:5]
        chosen = {s for s in picks[t].tolist() if 0 <= s <= t}
        assert sum(scores[s] for s in chosen) == pytest.approx(sum(scores[s] for s in best))
        assert len(chosen) == min(5, t + 1)


def test_a_pool_bounds_what_is_scored() -> None:
    """Keys outside the candidate blocks change nothing, and are never picked."""
    indexer = Indexer(16, 16, heads=8, topk=6)
    seed_weights(indexer, 0, 1)
    x, c_q, keys = normal(200, 16), normal(200, 16, seed=1), normal(200, 128, seed=2)
    at = torch.arange(200)
    _, pool = indexer(x, c_q, at, keys, 1, pool_blocks=4)
    assert pool is not None
    assert pool.shape == (200, 4)
    inside = within(pool, 200)
    assert int(inside[150].sum()) == 32
    picks, _ = indexer(x, c_q, at, keys, 1, pool=pool)
    t = 150
    assert all(inside[t, s] for s in picks[t].tolist())
    other = keys.clone()
    # The best of all, if it were scored.
    other[~inside[t]] = 20.0 * keys[picks[t, 0]]
    again, _ = indexer(x, c_q, at, other, 1, pool=pool)
    assert torch.equal(picks[t], again[t])
    free, _ = indexer(x, c_q, at, other, 1)
    assert not torch.equal(free[t], picks[t])


def test_the_pool_is_the_blocks_of_the_best_scores() -> None:
    scores = torch.full((1, 30), float("-inf"))
    scores[0, :27] = torch.arange(27).float().flip(0)
    scores[0, 25] = 100.0  # in the last block, which is cut short
    assert pool_of(scores, 2).tolist() == [[3, 0]]
    assert pool_of(scores, 9).shape == (1, 4)
    scores[0, 8:] = float("-inf")
    assert pool_of(scores, 2).tolist() == [[0, -1]]


def test_a_query_sees_the_last_128_rows_and_whole_groups() -> None:
    """Rows of t - 127 to t; of entries of m tokens the first (t + 1) // m."""
    t, m = 300, 4
    q = normal(1, 2, 8)
    rows, entries = normal(t + 1, 8, seed=1), normal(100, 8, seed=2)
    at, sink = torch.tensor([t]), torch.zeros(2)

    def out(rows: Tensor, entries: Tensor) -> Tensor:
        return windowed(q, at, rows, 128, sink, entries, m)

    base = out(rows, entries)
    for row in (0, t - 128, t - 127, t):
        other = rows.clone()
        other[row] += 1.0
        assert torch.equal(out(other, entries), base) == (row < t - 127)
    for entry in (0, (t + 1) // m - 1, (t + 1) // m, 99):
        other = entries.clone()
        other[entry] += 1.0
        assert torch.equal(out(rows, other), base) == (entry >= (t + 1) // m)
    # Only the last 127 rows before the query need to be kept.
    assert torch.equal(out(rows[-128:], entries), base)


def test_layers_of_v4_are_what_the_layout_says() -> None:
    """V4-Flash keeps the window only in layers 0 and 1, V4-Pro has HCA there."""
    kinds = {
        name: [type(layer.attention) for layer in build(name, hidden=16, heads=1).layers]
        for name in ("deepseek-v4-flash", "deepseek-v4-pro")
    }
    flash, pro = kinds["deepseek-v4-flash"], kinds["deepseek-v4-pro"]
    assert flash[:4] == [WindowAttention, WindowAttention, CsaAttention, HcaAttention]
    assert pro[:4] == [HcaAttention, HcaAttention, CsaAttention, HcaAttention]
    assert [kind is CsaAttention for kind in flash[2:]] == [i % 2 == 0 for i in range(41)]
    assert (len(flash), flash.count(CsaAttention), flash.count(HcaAttention)) == (43, 21, 20)
    assert (len(pro), pro.count(CsaAttention), pro.count(HcaAttention)) == (61, 30, 31)
