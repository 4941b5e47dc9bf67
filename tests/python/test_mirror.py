"""What a serving engine holds in HBM, as Python sees it: `store.mirror`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kvstore
import numpy as np
import pytest
import stores
from stores import BLOCK, LAYOUT, namespace, open_store, prompt, rows, store_prompt


def counters(store: kvstore.Store) -> dict[str, Any]:
    found: dict[str, Any] = store.stats()["counters"]
    return found


def test_what_a_worker_holds_is_a_hit_for_it_alone(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = store_prompt(ns, 1, 4)
        longer = np.concatenate([tokens[: 4 * BLOCK], prompt(2, 2)])
        worker = store.mirror.join(7, 16)
        assert (worker.id, worker.epoch) == (7, 1)
        plan = ns.match(longer)
        assert list(plan.blocks) == ["host"] * 4 + ["absent"] * 2
        keys = np.frombuffer(plan.keys, np.uint8).reshape(6, 32)
        # Two that are stored, and one that is not yet.
        assert store.mirror.insert(keys[[1, 3, 4]], [0, 1, 9], worker) == 3
        assert list(ns.match(longer).blocks) == list(plan.blocks)

        plan = ns.match(longer, worker=worker)
        assert list(plan.blocks) == ["host", "mirror", "host", "mirror", "mirror", "absent"]
        assert (plan.mirror_blocks, plan.host_blocks, plan.usable) == (3, 2, 5 * BLOCK)
        assert plan.read_bytes == 2 * LAYOUT.body_bytes
        before = counters(store)
        with ns.lease(plan) as lease:
            assert list(lease.plan.blocks) == list(plan.blocks)
            assert bytes(lease[2]) == bodies[2].tobytes()
            with pytest.raises(kvstore.InvalidArgument, match="block 1: the worker"):
                lease[1]
        out = np.zeros((2, LAYOUT.body_bytes), np.uint8)
        assert ns.get_into(plan, out).usable == 5 * BLOCK
        assert np.array_equal(out, bodies[[0, 2]])
        after = counters(store)
        assert after["reads_asked"] - before["reads_asked"] == 4
        misses = sum(after["misses"].values())
        hits = after["hits_mirror"] + after["hits_host"] + after["hits_disk"]
        assert (after["hits_mirror"], hits + misses) == (3, after["lookups"])

        assert plan.tiers()[3:] == [["mirror", "host", "disk"], ["mirror"], []]
        store.mirror.drop_worker(worker)
        assert plan.tiers()[3:] == [["host", "disk"], [], []]
        assert ns.lease(plan).plan.usable == BLOCK, "the worker's blocks are gone"


def test_keys_of_a_serving_engine(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        keyed = namespace(store).keyed
        hashes, bodies = rows(1, 4, 20), rows(2, 4, 500)
        assert keyed.put(hashes[:2], bodies[:2], ack="ssd").wait(30)
        worker = store.mirror.join(0, 4)
        keys = keyed.block_keys(hashes)
        assert len(keys) == 4 * 32
        assert store.mirror.insert(keys[32:96], [0, 1], worker) == 2
        assert store.mirror.contains(keys) == [False, True, True, False]
        assert keyed.tiers(hashes)[1:] == [["mirror", "host", "disk"], ["mirror"], []]
        match = keyed.match(hashes, worker=worker)
        assert list(match.blocks) == ["host", "mirror", "mirror", "absent"]
        assert (match.matched, match.mirror_blocks, match.host_blocks) == (3, 2, 1)
        assert keyed.match(hashes).matched == 2
        assert store.mirror.remove([keys[32:64]], worker) == 1
        assert store.mirror.contains(keys, worker) == [False, False, True, False]


def test_an_epoch_ends_with_the_next_join(tmp_path: Path) -> None:
    with open_store(tmp_path, mirror_slots=100) as store:
        keys = rows(1, 3, 32)
        first = store.mirror.join(0, 60)
        assert store.mirror.insert(keys, [0, 1, 2], first) == 3
        second = store.mirror.join(0, 60)
        assert first != second
        assert store.mirror.contains(keys) == [False] * 3
        assert store.mirror.insert(keys, [0, 1, 2], first) == 0
        assert store.mirror.insert(keys, [2, 1, 0], second) == 3
        store.mirror.drop_worker(first)
        assert store.mirror.contains(keys, second) == [True] * 3
        stats = store.stats()["mirror"]
        assert stats == {
            "limit": 100,
            "bytes": stats["bytes"],
            "workers": 1,
            "slots": 60,
            "marks": 3,
            "stale": 1,
        }
        host = store.stats()["host"]
        assert 0 < host["arena"] + host["index"] + stats["bytes"] <= host["limit"]
        store.mirror.drop_worker(0)
        assert store.stats()["mirror"]["marks"] == 0


def test_misuse_names_field_value_and_limit(tmp_path: Path) -> None:
    with open_store(tmp_path, mirror_slots=100) as store:
        mirror = store.mirror
        worker = mirror.join(0, 60)
        with pytest.raises(
            kvstore.LimitError, match="worker 1 wants 41 slots: the mirror has 40 of 100"
        ):
            mirror.join(1, 41)
        with pytest.raises(kvstore.InvalidArgument, match="worker is 255, from 0 to 254"):
            mirror.join(255, 1)
        with pytest.raises(kvstore.InvalidArgument, match="worker is 300, from 0 to 254"):
            mirror.drop_worker(300)
        with pytest.raises(kvstore.InvalidArgument, match="slots is 0, a worker has from 1"):
            mirror.join(1, 0)
        with pytest.raises(kvstore.InvalidArgument, match=r"slots\[0\] is 60, worker 0 has 60"):
            mirror.insert(bytes(32), [60], worker)
        with pytest.raises(kvstore.InvalidArgument, match="slots has 2 items for 1 keys"):
            mirror.insert(bytes(32), [1, 2], worker)
        with pytest.raises(kvstore.InvalidArgument, match="keys has 33 bytes: block keys have 32"):
            mirror.contains(bytes(33))
        with pytest.raises(kvstore.InvalidArgument, match="width is 32: the keys have 20 bytes"):
            mirror.contains(rows(1, 2, 20))
    with pytest.raises(kvstore.ClosedError):
        mirror.join(0, 1)
    with pytest.raises(kvstore.InvalidArgument, match="mirror_slots is 4294967295"):
        stores.open_store(tmp_path, mirror_slots=2**32 - 1)
