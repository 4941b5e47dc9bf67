"""Answers of puts and prefetches, and the ways to wait for them; the async twins."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Awaitable
from pathlib import Path

import kvstore
import numpy as np
import pytest
import stores
from stores import bodies, namespace, open_store, prompt


def test_a_batch_says_what_became_of_each_item(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens = prompt(1, 3)
        batch = ns.put(tokens, bodies(1, 2))
        again = ns.put(tokens, bodies(1, 3), ack="ssd+flush")
        assert again.wait(timeout=30)
        assert (batch.done, again.done, len(again)) == (True, True, 3)
        assert [status.name for status in again.status] == ["exists", "exists", "stored"]
        assert again.items == [("body", 0), ("body", 1), ("body", 2)]
        assert (again.status.count("exists"), again.status.accepted) == (2, True)
        assert again.status[-1] == batch.status[0]
        assert again.status[0] != again.status[2]
        assert len({again.status[0], again.status[1], again.status[2]}) == 2
        assert again.status[0].reason is None
        with pytest.raises(IndexError):
            again.status[3]


def test_a_descriptor_becomes_readable(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        batch = namespace(store).put(prompt(1, 50), bodies(1, 50), ack="ssd")
        readable, _, _ = select.select([batch], [], [], 30)
        assert readable == [batch]
        assert batch.done


def test_a_put_that_finds_no_room_is_busy_or_waits(tmp_path: Path) -> None:
    """Nothing is dropped in silence, and what asked for the disk waits for room."""
    with open_store(tmp_path, host_bytes="20 MiB") as store:
        ns = namespace(store)
        names = set()
        for seed in range(20):
            batch = ns.put(prompt(seed, 200), bodies(seed, 200))
            assert batch.done
            names |= {status.name for status in batch.status}
        assert names <= {"stored", "busy"}
        assert ns.put(prompt(30, 600), bodies(30, 600), ack="ssd").wait(60)
        assert ns.match(prompt(30, 600)).usable == 600 * stores.BLOCK


def test_prefetch_brings_to_host_memory(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        tokens, _ = stores.store_prompt(namespace(store), 1, 40)
    with open_store(tmp_path) as store:
        ns = namespace(store)
        plan = ns.match(tokens)
        assert plan.disk_blocks == 40
        batch = ns.prefetch(plan, deadline=30)
        assert len(batch) == 40
        assert batch.items[7] == ("body", 7)
        assert batch.wait(30)
        assert batch.status.count("stored") == 40
        assert ns.match(tokens).host_blocks == 40
        assert store.stats()["pins"] == 0


def test_aborted_prefetches_leave_nothing_behind(tmp_path: Path) -> None:
    """B3-10: cancel 1,000 prefetches at whatever step they are; then the next is admitted."""
    with open_store(tmp_path) as store:
        tokens, stored = stores.store_prompt(namespace(store), 1, 64)
    with open_store(tmp_path, host_bytes="20 MiB") as store:
        ns = namespace(store)
        plan = ns.match(tokens)
        batches = []
        for turn in range(1000):
            batch = ns.prefetch(plan, deadline=0 if turn % 7 == 0 else 30)
            if turn % 3 == 0:
                batch.wait(0.0005 * (turn % 5))
            batch.cancel()
            batches.append(batch)
        assert all(batch.wait(60) for batch in batches)
        names = {status.name for batch in batches for status in batch.status}
        assert names <= {"stored", "cancelled", "busy"}
        assert store.flush(30)
        stats = store.stats()
        assert (stats["in_flight"], stats["pins"], stats["host"]["pinned"]) == (0, 0, 0)
        last = ns.prefetch(plan)
        assert last.wait(30)
        assert last.status.count("stored") == 64
        out = np.empty_like(stored)
        ns.get_into(plan, out)
        assert np.array_equal(out, stored)


def test_cancelled_puts_settle_and_the_store_goes_on(tmp_path: Path) -> None:
    """B4-08: whatever the order of put, cancel and put again, every item gets one answer."""
    with open_store(tmp_path) as store:
        ns = namespace(store)
        for seed in range(50):
            tokens, rows = prompt(seed, 8), bodies(seed, 8)
            first = ns.put(tokens, rows, ack="ssd")
            first.cancel()
            second = ns.put(tokens, rows, ack="ssd")
            first.cancel()
            assert first.wait(30)
            assert second.wait(30)
            assert {s.name for s in first.status} <= {"stored", "cancelled", "rejected", "exists"}
            assert second.status.accepted, second.status
            assert ns.match(tokens).usable == 8 * stores.BLOCK
        assert store.stats()["queued_writes"] == 0


def test_everything_that_waits_can_be_awaited(tmp_path: Path) -> None:
    async def main(store: kvstore.Store) -> None:
        ns = namespace(store)
        tokens, rows = prompt(1, 20), bodies(1, 20)
        batch = await ns.put_async(tokens, rows, ack="ssd")
        statuses = await batch
        assert statuses.accepted
        assert len(statuses) == 20
        assert (await batch).accepted, "a batch can be awaited twice"
        plan = ns.match(tokens)
        with await ns.lease_async(plan) as lease:
            assert bytes(lease[19]) == rows[19].tobytes()
        out = np.empty_like(rows)
        got = await ns.get_into_async(plan, out)
        assert got.usable == plan.usable
        assert np.array_equal(out, rows)
        assert (await ns.prefetch(plan)).count("stored") == 20

        async def chain(seed: int) -> bool:
            stored: Awaitable[kvstore.Statuses] = ns.put(
                prompt(seed, 10), bodies(seed, 10), ack="ssd"
            )
            return (await stored).accepted

        assert all(await asyncio.gather(*(chain(seed) for seed in range(2, 22))))

        keys = np.arange(64, dtype=np.uint8).reshape(2, 32)
        keyed = await ns.keyed.put_async(keys, [b"one", b"two"], parents=[-1, 0], ack="ssd")
        assert (await keyed).accepted
        with await ns.keyed.lease_async(keys) as pair:
            assert [bytes(view) for view in pair] == [b"one", b"two"]
        places = [bytearray(3), bytearray(3)]
        assert await ns.keyed.get_into_async(keys, places) == 2
        assert places == [b"one", b"two"]

    with open_store(tmp_path) as store:
        asyncio.run(main(store))


def test_an_await_that_is_cancelled_leaves_the_batch_alone(tmp_path: Path) -> None:
    async def main(store: kvstore.Store) -> None:
        batch = namespace(store).put(prompt(1, 300), bodies(1, 300), ack="ssd+flush")

        async def wait() -> None:
            await batch

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await batch).accepted

    with open_store(tmp_path) as store:
        asyncio.run(main(store))
