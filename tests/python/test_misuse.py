"""Misuse raises an error that names field, value and limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvstore
import numpy as np
import pytest
import stores
from stores import BLOCK, HYBRID, LAYOUT, WINDOWED, namespace, open_store, prompt

Call = Callable[[], Any]


def check(cases: dict[str, Call]) -> None:
    for message, call in cases.items():
        with pytest.raises(kvstore.InvalidArgument, match=message) as raised:
            call()
        assert isinstance(raised.value, ValueError)
        assert isinstance(raised.value, kvstore.Error)


def test_open(tmp_path: Path) -> None:
    def opening(**options: Any) -> Call:
        return lambda: open_store(tmp_path, **options)

    check(
        {
            "host_bytes is '8 GB of memory'": opening(host_bytes="8 GB of memory"),
            "disk_bytes is -1": opening(disk_bytes=-1),
            "max_disk_bytes is 1.5": opening(max_disk_bytes=1.5),
            "host_bytes is 1048576, index and mirror of this store need": opening(
                host_bytes="1 MiB"
            ),
            'arena is "fast"': opening(arena="fast"),
            'verify is "never"': opening(verify="never"),
            "io_threads is 0: it takes 1 to 256": opening(io_threads=0),
            "objects is 0": opening(objects=0),
            "lock_wait is -1": opening(lock_wait=-1),
            "room_wait is 'soon'": opening(room_wait="soon"),
            "read_only": opening(read_only=True),
            "2 directories: this version keeps a store on one device": lambda: kvstore.open(
                [str(tmp_path), "/other"]
            ),
            "0 directories": lambda: kvstore.open([]),
            "path is 7": lambda: kvstore.open(7),  # type: ignore[arg-type]
        }
    )
    with pytest.raises(TypeError, match="host_byte"):
        kvstore.open(tmp_path, host_byte="1 GiB")  # type: ignore[call-arg]
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(kvstore.StoreIOError) as raised:
        kvstore.open(file)
    assert isinstance(raised.value, OSError)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "superblock").write_bytes(b"not a superblock" * 1024)
    with pytest.raises(kvstore.IncompatibleError):
        kvstore.open(tmp_path / "other")


def test_sizes() -> None:
    assert kvstore.parse_size("8 GiB") == 8 << 30
    assert kvstore.parse_size("1.5kib") == 1536
    assert kvstore.parse_size("2_000 MB") == 2_000_000_000
    assert kvstore.parse_size(4096) == 4096
    for size in ("", "GiB", "1 XB", "0.3 B", "-1 GiB"):
        with pytest.raises(kvstore.InvalidArgument, match="size is"):
            kvstore.parse_size(size)


def test_namespace(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:

        def naming(**changed: Any) -> Call:
            given: dict[str, Any] = {"model": "tiny", "weights": stores.WEIGHTS} | changed
            return lambda: store.namespace(LAYOUT, **given)

        check(
            {
                "model is empty": naming(model=""),
                "weights has 31 bytes: a full fingerprint has 32": naming(weights=bytes(31)),
                "weights is 'abc'": naming(weights="abc"),
                r"weights is \('strong'": naming(weights=("strong", bytes(32))),
                "weights is 8 bytes long": naming(weights=("hub", bytes(8))),
                "weights is of kind name": naming(weights=("name", "llama")),
                "adapter is 3 bytes long": naming(adapter=b"abc"),
                'axis "tp" is rank 2 of 2': naming(axes={"tp": (2, 2)}),
                "ttl is -1": naming(ttl=-1),
                "the longest field is extra.note": naming(extra={"note": "x" * 2000}),
            }
        )
        with pytest.raises(TypeError, match="weights"):
            store.namespace(LAYOUT, model="tiny")  # type: ignore[call-arg]
        with pytest.raises(kvstore.InvalidArgument, match="cache_salt is empty"):
            store.clear(cache_salt="")


def test_token_ids(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)

        def matching(tokens: Any, **options: Any) -> Call:
            return lambda: ns.match(tokens, **options)

        check(
            {
                r"token_ids\[1\] is -5: a token id is 0": matching([1, -5]),
                r"token_ids\[2\] is -100": matching(np.array([1, 2, -100])),
                r"token_ids\[0\] is 4294967296": matching([2**32]),
                r"token_ids\[0\] is 18446744073709551616": matching([2**64]),
                r"token_ids\[1\] is 'a': a token id is an integer": matching([1, "a"]),
                r"token_ids\[0\] is 1.5": matching([1.5]),
                "token_ids has items of type .*'?d": matching(np.zeros(3)),
                "token_ids has 2 dimensions": matching(np.zeros((1, 3), np.int64)),
                "token_ids is not C-contiguous": matching(np.zeros(6, np.int64)[::2]),
                'token_ids has items of type ">q"': matching(np.zeros(3, ">i8")),
                "token_ids is 'text'": matching("text"),
                r"token_ids is \{1\}": matching({1}),
                r"extra_keys\[0\] is 3 bytes long": matching([1] * 64, extra_keys={0: b"abc"}),
                r"extra_keys\[9\] is block 9": matching([1] * 64, extra_keys={9: bytes(16)}),
                r"extra_keys\[0\] is 'x'": matching([1] * 64, extra_keys={0: "x"}),
                "extra_keys is 3: it takes a dict": matching([1] * 64, extra_keys=3),
                "costs.per_byte is -1": matching([1], costs=(1, -1)),
            }
        )
        check({"unit is 0": lambda: ns.usage([1], unit=0)})


def test_put(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        hybrid, plain = namespace(store, HYBRID), namespace(store)
        tokens = prompt(1, 2)
        good = stores.bodies(1, 2)
        size = LAYOUT.body_bytes

        def putting(bodies: Any, **options: Any) -> Call:
            return lambda: plain.put(tokens, bodies, **options)

        def beside(**options: Any) -> Call:
            return lambda: hybrid.put(tokens, None, **options)

        window, state = HYBRID.window_bytes, HYBRID.checkpoint_bytes
        check(
            {
                rf"bodies\[0\] has {size - 1} bytes: body_bytes .* is {size}": putting(
                    good[:, :-1].copy()
                ),
                r"bodies\[1\] has 3 bytes": putting([good[0], b"abc"]),
                "bodies is not C-contiguous": putting(good[:, ::2]),
                r"bodies\[1\] is a int": putting([good[0], 7]),
                "bodies has items of type .*view it as uint8": putting(good.view(np.float32)),
                "bodies has 1 dimensions": putting(bytes(size)),
                "bodies has 2 blocks from first_block = 1: token_ids has 2 whole": putting(
                    good, first_block=1
                ),
                'ack is "sdd"': putting(good, ack="sdd"),
                "hint is 0.5": putting(good, hint=0.5),
                "ttl is -1": putting(good, ttl=-1),
                "replayed_from is block 2": putting(good, replayed_from=2),
                r"windows\[0\] has 3 bytes": beside(windows={0: b"abc"}),
                r"windows\[2\]: token_ids has 2 whole blocks": beside(windows={2: bytes(window)}),
                "windows: 'x' is no block": beside(windows={"x": bytes(window)}),
                r"windows is \[\]: it takes a dict": beside(windows=[]),
                r"checkpoints\[100\]: .* a multiple of 64 up to 128": beside(
                    checkpoints={100: bytes(state)}
                ),
                r"checkpoints\[0\]": beside(checkpoints={0: bytes(state)}),
                r"checkpoints\[192\]": beside(checkpoints={192: bytes(state)}),
                rf"checkpoints\[64\] has {state + 1} bytes: checkpoint_bytes": beside(
                    checkpoints={64: bytes(state + 1)}
                ),
                r"windows\[0\] has 0 bytes: window_bytes of layout entries is 0": putting(
                    good, windows={0: b""}
                ),
            }
        )
        with pytest.raises(OverflowError):
            plain.put(tokens, good, first_block=-1)
        assert plain.match(tokens).matched == 0, "a put that raises stores nothing"


def test_leases_and_plans(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns, other = namespace(store), namespace(store, model="other")
        tokens, _ = stores.store_prompt(ns, 1, 2)
        plan = ns.match(tokens)
        short = np.zeros(10, np.uint8)
        with ns.lease(plan) as lease:
            check(
                {
                    "another namespace": lambda: other.lease(plan),
                    "out has 10 bytes": lambda: ns.get_into(plan, short),
                    "out is read-only": lambda: ns.get_into(plan, bytes(plan.read_bytes)),
                    "out is a int": lambda: ns.get_into(plan, 3),  # type: ignore[arg-type]
                    'area is "head"': lambda: lease.parts(0, "head"),
                    "layer 7 owns no page": lambda: lease.page(0, "kv", 7),
                }
            )
            with pytest.raises(ValueError, match='"nope" must be one of'):
                lease.page(0, "nope", 0)
            for index in (2, -3):
                with pytest.raises(IndexError, match="the lease has 2 bodies"):
                    lease[index]
            with pytest.raises(IndexError, match="no checkpoint"):
                lease.parts(0, "checkpoint")
        with pytest.raises(TypeError, match="Plan"):
            ns.lease(tokens)  # type: ignore[arg-type]
        again = namespace(store)
        assert again.lease(plan).plan.usable == 2 * BLOCK, "the same namespace by another handle"
        same_size = store.namespace(WINDOWED, model="tiny", weights=stores.WEIGHTS)
        with pytest.raises(kvstore.InvalidArgument, match="another namespace"):
            same_size.lease(plan)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    ns = namespace(store)
    tokens, bodies = stores.store_prompt(ns, 1, 1)
    plan = ns.match(tokens)
    store.close()
    assert store.closed
    calls: list[Call] = [
        lambda: ns.match(tokens),
        lambda: ns.lease(plan),
        lambda: ns.get_into(plan, bytearray(plan.read_bytes)),
        lambda: ns.put(tokens, bodies),
        lambda: ns.prefetch(plan),
        lambda: ns.explain(tokens),
        ns.clear,
        lambda: ns.keyed.match(bytes(32)),
        lambda: ns.keyed.put(bytes(32), [b"x"]),
        lambda: namespace(store),
        store.stats,
        store.flush,
    ]
    for call in calls:
        with pytest.raises(kvstore.ClosedError, match="closed"):
            call()
    assert store.close(), "closing twice is fine"
