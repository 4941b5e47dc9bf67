"""V3's draft head: its rows, and what a restored cache does to its drafts."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
from kvstore.models.deepseek import build
from kvstore.models.deepseek.mtp import DraftingModel
from reference_models import tokens

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model() -> DraftingModel:
    torch.set_num_threads(1)
    found = build("deepseek-v3", toy=True, draft=True, seed=2)
    assert isinstance(found, DraftingModel)
    return found


def test_the_head_keeps_a_row_per_token(model: DraftingModel) -> None:
    cache = model.new_cache()
    for length in (1, 5, 70):
        model(tokens(70)[:, cache.length : length], cache)
        assert cache.nbytes("entries") == model.layout.entry_bytes(length)
        assert len(cache.rows["mtp-mla", 3][0]) == length
    assert [group.name for group in model.layout.groups if group.draft] == ["mtp-mla"]


def test_the_model_itself_is_the_one_without_a_head(model: DraftingModel) -> None:
    plain = build("deepseek-v3", toy=True, seed=2)
    plain.load_state_dict(model.state_dict(), strict=False)
    assert torch.equal(plain(tokens(50)), model(tokens(50)))


def test_a_row_depends_on_no_later_token(model: DraftingModel) -> None:
    a, b, ids = model.new_cache(), model.new_cache(), tokens(60)
    other = ids.clone()
    other[:, 40:] = (ids[:, 40:] + 1) % 256
    model(ids, a)
    model(other, b)
    x, y = a.rows["mtp-mla", 3][0], b.rows["mtp-mla", 3][0]
    assert torch.equal(x[:40], y[:40])
    assert not torch.equal(x[40], y[40])


def test_drafting_changes_nothing(model: DraftingModel) -> None:
    cache = model.new_cache()
    model(tokens(30), cache)
    before = dict(cache.rows)
    model.draft(7, cache)
    assert cache.length == 30
    assert cache.rows == before


def test_acceptance_with_a_restored_cache(model: DraftingModel) -> None:
    """The same tokens come out, and about as many drafts are right: one row of the head differs."""
    ids, count = tokens(150), 60
    live = model.new_cache()
    model(ids[:, :100], live)
    restored = live.copy()
    assert restored.hidden is None
    expected, right = model.generate(ids[:, 100:], live, count)
    found, right_restored = model.generate(ids[:, 100:], restored, count)
    assert found == expected
    assert len(expected) == count
    assert 0 < right <= count - 1
    assert abs(right - right_restored) <= 5
    assert torch.equal(live.rows["mla", 0][0], restored.rows["mla", 0][0])


def test_the_last_hidden_vector_is_computed_again(model: DraftingModel) -> None:
    """A copy that recalls it goes on with the rows of the live cache, and none is written."""
    ids = tokens(120)
    live = model.new_cache()
    model(ids[:, :100], live)
    restored = live.copy()
    before = dict(restored.rows)
    model.recall(int(ids[0, 99]), restored)
    assert restored.rows == before
    assert restored.length == 100
    torch.testing.assert_close(restored.hidden, live.hidden, atol=1e-4, rtol=0)
    for cache in (live, restored):
        model(ids[:, 100:], cache)
    assert torch.equal(live.rows["mtp-mla", 3][0], restored.rows["mtp-mla", 3][0])
