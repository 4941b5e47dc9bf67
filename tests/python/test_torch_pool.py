"""The pool of blocks on a device, here the CPU: the same bytes, nothing read twice, no slot in use
given away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kvstore
import numpy as np
import pytest
import stores
from stores import BLOCK, HYBRID, LARGE, Array, namespace, open_store, prompt, store_prompt

torch = pytest.importorskip("torch", reason="needs torch")
from kvstore.torch.pool import DevicePool  # noqa: E402

pytestmark = pytest.mark.torch


def reads(store: kvstore.Store) -> tuple[int, int]:
    counters: dict[str, Any] = store.stats()["counters"]
    return counters["reads_asked"], counters["bytes_read"]


def marks(store: kvstore.Store) -> int:
    found: int = store.stats()["mirror"]["marks"]
    return found


def same(fetched: Any, bodies: Array) -> bool:
    return len(fetched) == len(bodies) and all(
        np.array_equal(body.numpy(), wanted) for body, wanted in zip(fetched, bodies, strict=True)
    )


def test_what_the_pool_has_is_not_read_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, DevicePool(store, namespace(store), 16) as pool:
        ns = namespace(store)
        tokens, bodies = store_prompt(ns, 1, 4)
        with pool.fetch(tokens) as fetched:
            assert list(fetched.plan.blocks) == ["host"] * 4
            assert same(fetched, bodies)
        before = reads(store)
        assert before == (4, 0)
        with pool.fetch(tokens) as fetched:
            assert list(fetched.plan.blocks) == ["mirror"] * 4
            assert same(fetched, bodies)
        assert reads(store) == before
        assert marks(store) == len(pool) == 4
        # A longer prompt reads what is new only.
        more = stores.bodies(9, 6)
        longer = np.concatenate([tokens[: 4 * BLOCK], prompt(3, 2)])
        assert ns.put(longer, more[4:], first_block=4, ack="ssd").wait(30)
        with pool.fetch(longer) as fetched:
            assert list(fetched.plan.blocks) == ["mirror"] * 4 + ["host"] * 2
            assert same(fetched, np.concatenate([bodies, more[4:]]))
        assert reads(store) == (before[0] + 2, 0)


def test_layers_come_in_order_with_their_pages(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store, HYBRID)
        tokens, bodies = prompt(1, 3), stores.bodies(1, 3, HYBRID)
        windows = {block: stores.rows(block, 1, HYBRID.window_bytes)[0] for block in range(3)}
        checkpoint = stores.rows(5, 1, HYBRID.checkpoint_bytes)[0]
        batch = ns.put(tokens, bodies, windows=windows, checkpoints={3 * BLOCK: checkpoint})
        assert batch.status.accepted
        with DevicePool(store, ns, 8, ahead=0) as pool:
            for _ in range(2):  # from the store, then from the pool
                with pool.fetch(tokens) as fetched:
                    seen = []
                    for layer, pages in fetched.layers():
                        seen.append(layer)
                        assert list(pages) == ["kv"]
                        place = HYBRID.page("kv", layer)
                        assert place is not None
                        _, offset, length = place
                        assert pages["kv"].shape == (8, length)
                        got = pages["kv"][fetched.slots].numpy()
                        assert np.array_equal(got, bodies[:, offset : offset + length])
                    assert seen == [0, 1]
                    view = fetched.lease.checkpoint
                    assert view is not None
                    assert bytes(view) == checkpoint.tobytes()
                    assert bytes(fetched.lease.window(2)) == windows[2].tobytes()


def test_at_capacity_the_oldest_blocks_go(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        prompts = [store_prompt(ns, seed, 4) for seed in range(3)]
        with DevicePool(store, ns, 8) as pool:
            for tokens, bodies in [prompts[0], prompts[1], prompts[0], prompts[2]]:
                with pool.fetch(tokens) as fetched:
                    assert same(fetched, bodies)
            assert (len(pool), marks(store)) == (8, 8)
            held = [list(ns.match(tokens).blocks) for tokens, _ in prompts]
            assert held == [["host"] * 4] * 3
            tiers = [["mirror" in of for of in ns.match(tokens).tiers()] for tokens, _ in prompts]
            assert tiers == [[True] * 4, [False] * 4, [True] * 4]
            # One slot short: of the oldest chain the last block goes first.
            with pool.fetch(prompts[1][0][: BLOCK + 1]) as fetched:
                assert same(fetched, prompts[1][1][:1])
            assert ["mirror" in of for of in ns.match(prompts[0][0]).tiers()] == [True] * 3 + [
                False
            ]


def test_a_slot_in_use_is_not_given_away(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        prompts = [store_prompt(ns, seed, 4) for seed in range(3)]
        with DevicePool(store, ns, 6) as pool:
            with pool.fetch(prompts[0][0]) as first:
                assert same(first, prompts[0][1])
                kept = first[3].clone()
                with pool.fetch(prompts[1][0]) as second:
                    assert second.plan.usable == 2 * BLOCK, "two slots are left"
                    assert same(second, prompts[1][1][:2])
                    assert not set(first.slots.tolist()) & set(second.slots.tolist())
                    with pool.fetch(prompts[2][0]) as third:
                        assert (len(third), third.plan.usable) == (0, 0)
                    with pool.fetch(prompts[0][0]) as again:
                        assert same(again, prompts[0][1]), "what is in use may be used again"
                assert torch.equal(first[3], kept)
            with pytest.raises(kvstore.ClosedError, match="the fetch has ended"):
                first[0]
            with pool.fetch(prompts[2][0]) as third:
                assert same(third, prompts[2][1])


def test_what_is_held_is_not_given_up_for_the_rest_of_its_prompt(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = store_prompt(ns, 1, 6)
        with DevicePool(store, ns, 4) as pool:
            with pool.fetch(tokens[: 3 * BLOCK + 1]) as fetched:
                assert same(fetched, bodies[:3])
            before = reads(store)[0]
            with pool.fetch(tokens) as fetched:
                assert list(fetched.plan.blocks) == ["mirror"] * 3 + ["host"]
                assert same(fetched, bodies[:4])
            assert reads(store)[0] == before + 1


def test_a_fetch_that_fails_halfway_leaves_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = store_prompt(ns, 1, 4)
        with DevicePool(store, ns, 4, ahead=0) as pool:

            def stop_in_the_first_layer() -> None:
                with pool.fetch(tokens) as fetched:
                    for layer, _ in fetched.layers():
                        raise ZeroDivisionError(layer)

            with pytest.raises(ZeroDivisionError):
                stop_in_the_first_layer()
            assert (len(pool), marks(store)) == (0, 0)
            assert store.stats()["pins"] == 0
            # What it had taken its slots from is gone as well, and not marked any more.
            other = store_prompt(ns, 2, 4)
            with pool.fetch(other[0]) as fetched:
                assert same(fetched, other[1])
            with pytest.raises(ZeroDivisionError):
                stop_in_the_first_layer()
            assert (len(pool), marks(store)) == (0, 0)
            # Left early without an error, what was read is kept.
            with pool.fetch(tokens):
                pass
            assert (len(pool), marks(store)) == (4, 4)
            with pool.fetch(tokens) as fetched:
                assert same(fetched, bodies)


def test_two_fetches_of_one_prompt_keep_one_copy(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = store_prompt(ns, 1, 2)
        with DevicePool(store, ns, 4) as pool:
            with pool.fetch(tokens) as one, pool.fetch(tokens) as two:
                assert same(one, bodies)
                assert same(two, bodies)
            assert (len(pool), marks(store)) == (2, 2)
            with pool.fetch(tokens) as one:
                assert same(one, bodies)
                # The other slots are free again.
                other = store_prompt(ns, 2, 2)
                with pool.fetch(other[0]) as two:
                    assert same(two, other[1])


def test_threads_share_a_pool(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        prompts = [store_prompt(ns, seed, 5) for seed in range(4)]
        with DevicePool(store, ns, 12) as pool, ThreadPoolExecutor(4) as threads:

            def work(seed: int) -> int:
                order = np.random.default_rng(seed).integers(0, len(prompts), 40)
                blocks = 0
                for tokens, bodies in (prompts[at] for at in order):
                    with pool.fetch(tokens) as fetched:
                        got = len(fetched)
                        assert same(fetched, bodies[:got])
                        blocks += got
                return blocks

            # A fetch gets no blocks while others hold all slots, so only the sum is sure.
            assert sum(threads.map(work, range(4))) > 0
            assert 0 < marks(store) == len(pool) <= 12
            tokens, bodies = store_prompt(ns, 9, 12)
            with pool.fetch(tokens) as fetched:
                assert same(fetched, bodies), "every slot has come back"
        assert store.stats()["pins"] == 0


def test_bodies_in_parts(tmp_path: Path) -> None:
    with open_store(tmp_path, host_bytes="80 MiB") as store:
        ns = namespace(store, LARGE)
        tokens, bodies = store_prompt(ns, 1, 2)
        with DevicePool(store, ns, 2) as pool:
            for _ in range(2):
                with pool.fetch(tokens) as fetched:
                    assert same(fetched, bodies)


def test_closing_and_loss_drop_the_marks(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = store_prompt(ns, 1, 3)
        pool = DevicePool(store, ns, 8, worker=5)
        with pool.fetch(tokens) as fetched:
            fetched[0]
            assert marks(store) == 3
            pool.close()
            pool.close()
            assert same(fetched, bodies), "what was fetched lives as long as its block"
        assert (marks(store), store.stats()["mirror"]["workers"]) == (0, 0)
        with pytest.raises(kvstore.ClosedError, match="the pool is closed"):
            pool.fetch(tokens)

        old = DevicePool(store, ns, 8, worker=5)
        with old.fetch(tokens):
            pass
        with DevicePool(store, ns, 8, worker=5) as new:
            assert marks(store) == 0
            with new.fetch(tokens) as fetched:
                assert same(fetched, bodies)
            with pytest.raises(kvstore.ClosedError, match="worker 5 has been replaced"):
                old.fetch(tokens)
            old.close()
            assert marks(store) == 3, "closing the old one does not touch the new one's marks"
        # One that was replaced before it held anything notices by its first block.
        old = DevicePool(store, ns, 8, worker=6)
        with DevicePool(store, ns, 8, worker=6):
            with old.fetch(tokens) as fetched:
                assert same(fetched, bodies)
            with pytest.raises(kvstore.ClosedError, match="worker 6 has been replaced"):
                old.fetch(tokens)
    pool = DevicePool(reopened := open_store(tmp_path), namespace(reopened), 8)
    reopened.close()
    pool.close()


def test_misuse(tmp_path: Path) -> None:
    with open_store(tmp_path, mirror_slots=10) as store:
        ns = namespace(store)
        with pytest.raises(kvstore.LimitError, match="wants 11 slots"):
            DevicePool(store, ns, 11)
        with pytest.raises(kvstore.InvalidArgument, match="slots is 0"):
            DevicePool(store, ns, 0)
        with pytest.raises(kvstore.InvalidArgument, match="ahead is -1"):
            DevicePool(store, ns, 4, ahead=-1)
        windows_only = kvstore.layouts.Layout.by_hand(
            "windows", BLOCK, [kvstore.layouts.Group("w", 8, [0], kind="window", window=64)]
        )
        with pytest.raises(kvstore.InvalidArgument, match="no bodies to keep"):
            DevicePool(store, namespace(store, windows_only), 4)
        assert store.stats()["mirror"]["workers"] == 0
