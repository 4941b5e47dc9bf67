"""What is stored after a bounded replay, and drafts after a restore, by reference models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kvstore
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kvstore.models.deepseek import build  # noqa: E402
from kvstore.models.deepseek.mtp import DraftingModel  # noqa: E402
from kvstore.torch import PrefixCache  # noqa: E402
from reference_models import same_rows, tokens, toy  # noqa: E402
from torch_caches import opened  # noqa: E402

pytestmark = pytest.mark.torch

#: Five whole blocks of 128 tokens and some of the sixth, then prompts that go on from there.
FIRST, SECOND, THIRD = 700, 1100, 1400
IDS = tokens(THIRD + 200)


@pytest.fixture
def prefix(tmp_path: Path) -> Iterator[PrefixCache]:
    """A V4.1 whose first turn was computed and stored; its default policy keeps no windows."""
    torch.set_num_threads(1)
    with opened(tmp_path) as store:
        made = PrefixCache(store, toy("deepseek-v4.1-flash", "native"))
        assert stored(made, FIRST) == (None, 5)
        yield made


def stored(
    prefix: PrefixCache, length: int, *, approximate: bool = False
) -> tuple[int | None, int]:
    """A session over so many tokens: the block from which it found the chain replayed, and how many
    blocks it stored."""
    with prefix.session(IDS[:, :length], allow_approximate=approximate) as session:
        pass
    assert session.saved.wait(30)
    assert session.saved.count("rejected") == 0
    return session.plan.replayed_from, session.saved.count("stored")


def found(prefix: PrefixCache, length: int, *, approximate: bool) -> kvstore.Plan:
    return prefix.namespace.match(IDS[0, :length].numpy(), allow_approximate=approximate)


def test_exact_callers_never_see_replayed_blocks(prefix: PrefixCache) -> None:
    plan = found(prefix, SECOND, approximate=True)
    assert (plan.mode, plan.usable, plan.replay_start) == ("bounded_replay", 640, 512)
    assert stored(prefix, SECOND, approximate=True) == (None, 3)
    exact = found(prefix, SECOND, approximate=False)
    assert (exact.matched, exact.usable, exact.replayed_from) == (640, 0, None)
    _, usable = prefix.restore(IDS[:, :SECOND])
    assert usable == 0  # 640 tokens are fewer than an exact replay computes
    near = found(prefix, SECOND, approximate=True)
    assert (near.matched, near.usable, near.replayed_from) == (1024, 1024, 5)


def test_a_chain_holds_one_mark(prefix: PrefixCache) -> None:
    """However often it is replayed, it goes on from where it left the exact chain."""
    stored(prefix, SECOND, approximate=True)
    assert stored(prefix, THIRD, approximate=True) == (5, 2)
    assert stored(prefix, THIRD + 200, approximate=True) == (5, 2)
    plan = found(prefix, THIRD + 200, approximate=True)
    assert (plan.matched, plan.replayed_from) == (1536, 5)
    assert found(prefix, THIRD + 200, approximate=False).matched == 640


def test_exact_blocks_are_stored_beside_replayed_ones(prefix: PrefixCache) -> None:
    """An exact caller stores blocks of its own; of chains of one length all take the exact one."""
    stored(prefix, SECOND, approximate=True)
    near, _ = prefix.restore(IDS[:, :SECOND], allow_approximate=True)
    assert stored(prefix, SECOND) == (None, 3)
    plan = found(prefix, SECOND, approximate=True)
    assert (plan.matched, plan.replayed_from) == (1024, None)
    exact, _ = prefix.restore(IDS[:, :SECOND], allow_approximate=True)
    # Layer 6 owns the entries that the decoder reads: an encoder's output, so replay shows in them.
    before, after = (cache.rows["r1", 6][0] for cache in (exact, near))
    assert torch.equal(before[:640], after[:640])
    assert not torch.equal(before[640:], after[640:])


@pytest.mark.parametrize("seed", [0, 2])
def test_drafts_after_a_restore(seed: int, tmp_path: Path) -> None:
    """As many are right as with the live cache, and every row is the same, the head's too: the
    hidden vector that its first row wants is computed again."""
    torch.set_num_threads(1)
    model = build("deepseek-v3", toy=True, draft=True, seed=seed)
    assert isinstance(model, DraftingModel)
    ids, live = tokens(200, seed), model.new_cache()
    for start in (0, 64, 128):
        model(ids[:, start : start + 64], live)
    with opened(tmp_path) as store:
        prefix = PrefixCache(store, model)
        prefix.prefill(ids)
        restored, usable = prefix.restore(ids)
    assert usable == live.length == 192
    expected, right = model.generate(ids[:, 192:], live, 200)
    got, right_restored = model.generate(ids[:, 192:], restored, 200)
    assert got == expected
    assert right_restored == right > 0
    assert same_rows(live, restored)
