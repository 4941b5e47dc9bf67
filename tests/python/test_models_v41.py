"""V4.1-Flash: who owns, who picks, who takes the picks of another; encoder and decoder."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
from kvstore.models.deepseek import ReferenceModel, build, shared
from kvstore.models.deepseek.attention import windowed
from kvstore.models.deepseek.index import within
from kvstore.models.deepseek.v41 import Csa2Attention, EncoderDecoder
from reference_models import same_rows, tokens, toy
from torch import Tensor

pytestmark = pytest.mark.torch

NAME = "deepseek-v4.1-flash"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def attention(model: ReferenceModel, layer: int) -> Csa2Attention:
    found = model.layers[layer].attention
    assert isinstance(found, Csa2Attention)
    return found


def test_true_geometry_has_the_papers_modes() -> None:
    model = build(NAME, hidden=16, heads=1)
    every = [attention(model, layer) for layer in range(40)]
    owners = {a.layer: a.owner.ratio for a in every if a.owner is not None}
    assert owners == {2: 2, 8: 2, 14: 2, 20: 1}  # Full
    assert [a.layer for a in every if a.owner is None and a.indexer] == [24, 28, 32, 36]  # Reindex
    assert sum(a.indexer is None for a in every) == 30 + 2  # Reuse, and the window only
    assert [a.layer for a in every if a.pool_blocks] == [20]
    assert (model.shape.topk, model.shape.pool_blocks) == (512, 2048)


@dataclass
class Call:
    """What one layer's attention was given."""

    entries: Tensor | None
    ratio: int
    picks: Tensor | None


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """One call per layer of a pass, in order, as attention gets them."""
    found: list[Call] = []

    def watched(*arguments: Any) -> Tensor:
        found.append(Call(*arguments[5:8]))
        return windowed(*arguments)

    monkeypatch.setattr(shared, "windowed", watched)
    return found


def test_layers_read_their_owners_entries(calls: list[Call]) -> None:
    model, ids = toy(NAME, "native"), tokens(200)
    cache = model.new_cache()
    model(ids, cache)
    assert len(calls) == 12
    assert [call.entries is None for call in calls] == [True] * 2 + [False] * 10
    for layer, owner, group, ratio in (
        *((i, 2, "r2", 2) for i in (2, 3)),
        *((i, 4, "r2", 2) for i in (4, 5)),
        *((i, 6, "r1", 1) for i in range(6, 12)),
    ):
        assert calls[layer].ratio == ratio
        entries = calls[layer].entries
        assert entries is not None
        assert torch.equal(entries, cache.read(group, owner))


def test_reuse_takes_the_picks_of_the_nearest_layer_that_picks(calls: list[Call]) -> None:
    toy(NAME, "fp32")(tokens(200))
    picks = [call.picks for call in calls]
    assert picks[0] is picks[1] is None
    for layer, source in ((3, 2), (5, 4), (7, 6), (9, 8), (11, 10)):
        assert picks[layer] is picks[source]
    ours = [picks[i] for i in (2, 4, 6, 8, 10)]
    for a, b in pairwise(ours[2:]):
        assert a is not None
        assert b is not None
        assert a.shape == b.shape == (200, 8)
        assert not torch.equal(a, b)


def test_reindex_stays_in_the_pool_of_the_full_layer(
    calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy(NAME, "fp32")
    pools: list[Tensor | None] = []
    pick = Csa2Attention.pick

    def watched(self: Csa2Attention, *arguments: Any) -> Any:
        found = pick(self, *arguments)
        pools.append(found.pool)
        return found

    monkeypatch.setattr(Csa2Attention, "pick", watched)
    model(tokens(200))
    assert pools[:4] == [None] * 4  # the encoder has no pool
    pool = pools[4]
    assert pool is not None
    assert pool.shape == (200, 4)
    assert all(other is pool for other in pools[4:])
    inside = within(pool, 200)
    for layer in (8, 10):
        picks = calls[layer].picks
        assert picks is not None
        chosen = torch.zeros(200, 201, dtype=torch.bool)
        chosen.scatter_(1, picks.where(picks >= 0, torch.tensor(200)), True)
        assert not (chosen[:, :200] & ~inside).any()
        assert int((picks[150:] >= 0).sum()) == 50 * 8
    # The pool leaves something out: else this says nothing.
    assert int(inside[199].sum()) == 32


def tail_model(form: str = "native") -> EncoderDecoder:
    model = build(NAME, toy=True, form=form)
    assert isinstance(model, EncoderDecoder)
    model.decoder = "tail"
    return model


def test_the_decoder_can_run_on_the_last_128_tokens_only() -> None:
    """Entries, and window rows up to the decoder's second layer, do not depend on it."""
    ids = tokens(400)
    every, tail = toy(NAME, "native"), tail_model()
    a, b = every.new_cache(), tail.new_cache()
    expected, found = every(ids, a)[0], tail(ids, b)[0]
    assert found.shape == expected.shape
    assert found[:-128].isnan().all()
    assert not found[-128:].isnan().any()
    for (group, layer), planes in a.rows.items():
        same = all(torch.equal(x, y) for x, y in zip(planes, b.rows[group, layer], strict=True))
        # Layer 6 has all its window rows, made of the encoder's output: layer 7 gets exact inputs.
        # Layer 7's window begins with the tail: what comes out of it is an approximation.
        assert same == (group != "window" or layer <= 7)
    assert b.nbytes("window") == tail.layout.window_bytes_at(400)
    assert float((found[-1] - expected[-1]).abs().max()) < 0.5
    assert float(expected[-1].std()) > 0.5


def test_a_short_prompt_is_all_tail() -> None:
    ids = tokens(128)
    every, tail = toy(NAME, "native"), tail_model()
    a, b = every.new_cache(), tail.new_cache()
    assert torch.equal(every(ids, a), tail(ids, b))
    # Tokens that follow one by one see the decoder's windows.
    for token in tokens(5, seed=2)[0]:
        assert torch.equal(every(token.view(1, 1), a), tail(token.view(1, 1), b))
    assert same_rows(a, b)


def test_the_tail_is_cut_from_the_rows_before_it() -> None:
    """Decoder windows of an earlier pass do not adjoin the tail of a long one: they are dropped."""
    tail, ids = tail_model("fp32"), tokens(500)
    cache, other = tail.new_cache(), tail.new_cache()
    tail(ids[:, :100], cache)
    tail(ids[:, :100], other)
    for layer in range(7, 12):
        other.rows["window", layer] = tuple(
            torch.zeros_like(plane) for plane in other.rows["window", layer]
        )
    assert torch.equal(tail(ids[:, 100:], cache)[0, -128:], tail(ids[:, 100:], other)[0, -128:])
    assert same_rows(cache, other)
