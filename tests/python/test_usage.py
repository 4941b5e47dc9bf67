"""What a prompt is billed as: whole units, hit and miss, by what a real store holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kvstore
import pytest
import stores
from stores import BLOCK, HYBRID, namespace, open_store, prompt, rows

BLOCKS = 10
STORED = BLOCKS * BLOCK


@pytest.fixture
def ns(tmp_path: Path) -> Iterator[kvstore.Namespace]:
    with open_store(tmp_path) as store:
        yield namespace(store)


def figures(usage: kvstore.Usage) -> tuple[int, int, int, int | None]:
    return (
        usage.prompt_tokens,
        usage.hit_tokens,
        usage.miss_tokens,
        usage.first_difference,
    )


@pytest.mark.parametrize("unit", [64, 128])
def test_a_prompt_that_is_stored_misses_its_last_unit_only(
    ns: kvstore.Namespace, unit: int
) -> None:
    """hit = unit * floor((n - 1) / unit): the last token is always computed."""
    tokens, _ = stores.store_prompt(ns, 1, BLOCKS)
    for n in (0, 1, 2, unit - 1, unit, unit + 1, 2 * unit, 2 * unit + 1, STORED - 1, STORED):
        hit = unit * (max(n - 1, 0) // unit)
        # A unit counts as stored when its blocks are: those of a last, partial block are not.
        whole = n // BLOCK * BLOCK
        differs = None if whole == n else whole // unit
        assert figures(ns.usage(tokens[:n], unit=unit)) == (n, hit, n - hit, differs), n
    longer = ns.usage(tokens, unit=unit)
    assert figures(longer) == (STORED + 1, STORED, 1, STORED // unit)


@pytest.mark.parametrize("unit", [64, 128])
def test_zero_is_a_value(ns: kvstore.Namespace, unit: int) -> None:
    for n in (1, unit, unit + 1, STORED):
        assert figures(ns.usage(prompt(2, BLOCKS)[:n], unit=unit)) == (n, 0, n, 0)
    assert figures(ns.usage([], unit=unit)) == (0, 0, 0, None)


@pytest.mark.parametrize(("unit", "hit", "differs"), [(64, 192, 3), (128, 128, 1)])
def test_the_first_unit_that_differs(
    ns: kvstore.Namespace, unit: int, hit: int, differs: int
) -> None:
    tokens, _ = stores.store_prompt(ns, 1, BLOCKS)
    other = tokens.copy()
    other[3 * BLOCK + 5] += 1
    n = len(other)
    assert figures(ns.usage(other, unit=unit)) == (n, hit, n - hit, differs)
    assert ns.usage(other, unit=unit) == ns.match(other).usage(unit)


def test_the_plan_caps_the_hit(tmp_path: Path) -> None:
    """Stored further than there is a resume point: what cannot be used is no hit."""
    with open_store(tmp_path) as store:
        ns = namespace(store, HYBRID)
        tokens = prompt(1, BLOCKS)
        ns.put(
            tokens,
            stores.bodies(1, BLOCKS, HYBRID),
            windows=dict(enumerate(rows(2, BLOCKS, HYBRID.window_bytes))),
            checkpoints={320: rows(3, 1, HYBRID.checkpoint_bytes)[0]},
        )
        assert figures(ns.usage(tokens)) == (STORED + 1, 320, STORED + 1 - 320, BLOCKS)
        assert figures(ns.usage(tokens, unit=128))[1] == 256, "whole units of what can be used"


def test_asking_is_no_look_up_and_the_bill_survives_a_restart(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        tokens, _ = stores.store_prompt(namespace(store), 1, BLOCKS)
    with open_store(tmp_path) as store:
        usage = namespace(store).usage(tokens)
        assert figures(usage) == (STORED + 1, STORED, 1, BLOCKS)
        assert store.stats()["counters"]["lookups"] == 0
    assert repr(usage) == (
        "Usage(prompt_tokens=641, hit_tokens=640, miss_tokens=1, first_difference=10)"
    )


def test_a_unit_of_nothing_is_refused(ns: kvstore.Namespace) -> None:
    with pytest.raises(kvstore.InvalidArgument, match="unit is 0"):
        ns.usage([1, 2, 3], unit=0)
