"""Caches that are saved without a session, policies, and what the pages of objects hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

import kvstore  # noqa: E402
from kvstore.layouts import Layout  # noqa: E402
from kvstore.models import deepseek  # noqa: E402
from kvstore.models.families import toy_model  # noqa: E402
from kvstore.torch import Policy, PrefixCache  # noqa: E402
from torch_caches import opened, prompt  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kvstore.Store]:
    torch.set_num_threads(1)
    with opened(tmp_path) as store, torch.no_grad():
        yield store


def test_a_cache_that_ends_with_a_block_keeps_its_resume_point(store: kvstore.Store) -> None:
    ids = prompt(300)
    for family in ("qwen3_next", "mamba2", "deepseek_v4"):
        prefix = PrefixCache(store, toy_model(family))
        cache = prefix.binding.new_cache()
        prefix.binding.forward(ids[:, :256], cache, 0)
        saved = prefix.save(ids[:, :256], cache, length=256)
        assert saved.tokens == 256
        assert prefix.restore(ids)[1] == 256, family


def test_windows_that_have_lost_rows_are_not_kept(store: kvstore.Store) -> None:
    """A window is taken when its block ends. Earlier blocks have lost rows by then that a resume
    point can need: they are left out, and the answer says so."""
    ids = prompt(300)
    prefix = PrefixCache(store, toy_model("gemma3_text"))
    cache = prefix.binding.new_cache()
    prefix.binding.forward(ids[:, :256], cache, 0)
    saved = prefix.save(ids[:, :256], cache)
    assert sorted(saved.skipped) == [128, 192]  # of the points at 192 and 256
    assert "had left the cache" in saved.skipped[192]
    assert prefix.restore(ids)[1] == 0


def test_a_cache_that_ends_inside_a_block_says_what_is_not_kept(store: kvstore.Store) -> None:
    ids = prompt(300)
    prefix = PrefixCache(store, toy_model("qwen3_next"))
    cache = prefix.binding.new_cache()
    prefix.binding.forward(ids, cache, 0)
    saved = prefix.save(ids, cache)
    assert saved.tokens == 256
    assert list(saved.skipped) == [256]
    assert "no chunk ended there" in saved.skipped[256]
    assert prefix.restore(ids)[1] == 0
    assert prefix.explain(ids).reason == "no_resume_point"


def test_periodic_resume_points(store: kvstore.Store) -> None:
    """every=200 is rounded down to block ends; between two points the prompt goes on from the
    lower one."""
    ids = prompt(700)
    policy = Policy(every=200, prompt_end=False, output_end=False)
    prefix = PrefixCache(store, toy_model("qwen3_next"), policy=policy)
    prefix.prefill(ids)
    found = [prefix.restore(ids[:, :n])[1] for n in (190, 193, 384, 385, 577, 700)]
    assert found == [0, 192, 192, 384, 576, 576]


def test_a_prompt_that_ends_with_a_block_hits_itself_and_its_continuation(
    store: kvstore.Store,
) -> None:
    ids = prompt(400)
    model = toy_model("qwen3_next")
    prefix = PrefixCache(store, model)
    prefix.prefill(ids[:, :256])
    assert prefix.restore(ids[:, :256])[1] == 192
    assert prefix.restore(ids)[1] == 256


@pytest.mark.parametrize("name", ["deepseek-v4.1-flash", "deepseek-v4-flash"])
def test_bodies_have_the_records_where_the_layout_says(name: str, store: kvstore.Store) -> None:
    """A page of a leased body is the packed records of the live cache, plane by plane."""
    model = deepseek.build(name, toy=True)
    prefix = PrefixCache(store, model, policy=Policy(windows="all"))
    ids = prompt(300)
    cache, _ = prefix.prefill(ids)
    layout = prefix.layout
    block = layout.block_tokens
    with prefix.namespace.lease(prefix.namespace.match(ids[0].numpy())) as lease:
        for group in layout.groups:
            if group.kind != "entries":
                continue
            count = block // group.ratio
            for layer in group.layers:
                page = torch.frombuffer(
                    bytearray(lease.page(1, group.name, layer)), dtype=torch.uint8
                )
                planes = [plane[count : 2 * count] for plane in cache.rows[group.name, layer]]
                flat = [p.contiguous().view(torch.uint8).reshape(-1) for p in planes]
                assert torch.equal(page, torch.cat(flat)), (group.name, layer)


def test_true_geometry_is_890_bytes(store: kvstore.Store) -> None:
    model = deepseek.build("deepseek-v4.1-flash", hidden=64, heads=1)
    prefix = PrefixCache(store, model)
    assert prefix.layout == Layout.named("deepseek-v4.1-flash")
    ids = prompt(129)
    prefix.prefill(ids)
    assert store.flush()
    disk = store.stats()["disk"]
    assert (disk["objects"], disk["logical"]) == (1, 128 * 890)
    assert (disk["slots"], disk["descriptors"]) == (128 * 896, 64)


def test_the_last_block_end_of_a_prompt_is_kept_when_it_comes(store: kvstore.Store) -> None:
    """Before the output begins, so that a kill in the middle of it loses nothing of the prompt."""
    ids = prompt(300)
    for output_end in (True, False):
        policy = Policy(output_end=output_end)
        prefix = PrefixCache(store, toy_model("mamba2"), policy=policy, cache_salt=str(output_end))
        with pytest.raises(KeyboardInterrupt), prefix.session(ids):
            raise KeyboardInterrupt
        assert prefix.restore(ids)[1] == 256
