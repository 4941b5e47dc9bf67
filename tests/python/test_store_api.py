"""The store from Python, end to end."""

from __future__ import annotations

import array
from datetime import timedelta
from pathlib import Path
from typing import Any

import kvstore
import numpy as np
import pytest
import stores
from stores import BLOCK, HYBRID, LARGE, LAYOUT, WINDOWED, namespace, open_store, prompt, rows


def test_what_was_put_comes_back_in_every_way(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = stores.store_prompt(ns, 1, 10)
        plan = ns.match(tokens)
        assert (plan.tokens, plan.matched, plan.usable, plan.replay_start) == (641, 640, 640, 640)
        assert (plan.mode, plan.bodies, plan.checkpoint) == ("plain", (0, 10), None)
        assert plan.windows[0] == plan.windows[1], "no window is read"
        assert plan.recompute_tokens == 1
        assert list(plan.blocks) == ["host"] * 10
        assert (plan.host_blocks, plan.disk_blocks) == (10, 0)
        assert plan.host_bytes == plan.read_bytes == bodies.nbytes

        with ns.lease(plan) as lease:
            assert lease.plan.usable == 640
            assert len(lease) == 10
            assert [bytes(body) for body in lease] == [body.tobytes() for body in bodies]
            assert bytes(lease[-1]) == bodies[9].tobytes()
            (part,) = lease.parts(3)
            assert bytes(part) == bodies[3].tobytes()
            area, offset, length = LAYOUT.page("kv", 1) or ("", 0, 0)
            assert area == "body"
            assert bytes(lease.page(3, "kv", 1)) == bodies[3, offset : offset + length].tobytes()
            assert lease.checkpoint is None

        out = np.zeros(plan.read_bytes, np.uint8)
        got = ns.get_into(plan, out)
        assert got.usable == 640
        assert np.array_equal(out.reshape(bodies.shape), bodies)


def test_a_store_keeps_what_it_acknowledged_over_a_restart(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        tokens, bodies = stores.store_prompt(namespace(store), 1, 10)
    with open_store(tmp_path) as store:
        assert store.stats()["recovered"]["objects"] == 10
        ns = namespace(store)
        plan = ns.match(tokens)
        assert list(plan.blocks) == ["disk"] * 10
        with ns.lease(plan) as lease:
            assert list(lease.plan.blocks) == ["host"] * 10
            assert bytes(lease[7]) == bodies[7].tobytes()


def test_a_second_open_joins_the_first(tmp_path: Path) -> None:
    first, second = open_store(tmp_path), open_store([tmp_path])  # type: ignore[arg-type]
    tokens, _ = stores.store_prompt(namespace(first), 1, 4)
    assert namespace(second).match(tokens).usable == 256
    assert first.close()
    assert first.closed
    assert not second.closed
    assert namespace(second).match(tokens).usable == 256
    with pytest.raises(kvstore.InvalidArgument, match="other options"):
        open_store(tmp_path, host_bytes="16 MiB", objects=1000)
    assert second.close()
    assert second.close(), "a second close does nothing"


def test_no_tokens_match_no_tokens(tmp_path: Path) -> None:
    """B1-04: a length of 0 must not go through "round down of n - 1"."""
    with open_store(tmp_path) as store:
        ns = namespace(store)
        stores.store_prompt(ns, 1, 2)
        nothing: list[Any] = [[], (), None, b"", np.array([], np.int64)]
        for empty in nothing:
            plan = ns.match(empty)
            assert (plan.tokens, plan.matched, plan.usable, plan.recompute_tokens) == (0, 0, 0, 0)
            assert (len(plan.blocks), plan.mode) == (0, "nothing")
            assert len(ns.lease(plan)) == 0
            usage = ns.usage(empty)
            assert (usage.prompt_tokens, usage.hit_tokens, usage.miss_tokens) == (0, 0, 0)
            assert len(ns.put(empty, None).status) == 0


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"])
def test_any_integer_buffer_gives_the_same_keys(tmp_path: Path, dtype: str) -> None:
    ids = [int(i) % 128 for i in range(3 * BLOCK)]
    with open_store(tmp_path) as store:
        ns = namespace(store)
        keys = ns.keys(ids)
        assert len(keys) == 3 * 32
        array_ids = np.array(ids, dtype)
        assert ns.keys(array_ids) == keys
        assert ns.keys(tuple(ids)) == keys
        assert ns.keys(array.array("q", ids)) == keys
        assert ns.keys(bytes(ids)) == keys
        assert ns.keys(memoryview(array_ids.data)) == keys
        unaligned = bytearray(1 + array_ids.nbytes)
        unaligned[1:] = array_ids.tobytes()
        assert ns.keys(np.frombuffer(unaligned, dtype, offset=1)) == keys
        assert ns.keys([*ids[:BLOCK], 1, *ids[BLOCK + 1 :]]) != keys


def test_extra_keys_and_salts_are_part_of_the_identity(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = stores.store_prompt(ns, 1, 3)
        picture = {1: b"picture " * 4}
        assert ns.match(tokens, extra_keys=picture).usable == BLOCK
        ns.put(tokens, bodies, extra_keys=picture)
        assert ns.match(tokens, picture).usable == 3 * BLOCK
        assert ns.match(tokens, {1: [picture[1], picture[1]]}).usable == BLOCK
        for other in (
            namespace(store, cache_salt="tenant"),
            namespace(store, cache_salt=b"other tenant"),
            namespace(store, model="other"),
            namespace(store, adapter=bytes(16)),
            namespace(store, axes={"tp": (0, 2)}),
            namespace(store, extra={"rope": "yarn"}),
            namespace(store, dtype="fp8"),
            namespace(store, revision="2"),
        ):
            assert other.match(tokens).matched == 0
        assert namespace(store, axes={"tp": (0, 1)}).match(tokens).usable == 3 * BLOCK


def test_explain_names_the_block_the_reason_and_the_field(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, _ = stores.store_prompt(ns, 1, 4)
        before = store.stats()["counters"]["lookups"]
        longer = np.concatenate([tokens[:-1], prompt(2, 2)])
        why = ns.explain(longer)
        assert (why.usable, why.block, why.reason, why.differs) == (256, 4, "absent", [])
        whole = ns.explain(tokens[:256])
        assert (whole.matched, whole.usable, whole.block) == (256, 192, 3)
        assert whole.reason == "below_unit"
        other = namespace(store, dtype="fp8").explain(tokens)
        assert (other.usable, other.block, other.reason) == (0, 0, "absent")
        assert [field.field for field in other.differs] == ["dtype"]
        assert other.differs[0].here == '"fp8"'
        assert 'dtype: "fp8" here' in str(other)
        assert store.stats()["counters"]["lookups"] == before, "asking why is no look-up"


def test_usage_is_in_whole_units(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, _ = stores.store_prompt(ns, 1, 5)
        usage = ns.usage(tokens, unit=128)
        assert (usage.prompt_tokens, usage.hit_tokens, usage.miss_tokens) == (321, 256, 65)
        assert usage == ns.match(tokens).usage(128)
        assert ns.usage(prompt(2, 1)).first_difference == 0


def test_clear_makes_unreachable(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        mine, tenant = namespace(store), namespace(store, cache_salt="t")
        other = namespace(store, model="other")
        for ns in (mine, tenant, other):
            tokens, _ = stores.store_prompt(ns, 1, 3)
        plan = tenant.match(tokens)
        assert store.clear(cache_salt="t") == 3
        assert tenant.match(tokens).matched == 0
        assert tenant.lease(plan).plan.usable == 0, "an older plan gives nothing"
        assert mine.match(tokens).usable == 192
        assert mine.clear(erase=True) == 3
        assert mine.match(tokens).matched == 0
        assert other.match(tokens).usable == 192


def test_ttl_ends_a_life(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store, ttl=timedelta(hours=1))
        tokens, bodies = stores.store_prompt(ns, 1, 2)
        assert ns.match(tokens).usable == 128
        other = prompt(2, 2)
        ns.put(other, bodies, ttl=0)
        assert list(ns.match(other).blocks) == ["expired", "absent"]


def test_a_divergent_put_is_an_error_where_bytes_must_repeat(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        tokens, bodies = stores.store_prompt(namespace(store), 1, 2)
        other = bodies.copy()
        other[1, 7] ^= 1
        batch = namespace(store).put(tokens, other)
        assert [status.name for status in batch.status] == ["exists"] * 2
        strict = namespace(store, deterministic=True)
        assert strict.put(tokens, bodies).status.count("exists") == 2
        with pytest.raises(kvstore.DivergenceError):
            strict.put(tokens, other)
        assert strict.match(tokens).usable == 128
        with strict.lease(strict.match(tokens)) as lease:
            assert bytes(lease[1]) == bodies[1].tobytes(), "the first writer wins"


def test_windows_and_checkpoints_give_resume_points(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store, HYBRID)
        tokens, bodies = prompt(1, 8), stores.bodies(1, 8, HYBRID)
        windows = rows(2, 8, HYBRID.window_bytes)
        checkpoints = {
            256: rows(3, 1, HYBRID.checkpoint_bytes)[0],
            512: rows(4, 1, HYBRID.checkpoint_bytes)[0],
        }
        batch = ns.put(tokens, bodies, windows=dict(enumerate(windows)), checkpoints=checkpoints)
        assert batch.status.accepted
        assert batch.items[:3] == [("body", 0), ("window", 0), ("body", 1)]
        assert batch.items[-3:] == [("body", 7), ("window", 7), ("checkpoint", 512)]

        plan = ns.match(tokens)
        assert (plan.matched, plan.usable, plan.mode, plan.checkpoint) == (
            512,
            512,
            "checkpoint",
            512,
        )
        assert plan.windows == (6, 8), "127 tokens before 512 lie in two blocks"
        with ns.lease(plan) as lease:
            assert bytes(lease.window(6)) == windows[6].tobytes()
            assert lease.checkpoint is not None
            assert bytes(lease.checkpoint) == checkpoints[512].tobytes()
            assert bytes(lease.page(7, "local", 2)) == windows[7].tobytes()
            assert bytes(lease.page(7, "state", 3)) == checkpoints[512].tobytes()
            (part,) = lease.parts(0, "checkpoint")
            assert bytes(part) == checkpoints[512].tobytes()
            with pytest.raises(IndexError, match="windows 6 to 8"):
                lease.window(3)
        out = bytearray(plan.read_bytes)
        ns.get_into(plan, out)
        wanted = bodies.tobytes() + windows[6:].tobytes() + checkpoints[512].tobytes()
        assert out == wanted

        shorter = ns.match(tokens[:400])
        assert (shorter.matched, shorter.usable, shorter.checkpoint) == (384, 256, 256)
        assert list(shorter.blocks) == ["host"] * 4 + ["no_resume_point"] * 2


def test_a_window_or_checkpoint_is_rejected_with_its_block(tmp_path: Path) -> None:
    """What hangs under a block that was not accepted is not accepted either."""
    with open_store(tmp_path, read_only=False) as store:
        ns = namespace(store, HYBRID)
        stores.store_prompt(ns, 5, 1)
    with open_store(tmp_path, read_only=True) as store:
        ns = namespace(store, HYBRID)
        batch = ns.put(
            prompt(1, 1),
            stores.bodies(1, 1, HYBRID),
            windows={0: bytes(HYBRID.window_bytes)},
            checkpoints={64: bytes(HYBRID.checkpoint_bytes)},
        )
        assert [(s.name, s.reason) for s in batch.status] == [("rejected", "read_only")] * 3
        assert not batch.status.accepted
        with pytest.raises(kvstore.InvalidArgument, match="read_only"):
            ns.clear()


def test_a_chain_goes_on_where_it_ended(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store, WINDOWED)
        tokens, bodies = prompt(1, 6), stores.bodies(1, 6, WINDOWED)
        windows = rows(2, 6, WINDOWED.window_bytes)
        ns.put(tokens[: 3 * BLOCK], bodies[:3], windows={1: windows[1], 2: windows[2]})
        later = ns.put(tokens, bodies[3:], first_block=3, windows={4: windows[4], 5: windows[5]})
        assert later.items[0] == ("body", 3)
        plan = ns.match(tokens)
        assert (plan.usable, plan.windows) == (384, (4, 6))
        assert ns.match(tokens[: 5 * BLOCK]).usable == 192, "block 3 has no window"


def test_replayed_blocks_are_for_those_who_allow_them(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = prompt(1, 6), stores.bodies(1, 6)
        ns.put(tokens, bodies[:3])
        ns.put(tokens, bodies[3:], first_block=3, replayed_from=3)
        assert ns.match(tokens).usable == 3 * BLOCK
        plan = ns.match(tokens, allow_approximate=True)
        assert (plan.usable, plan.replayed_from) == (6 * BLOCK, 3)
        with ns.lease(plan) as lease:
            assert bytes(lease[5]) == bodies[5].tobytes()


def test_costs_choose_the_plan(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, _ = stores.store_prompt(ns, 1, 4)
        cheap = ns.match(tokens, costs=(1.0, 0.0))
        assert (cheap.usable, cheap.cost) == (256, 1.0)
        dear = ns.match(tokens, costs=(0.0, 1.0))
        assert (dear.usable, dear.mode, dear.cost) == (0, "nothing", 0.0)


def test_objects_in_parts(tmp_path: Path) -> None:
    """A body above a quarter of a segment is stored in parts, and comes back whole."""
    with open_store(tmp_path, host_bytes="64 MiB") as store:
        ns = namespace(store, LARGE)
        tokens, bodies = stores.store_prompt(ns, 1, 2)
        plan = ns.match(tokens)
        assert plan.usable == 128
        with ns.lease(plan) as lease:
            with pytest.raises(kvstore.InvalidArgument, match=r"6 parts.*parts\(1\)"):
                lease[1]
            parts = lease.parts(1)
            assert b"".join(bytes(part) for part in parts) == bodies[1].tobytes()
            for layer in range(12):
                _, offset, length = LARGE.page("kv", layer) or ("", 0, 0)
                page = stores.array(lease.page(0, "kv", layer))
                assert np.array_equal(page, bodies[0, offset : offset + length])
        out = np.empty(plan.read_bytes, np.uint8)
        ns.get_into(plan, out)
        assert np.array_equal(out.reshape(bodies.shape), bodies)


def test_flush_and_stats(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        ns.put(prompt(1, 10), stores.bodies(1, 10))
        assert store.flush(timeout=30)
        stats = store.stats()
        assert stats["disk"]["objects"] == stats["objects"] == 10
        assert (stats["queued_writes"], stats["host"]["dirty"], stats["poisoned"]) == (0, 0, False)
        assert stats["host"]["kind"] == "private"
        assert stats["disk"]["classes"] == {24576: 10}
        counters = stats["counters"]
        assert counters["puts_stored"] == 10
        ns.match(prompt(1, 10))
        ns.match(prompt(2, 3))
        counters = store.stats()["counters"]
        misses = sum(counters["misses"].values())
        assert counters["lookups"] == counters["hits_host"] + counters["hits_disk"] + misses == 13


def test_bytes_are_copied_before_put_returns(tmp_path: Path) -> None:
    """B1-08: what the caller does to its buffers afterwards changes nothing."""
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = prompt(1, 8), stores.bodies(1, 8)
        buffer = bodies.copy()
        batch = ns.put(tokens, buffer, ack="ssd")
        buffer[:] = 0xAA
        assert batch.wait(30)
        with ns.lease(ns.match(tokens)) as lease:
            assert all(
                bytes(got) == body.tobytes() for got, body in zip(lease, bodies, strict=True)
            )


@pytest.mark.parametrize("kind", ["array", "list", "bytes", "views"])
def test_bodies_come_in_many_shapes(tmp_path: Path, kind: str) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, stored = prompt(1, 4), stores.bodies(1, 4)
        given: Any = {
            "array": stored,
            "list": [bytearray(stored[0]), memoryview(stored[1]), stored[2], stored[3].view("f4")],
            "bytes": tuple(body.tobytes() for body in stored),
            "views": list(stored),
        }[kind]
        assert ns.put(tokens, given).status.accepted
        out = np.empty((4, LAYOUT.body_bytes), np.uint8)
        ns.get_into(ns.match(tokens), out)
        assert np.array_equal(out, stored)


def test_a_store_without_a_host_tier(tmp_path: Path) -> None:
    with open_store(tmp_path, host_bytes=0) as store:
        ns = namespace(store)
        tokens, bodies = stores.store_prompt(ns, 1, 4)
        with ns.lease(ns.match(tokens)) as lease:
            assert bytes(lease[2]) == bodies[2].tobytes()
        assert store.stats()["pins"] == 0


def test_weights_say_how_they_were_identified(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        tokens, _ = stores.store_prompt(namespace(store), 1, 1)
        for same in (stores.WEIGHTS, kvstore.Weights("full", stores.WEIGHTS)):
            ns = store.namespace(LAYOUT, model="tiny", weights=same)
            assert ns.match(tokens).usable == BLOCK
        weaker = store.namespace(LAYOUT, model="tiny", weights=("sampled", stores.WEIGHTS))
        assert weaker.match(tokens).usable == 0
        with pytest.raises(kvstore.InvalidArgument, match="name"):
            store.namespace(LAYOUT, model="tiny", weights=("name", "gpt"))
        store.namespace(LAYOUT, model="tiny", weights=("name", "gpt"), allow_weights_by_name=True)
